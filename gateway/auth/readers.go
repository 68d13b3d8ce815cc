package auth

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Permissions knows what principals may do to entities; *store.Store does.
type Permissions interface {
	EntityAllowed(ctx context.Context, service int32, principal, permission string, urls []string) ([]string, error)
	// EntityHeld says whether a principal's runner holds the live claim of an entity.
	EntityHeld(ctx context.Context, service int32, principal, url string) (bool, error)
}

const (
	// readerFresh is how long a granted read is taken from memory: so long a grant
	// that was taken back, or a claim that has ended, still counts for new reads. A refusal is never remembered,
	// so a new grant counts at once.
	readerFresh = 2 * time.Second
	// maxReaders bounds the memory; beyond it the memory starts anew.
	maxReaders = 20_000
)

// Readers says who may read the streams of entities that others own. It is safe
// for concurrent use.
type Readers struct {
	db     Permissions
	policy *Chain // nil: what grants say holds

	mu   sync.Mutex
	seen map[readerKey]time.Time
}

type readerKey struct {
	service        int32
	principal, url string
}

// NewReaders makes a Readers.
func NewReaders(db Permissions) *Readers {
	return &Readers{db: db, seen: map[readerKey]time.Time{}}
}

// MayRead says whether a principal, by its URL, may read a stream of an entity:
// its main or error stream, or one of its attachments.
func (r *Readers) MayRead(ctx context.Context, service int32, principal, path string) (bool, error) {
	url := EntityOf(path)
	if url == "" || principal == "" {
		return false, nil
	}
	ok, err := r.granted(ctx, service, principal, url)
	if err != nil || r.policy == nil {
		return ok, err
	}
	return r.policy.mayReadAs(ctx, url, ok)
}

// granted is what ownership, grants and claims say.
func (r *Readers) granted(ctx context.Context, service int32, principal, url string) (bool, error) {
	key, now := readerKey{service, principal, url}, time.Now()
	r.mu.Lock()
	at, ok := r.seen[key]
	r.mu.Unlock()
	if ok && now.Sub(at) < readerFresh {
		return true, nil
	}
	got, err := r.db.EntityAllowed(ctx, service, principal, "read", []string{url})
	if err != nil {
		return false, err
	}
	if len(got) == 0 {
		// Whoever works an entity for others, as a member of their pool, reads what there is to do.
		if held, err := r.db.EntityHeld(ctx, service, principal, url); err != nil || !held {
			return false, err
		}
	}
	r.mu.Lock()
	if len(r.seen) >= maxReaders {
		clear(r.seen)
	}
	r.seen[key] = now
	r.mu.Unlock()
	return true, nil
}

// EntityOf is the url of the entity that a stream belongs to, by the stream's
// path without a leading slash; "" when the path is no entity's stream.
func EntityOf(path string) string {
	name, ok := path, false
	// Attachments first: one may be called main.
	if at := strings.LastIndex(path, "/attachments/"); at > 0 && !strings.Contains(path[at+len("/attachments/"):], "/") {
		name = path[:at]
		ok = strings.Contains(name, "/") // else the entity itself is called attachments
	}
	if !ok {
		name, ok = strings.CutSuffix(path, "/main")
	}
	if !ok {
		name, ok = strings.CutSuffix(path, "/error")
	}
	if !ok || !strings.Contains(name, "/") {
		return ""
	}
	if key, found := strings.CutPrefix(name, "principal/"); found {
		if p, err := Parse(key); err == nil {
			return p.URL()
		}
	}
	return "/" + name
}
