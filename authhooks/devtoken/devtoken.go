// Package devtoken is the auth hook of a static token file: each line or entry
// names a principal and the SHA-256 of a token that acts as it.
//
// It promises that the file holds no token, that a change of the file counts for
// the next request, and that a file which cannot be read lets nobody in. It knows
// nothing of the gateway.
package devtoken

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
)

// Hook authenticates bearer tokens against a file.
type Hook struct {
	path string
	o    Options

	loading sync.Mutex
	now     atomic.Pointer[content]
}

// content is the file as it was read.
type content struct {
	info   fs.FileInfo // nil: it could not be read
	byHash map[[sha256.Size]byte]Entry
	err    error
}

var (
	_ contract.AuthHook     = (*Hook)(nil)
	_ contract.HeaderReader = (*Hook)(nil)
)

// Options tune a [Hook]; the zero value is fine.
type Options struct {
	// PassUnknown has no opinion on bearer tokens that are not of this file and do
	// not begin with [Prefix]: the next hook may know them.
	PassUnknown bool
	// CacheFor is how long an answer may be remembered by somebody who forgets it
	// when the file changes; zero: not at all. No answer outlives its token.
	CacheFor time.Duration
	// Now is the clock; nil means the system's.
	Now func() time.Time
}

// Open reads the file at path.
func Open(path string, o Options) (*Hook, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Hook{path: path, o: o}
	c := h.current()
	return h, c.err
}

// Name implements contract.AuthHook.
func (h *Hook) Name() string { return "tokens" }

// Headers implements contract.HeaderReader.
func (h *Hook) Headers() []string { return []string{"Authorization"} }

// Broken says why the file cannot be used, which refuses every bearer token; empty:
// it can. It looks at the file.
func (h *Hook) Broken() string {
	if err := h.current().err; err != nil {
		return err.Error()
	}
	return ""
}

// current gives the file's content. A look at its inode for each request costs
// about a microsecond, and makes a revocation count at once.
func (h *Hook) current() *content {
	st, err := os.Stat(h.path)
	c := h.now.Load()
	if err == nil && c.same(st) {
		return c
	}
	h.loading.Lock()
	defer h.loading.Unlock()
	if st, err = os.Stat(h.path); err == nil && h.now.Load().same(st) {
		return h.now.Load()
	}
	c = &content{}
	if err != nil {
		c.err = fmt.Errorf("the token file cannot be read: %w", err)
	} else {
		// Its state is taken before its bytes: if it changes in between, it is read
		// again the next time.
		c.info = st
		c.byHash, c.err = read(h.path)
		if was := h.now.Load(); was != nil && (was.err != nil || len(was.byHash) > 0) && h.rewritten(st) {
			c.info, c.err = nil, errRewritten
		}
	}
	h.now.Store(c)
	return c
}

// rewriting is for how long a file that was made empty is not taken for one that
// knows nobody: editors and shells empty it before they write it.
const rewriting = time.Second

var errRewritten = errors.New("the token file is empty, as one is that is about to be written")

func (h *Hook) rewritten(st fs.FileInfo) bool {
	age := h.o.Now().Sub(st.ModTime())
	return st.Size() == 0 && age > -rewriting && age < rewriting
}

func (c *content) same(st fs.FileInfo) bool {
	return c != nil && c.info != nil && os.SameFile(c.info, st) && c.info.ModTime().Equal(st.ModTime()) && c.info.Size() == st.Size()
}

func read(path string) (map[[sha256.Size]byte]Entry, error) {
	entries, err := List(path)
	if err != nil {
		return nil, err
	}
	byHash := make(map[[sha256.Size]byte]Entry, len(entries))
	for _, e := range entries {
		raw, _ := hex.DecodeString(e.SHA256) // Parse has checked it
		byHash[[sha256.Size]byte(raw)] = e
	}
	return byHash, nil
}

// Authenticate implements contract.AuthHook: no bearer token, no opinion; an
// unknown or ended one is refused. Without CacheFor nothing is to be remembered:
// the answer comes from memory anyway.
func (h *Hook) Authenticate(_ context.Context, r contract.Request) (contract.Decision, error) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return contract.Decision{CacheFor: h.o.CacheFor}, nil
	}
	c := h.current()
	if c.err != nil {
		return contract.Decision{}, c.err
	}
	token = strings.TrimSpace(token)
	// How long finding a hash takes tells something of the hash, of which no
	// token can be made.
	sum := sha256.Sum256([]byte(token))
	e, found := c.byHash[sum]
	if !found && h.o.PassUnknown && !strings.HasPrefix(token, Prefix) {
		return contract.Decision{CacheFor: h.o.CacheFor}, nil
	}
	raw, _ := hex.DecodeString(e.SHA256)
	if !found || subtle.ConstantTimeCompare(raw, sum[:]) != 1 || !e.ExpiresAt.IsZero() && !h.o.Now().Before(e.ExpiresAt) {
		return contract.Decision{Verdict: contract.Deny, CacheFor: h.o.CacheFor}, nil
	}
	remember := h.o.CacheFor
	if !e.ExpiresAt.IsZero() {
		remember = min(remember, e.ExpiresAt.Sub(h.o.Now()))
	}
	kind, id, _ := strings.Cut(e.Principal, ":")
	return contract.Decision{Verdict: contract.Allow, CacheFor: remember,
		Principal: contract.Principal{Kind: kind, ID: id, Profile: map[string]string{"auth_provider": "devtoken"}}}, nil
}
