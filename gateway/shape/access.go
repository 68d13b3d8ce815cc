package shape

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/pace"
	"github.com/rouse-run/rouse/gateway/store"
)

// maxFacts bounds how many entities are remembered; beyond it the memory starts
// anew.
const maxFacts = 50_000

// maxShow bounds the transactions that one lookup waits for: those before the
// latest are long visible.
const maxShow = 64

// Pauses between two looks while the log is ahead of what a snapshot shows.
const (
	lagMin = time.Millisecond
	lagMax = 50 * time.Millisecond
)

// access remembers who may read which entity, for all callers at once. The log
// tells when that may have changed.
type access struct {
	load func(ctx context.Context, service int32, urls []string) (store.ShapeSnapshot, map[string]store.ShapeReaders, error)

	mu  sync.Mutex
	all map[entity]*facts
	// show are transactions that must be seen by whoever looks up what is not
	// there, until somebody has.
	show []uint32
}

type entity struct {
	service int32
	url     string
}

// facts of one entity.
type facts struct {
	store.ShapeReaders
	known bool
	until time.Time // zero: until told otherwise
	// show are transactions that must be seen by whoever looks the facts up.
	show []uint32
	// loading is closed when the lookup under way is over.
	loading chan struct{}
}

func (f *facts) current() bool { return f.known && (f.until.IsZero() || time.Now().Before(f.until)) }

// allows reports whether a principal, of a kind, may read.
func (f *facts) allows(principal, kind string) bool {
	return f != nil && (f.CreatedBy == principal || slices.Contains(f.Subjects, principal) || slices.Contains(f.Subjects, kind))
}

func newAccess(load func(context.Context, int32, []string) (store.ShapeSnapshot, map[string]store.ShapeReaders, error)) *access {
	return &access{load: load, all: map[entity]*facts{}}
}

// invalid says that a transaction may have changed who reads an entity, or any
// entity if url is empty; zero stands for transactions that all can see by now.
func (a *access) invalid(service int32, url string, xid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if url == "" || len(a.all) >= maxFacts {
		a.all = map[entity]*facts{}
	}
	if url == "" {
		if xid != 0 {
			a.show = []uint32{xid}
		}
		return
	}
	// A lookup under way does not show the transaction yet.
	k := entity{service, url}
	f := &facts{show: append([]uint32{xid}, a.show...)}
	if old := a.all[k]; old != nil && !old.known {
		f.show = append(f.show, old.show...)
		f.show = f.show[:min(len(f.show), maxShow)]
	}
	a.all[k] = f
}

// of answers the facts of entities, each as the transaction that it comes with
// left them or later; none for an entity that is not there. It waits until the
// database shows the transactions.
func (a *access) of(ctx context.Context, service int32, want map[string]uint32) (map[string]*facts, error) {
	out := make(map[string]*facts, len(want))
	for len(want) > 0 {
		a.mu.Lock()
		var mine []string
		var busy chan struct{}
		show := map[uint32]struct{}{}
		done := make(chan struct{})
		for url, xid := range want {
			k := entity{service, url}
			f := a.all[k]
			switch {
			case f != nil && f.current():
				out[url] = f
				delete(want, url)
				continue
			case f != nil && f.loading != nil:
				busy = f.loading
				continue
			case f == nil || f.known:
				f = &facts{show: a.show}
				a.all[k] = f
			}
			f.loading = done
			mine = append(mine, url)
			show[xid] = struct{}{}
			for _, x := range f.show {
				show[x] = struct{}{}
			}
		}
		a.mu.Unlock()
		if len(mine) > 0 {
			found, err := a.look(ctx, service, mine, show)
			a.settle(service, mine, found, done)
			if err != nil {
				return nil, err
			}
			for _, url := range mine {
				out[url] = found[url]
				delete(want, url)
			}
			continue
		}
		if busy != nil {
			select {
			case <-busy:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return out, nil
}

// look asks the database until it shows the transactions.
func (a *access) look(ctx context.Context, service int32, urls []string, show map[uint32]struct{}) (map[string]*facts, error) {
	for lag := lagMin; ; lag = min(2*lag, lagMax) {
		snap, readers, err := a.load(ctx, service, urls)
		if err != nil {
			return nil, err
		}
		if showsAll(snap, show) {
			now := time.Now()
			out := make(map[string]*facts, len(readers))
			for url, r := range readers {
				f := &facts{ShapeReaders: r, known: true}
				if r.Valid > 0 {
					f.until = now.Add(r.Valid)
				}
				out[url] = f
			}
			return out, nil
		}
		if !pace.Rest(ctx, lag) {
			return nil, ctx.Err()
		}
	}
}

func showsAll(snap store.ShapeSnapshot, show map[uint32]struct{}) bool {
	for xid := range show {
		if !snap.Shows(xid) {
			return false
		}
	}
	return true
}

// settle ends lookups, and keeps what they found unless something has changed
// since they began.
func (a *access) settle(service int32, urls []string, found map[string]*facts, done chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(done)
	for _, url := range urls {
		k := entity{service, url}
		f := a.all[k]
		if f == nil || f.loading != done {
			continue // invalid since: another lookup is due
		}
		if found != nil {
			a.show = nil
		}
		if n := found[url]; n != nil && len(a.all) <= maxFacts {
			a.all[k] = n
		} else if f.loading = nil; n == nil && found != nil || len(a.all) > maxFacts {
			delete(a.all, k)
		}
	}
}
