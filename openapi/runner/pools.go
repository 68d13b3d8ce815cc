package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

// Pool is a worker pool that the runner joins before it begins. A runner reads the wake streams of all pools it is in,
// whoever put it there.
type Pool struct {
	ID string
	// JoinToken lets the runner's owner in without an invitation; empty = the owner was invited, or owns the pool.
	JoinToken string
}

// membership is a pool that the gateway says the runner is in.
type membership struct {
	pool       string
	wakeStream string
	// status is invited, active or disabled.
	status string
}

// join puts the runner into the pools that it is told to be in, and is not yet.
func (s *session) join(ctx context.Context) error {
	if len(s.r.cfg.Pools) == 0 {
		return nil
	}
	in, err := s.gw.memberships(ctx)
	if err != nil {
		return err
	}
	status := map[string]string{}
	for _, m := range in {
		status[m.pool] = m.status
	}
	for _, p := range s.r.cfg.Pools {
		switch status[p.ID] {
		case "active":
			continue
		case "disabled":
			s.log.Warn("the runner is drained in the pool there: it gets none of its work", "pool", p.ID)
			continue
		}
		token := p.JoinToken
		if status[p.ID] == "invited" {
			token = "" // which may have ended since
		}
		if err := s.gw.join(ctx, p.ID, token); err != nil {
			return fmt.Errorf("the runner cannot join the pool %s: %w", p.ID, err)
		}
	}
	return nil
}

// pools keeps the wake streams of the runner's pools read: of those that the last heartbeat told of.
type pools struct {
	s       *session
	mu      sync.Mutex
	want    map[string]membership // by wake stream
	born    string                // of what the gateway remembers
	changed chan struct{}         // has a value when want may have changed
}

func newPools(s *session) *pools { return &pools{s: s, changed: make(chan struct{}, 1)} }

// are takes what a heartbeat told.
func (p *pools) are(in []membership, born string) {
	p.mu.Lock()
	p.want, p.born = make(map[string]membership, len(in)), born
	for _, m := range in {
		if m.status == "active" {
			p.want[m.wakeStream] = m
		}
	}
	p.mu.Unlock()
	signal(p.changed)
}

// tellsOfPools knows the entry which says that the runner is in other pools than before: a heartbeat answers which.
func tellsOfPools(raw json.RawMessage) bool {
	var e struct{ Type string }
	return json.Unmarshal(raw, &e) == nil && e.Type == "pools"
}

// follow reads them until ctx ends. begun is told of each source that is new.
func (p *pools) follow(ctx context.Context, begun func(*source)) {
	type reading struct {
		*source
		born string
		stop context.CancelFunc // nil = it is not read
		over chan struct{}
	}
	all := map[string]*reading{}
	halt := func(r *reading) {
		if r.stop != nil {
			r.stop()
			<-r.over
			r.stop = nil
		}
	}
	defer func() {
		for _, r := range all {
			halt(r)
		}
	}()
	for {
		p.mu.Lock()
		want, born := p.want, p.born
		p.mu.Unlock()
		for path, r := range all {
			if _, still := want[path]; !still || r.born != born {
				if r.stop != nil {
					p.s.log.Info("the wake stream of a pool is not read any more", "pool", r.pool)
				}
				halt(r)
			}
		}
		for path, m := range want {
			r := all[path]
			if r == nil {
				r = &reading{source: newSource(p.s, m.pool, path)}
				all[path] = r
				begun(r.source)
			}
			if r.stop != nil {
				continue
			}
			if _, err := r.resume(born); err != nil {
				p.s.log.Error("the cursor of a pool's wake stream cannot be read, it is read from its start", "pool", m.pool, "error", err)
				r.progress.reset(born, "-1")
			}
			var one context.Context
			one, r.stop = context.WithCancel(ctx)
			r.born, r.over = born, make(chan struct{})
			go func(src *source, over chan struct{}) {
				defer close(over)
				_ = src.follow(one) // of a pool it never fails
			}(r.source, r.over)
			p.s.log.Info("the wake stream of a pool is read", "pool", m.pool)
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			return
		}
	}
}

// poolDoc is a pool as the gateway names it.
type poolDoc struct {
	PoolID     string `json:"pool_id"`
	WakeStream string `json:"wake_stream"`
	Status     string `json:"status"`
}

func memberships(list []poolDoc) []membership {
	out := make([]membership, len(list))
	for i, d := range list {
		out[i] = membership{d.PoolID, "/" + streamName(d.WakeStream), d.Status}
	}
	return out
}

func (w *wire) memberships(ctx context.Context) ([]membership, error) {
	var list []poolDoc
	err := w.ask(ctx, http.MethodGet, "runners/"+url.PathEscape(w.id)+"/pools", nil, &list)
	return memberships(list), err
}

func (w *wire) join(ctx context.Context, pool, token string) error {
	body := map[string]string{}
	if token != "" {
		body["join_token"] = token
	}
	return w.ask(ctx, http.MethodPut, "worker-pools/"+url.PathEscape(pool)+"/members/"+url.PathEscape(w.id), body, nil)
}

// asMember reads a pool's wake stream as this runner, for whom the entries are then.
func (w *wire) asMember(_ context.Context, req *http.Request) error {
	if strings.HasPrefix(req.URL.Path, "/worker-pools/") || strings.Contains(req.URL.Path, "/v1/stream/worker-pools/") {
		q := req.URL.Query()
		q.Set("runner", w.id)
		req.URL.RawQuery = q.Encode()
	}
	return nil
}

// ask makes a request of a control route.
func (w *wire) ask(ctx context.Context, method, path string, body, out any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, w.c.Server+"_electric/"+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, edit := range w.c.RequestEditors {
		if err := edit(ctx, req); err != nil {
			return err
		}
	}
	resp, err := w.c.Client.Do(req)
	return call.Decode(resp, err, out)
}
