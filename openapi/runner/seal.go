package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

// agree makes the gateway seal to the key that this process can open, or to none.
func (s *session) agree(ctx context.Context, known registered) error {
	mine := s.r.cfg.publicKey()
	if known.WakeKey == mine {
		return nil
	}
	err := s.gw.seal(ctx, mine)
	if status := call.Status(err); status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		s.log.Warn("the gateway does not know how to seal wakes, they come in the clear")
		return nil
	}
	if err == nil && known.WakeKey != "" {
		s.log.Info("the key that wakes are sealed to was replaced")
	}
	return err
}

// agreeAgain sets the key once more, when a pool's entry was sealed to another one.
func (s *session) agreeAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.r.cfg.Timeout)
	defer cancel()
	known, err := s.gw.lookup(ctx)
	if err == nil {
		err = s.agree(ctx, known)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("the gateway does not take the runner's key", "error", err)
	}
}

// open gives an entry of a wake stream in the clear. It fails for one that is sealed to a key which is not this
// process's; the wake stream is then read again from the cursor, once the gateway knows the right key.
func (s *session) open(entry json.RawMessage) (json.RawMessage, error) {
	plain, err := s.r.cfg.Key.Open(entry)
	if err != nil {
		return nil, fmt.Errorf("a wake cannot be opened (does another process use the runner's id, with another key?): %w", err)
	}
	if s.r.cfg.Key != nil && bytes.Equal(plain, entry) {
		s.clear.Do(func() {
			s.log.Warn("wakes come in the clear: the runner's key was taken away, or the gateway knows none; a runner that starts sets its key again")
		})
	}
	return plain, nil
}

// publicKey is what the gateway is told to seal to; empty = nothing.
func (c *Config) publicKey() string {
	if c.Key == nil {
		return ""
	}
	return c.Key.Public()
}

// seal sets the runner's key, or removes it.
func (w *wire) seal(ctx context.Context, public string) error {
	path := "runners/" + url.PathEscape(w.id) + "/wake-key"
	if public == "" {
		return w.ask(ctx, http.MethodDelete, path, nil, nil)
	}
	return w.ask(ctx, http.MethodPut, path, map[string]string{"wake_key": public}, nil)
}
