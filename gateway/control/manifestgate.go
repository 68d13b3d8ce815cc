package control

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"github.com/rouse-run/rouse/gateway/store"
)

// maxManifests bounds the entities remembered to have a read manifest; beyond it
// the memory starts anew.
const maxManifests = 100_000

// manifestGate sees to it that the manifest of an entity is read from the first
// row on that its holder appends to it. Entities without one cost nothing.
type manifestGate struct {
	mu   sync.Mutex
	read map[stateKey]struct{}
}

// GateAppend is CheckAppend, and lets manifest rows have their effect once they
// are appended.
func (c *Control) GateAppend(ctx context.Context, item *store.AppendItem) error {
	if err := c.CheckAppend(ctx, item); err != nil {
		return err
	}
	name, ok := strings.CutSuffix(item.Path, "/main")
	// A member that spells the word with escapes is not seen; nobody writes so.
	if !ok || item.Claim == nil || item.Type != "application/json" || !bytes.Contains(item.Payload, []byte(`"manifest"`)) {
		return nil
	}
	key := stateKey{item.Service, "/" + name}
	g := &c.manifests
	g.mu.Lock()
	_, known := g.read[key]
	g.mu.Unlock()
	if known {
		return nil
	}
	s, _, err := c.states.state(ctx, key, true)
	if err != nil || s.consumer == 0 {
		return err // the append will refuse it
	}
	outcome, err := c.cfg.Store.ObserveManifest(ctx, key.service, key.url)
	if err != nil || outcome != "ok" {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.read == nil || len(g.read) >= maxManifests {
		g.read = map[stateKey]struct{}{}
	}
	g.read[key] = struct{}{}
	return nil
}
