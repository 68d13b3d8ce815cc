package control

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/seal"
)

// wakeKeyNames are the aliases of a wake key's member.
var wakeKeyNames = map[string]string{"wakeKey": "wake_key"}

type wakeKeyInput struct {
	RunnerRef
	Body struct {
		WakeKey string `json:"wake_key" maxLength:"64" doc:"The base64 of an X25519 public key. The private one stays with the runner."`
	} `nameHint:"RunnerWakeKey"`
}

func (c *Control) registerWakeKeys() {
	op := huma.Operation{OperationID: "putRunnerWakeKey", Method: http.MethodPut, Path: "/_electric/runners/{id}/wake-key", Tags: []string{"runners"},
		Summary: "Seal a runner's wakes to a key", Description: "From now on the entries of the runner's wake streams are sealed to this key as they are read. Another key replaces it."}
	codes := []problem.Code{problem.NotFound, problem.RunnerForbidden}
	add(c, op, routeOptions{aliases: wakeKeyNames}, codes, func(ctx context.Context, in *wakeKeyInput) (*runnerOutput, error) {
		key, err := wakeKey(in.Body.WakeKey)
		if err != nil {
			return nil, err
		}
		return c.setWakeKey(ctx, in.ID, key)
	})
	op.OperationID, op.Method, op.Summary, op.Description = "deleteRunnerWakeKey", http.MethodDelete, "Serve a runner's wakes in the clear", ""
	add(c, op, routeOptions{}, codes, func(ctx context.Context, in *RunnerRef) (*runnerOutput, error) {
		return c.setWakeKey(ctx, in.ID, nil)
	})
}

func wakeKey(text string) (*seal.Key, error) {
	key, err := seal.Parse(text)
	if err != nil {
		return nil, invalidFields(problem.Detail{Path: "/wake_key", Message: seal.ErrKey.Error()})
	}
	return key, nil
}

// setWakeKey sets or, with nil, removes the key of a runner that the caller may
// manage.
func (c *Control) setWakeKey(ctx context.Context, id string, key *seal.Key) (*runnerOutput, error) {
	if _, err := c.runner(ctx, id); err != nil {
		return nil, err
	}
	who := from(ctx)
	outcome, _, err := c.cfg.Store.RunnerWakeKey(ctx, who.service, id, who.principal(), true, key.Bytes(), key.ID())
	switch {
	case err != nil:
		return nil, err
	case outcome == "not_found":
		return nil, errRunnerNotFound
	}
	r, err := c.runner(ctx, id)
	return &runnerOutput{runnerOf(r)}, err
}
