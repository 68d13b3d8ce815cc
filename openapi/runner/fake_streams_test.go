package runner

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (f *fake) append(path string, r *http.Request, body []byte) (int, any) {
	main := path
	if u, ok := strings.CutSuffix(path, "/error"); ok {
		main = u + "/main"
	}
	c := f.consumer(main)
	f.settle(main, c)
	if r.Header.Get("Electric-Claim-Token") != "wt "+wakeID(main, c.epoch) {
		return 401, refusal("UNAUTHORIZED")
	}
	if c.state != "claimed" {
		return 409, refusal("LEASE_EXPIRED")
	}
	var events []json.RawMessage
	if json.Unmarshal(body, &events) != nil {
		return 400, refusal("INVALID_JSON")
	}
	if strings.Contains(string(body), "bad event") {
		return 422, refusal("SCHEMA_VALIDATION_FAILED")
	}
	s := f.stream(path)
	seq, _ := strconv.ParseInt(r.Header.Get("Producer-Seq"), 10, 64)
	id := r.Header.Get("Producer-Id") + "/" + r.Header.Get("Producer-Epoch")
	if r.Header.Get("Producer-Epoch") != strconv.FormatInt(c.epoch, 10) {
		return 403, refusal("PRODUCER_FENCED")
	}
	switch next := s.producers[id]; {
	case seq < next:
		return 204, nil
	case seq > next:
		return 409, refusal("PRODUCER_GAP")
	}
	s.producers[id]++
	for _, e := range events {
		f.push(path, e)
	}
	return 200, nil
}

func (f *fake) sse(w http.ResponseWriter, r *http.Request, path string) {
	at := position(r.URL.Query().Get("offset"))
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(200)
	for {
		f.mu.Lock()
		all, changed, ends := f.stream(path).messages, f.changed, f.ends
		f.mu.Unlock()
		if len(all) > at {
			raw, _ := json.Marshal(all[at:])
			_, _ = fmt.Fprintf(w, "event: data\ndata: %s\n\n", raw)
			at = len(all)
		}
		_, _ = fmt.Fprintf(w, "event: control\ndata: {\"streamNextOffset\":%q,\"upToDate\":true}\n\n", offset(at))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
			f.mu.Lock()
			now := f.ends
			f.mu.Unlock()
			if now != ends {
				_, _ = io.WriteString(w, "event: data\ndata: [{\"type\":\"wa")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		case <-r.Context().Done():
			return
		}
	}
}

// cutTails breaks every open tail in the middle of an event.
func (f *fake) cutTails() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends++
	close(f.changed)
	f.changed = make(chan struct{})
}

func poolPath(pool string) string { return "/worker-pools/" + pool + "/wake" }

// put sets the runner's status in a pool; "" takes it out.
func (f *fake) put(pool, status string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pools[pool] = status
}

// tell says on the runner's wake stream that its pools have changed.
func (f *fake) tell() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.push(wakePath, json.RawMessage(`{"type":"pools","ts":1}`))
}

func (f *fake) poolDocs(all bool) []any {
	out := []any{}
	for id, status := range f.pools {
		if status == "active" || all && status != "" {
			out = append(out, map[string]any{"pool_id": id, "wake_stream": poolPath(id), "status": status})
		}
	}
	return out
}

// recall asks for an entity's claim, on the wake stream or only in the answers about the claim.
func (f *fake) recall(entity string, entry bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.consumer(entity + "/main")
	f.asked[wakeID(entity+"/main", c.epoch)] = true
	if entry {
		f.push(wakePath, json.RawMessage(fmt.Sprintf(`{"type":"release","wakeId":%q,"epoch":%d,"releaseBy":%q}`, wakeID(entity+"/main", c.epoch), c.epoch, time.Now().Add(time.Hour).Format(time.RFC3339))))
	}
}

// waiting are the paths whose wakes wait for the runner, the oldest first; the caller holds the lock.
func (f *fake) waiting() (out []string) {
	for path, c := range f.subject {
		pool := f.via[strings.TrimSuffix(path, "/main")]
		if c.state == "waking" && (pool == "" || f.pools[pool] == "active") {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}
