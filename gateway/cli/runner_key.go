package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

type runnerKeyCmd struct {
	clientFlags
	ID     string `arg:"" help:"The runner's id."`
	Set    string `help:"Have its wakes sealed to this X25519 public key." placeholder:"BASE64" xor:"key"`
	Remove bool   `help:"Have its wakes in the clear." xor:"key"`
}

func (runnerKeyCmd) Help() string {
	return `A runner started with "rouse runner run" sets its key itself, and sets it again when another takes its place: to have another one, end it, remove its key file and start it again.

Examples:
  rouse runner key laptop
  rouse runner key laptop --set "$(cat laptop.pub)"
  rouse runner key laptop --remove`
}

func (c *runnerKeyCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		var out struct {
			WakeKey   string `json:"wake_key"`
			WakeKeyID string `json:"wake_key_id"`
		}
		if err := k.ask(&out, func(ctx context.Context) (*http.Response, error) { return c.send(ctx, k) }); err != nil {
			return err
		}
		switch {
		case k.json:
			return r.printJSON(out)
		case out.WakeKey == "":
			k.printf("the wakes of %s come in the clear\n", printable(c.ID))
		default:
			k.printf("the wakes of %s are sealed to %s (%s)\n", printable(c.ID), out.WakeKey, out.WakeKeyID)
		}
		return nil
	})
}

// send asks for the runner, or changes its key.
func (c *runnerKeyCmd) send(ctx context.Context, k *caller) (*http.Response, error) {
	method, path, body := http.MethodGet, "_electric/runners/"+url.PathEscape(c.ID), []byte(nil)
	switch {
	case c.Remove:
		method, path = http.MethodDelete, path+"/wake-key"
	case c.Set != "":
		raw, err := json.Marshal(map[string]string{"wake_key": c.Set})
		if err != nil {
			return nil, err
		}
		method, path, body = http.MethodPut, path+"/wake-key", raw
	}
	req, err := http.NewRequestWithContext(ctx, method, k.Server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, edit := range k.RequestEditors {
		if err := edit(ctx, req); err != nil {
			return nil, err
		}
	}
	return k.Client.Client.Do(req)
}
