package control

import (
	"context"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
)

var errTooManyTags = problem.Newf(problem.InvalidRequest, "An entity has at most %d tags. Remove some first.", maxTags)

func checkTag(key, value string) string {
	switch {
	case key == "" || len(key) > 256:
		return "has a key that is empty or longer than 256 bytes"
	case len(value) > 16<<10:
		return "is longer than 16384 bytes"
	}
	return ""
}

func (c *Control) changeTag(ctx context.Context, in *EntityRef, key string, value *string) (*entityTxOutput, error) {
	v, op := "", "delete"
	if value != nil {
		v, op = *value, "insert"
	}
	if why := checkTag(key, v); why != "" {
		return nil, invalidFields(problem.Detail{Path: "/value", Message: why})
	}
	if in.Type == principalType {
		return nil, errPrincipalEntity
	}
	if _, err := c.entityFor(ctx, in, mayWrite); err != nil {
		return nil, err
	}
	who := from(ctx)
	event := staterow.Text(staterow.Headers{Operation: op}, "tags", key, struct {
		Key   string  `json:"key"`
		Value *string `json:"value,omitempty"`
	}{key, value})
	outcome, txid, e, err := c.cfg.Store.EntityTagPut(ctx, who.service, in.url(), who.principal(), key, value, event)
	switch {
	case err != nil:
		return nil, err
	case outcome == "not_found":
		return nil, errEntityNotFound
	case outcome == "not_running":
		return nil, errNotRunning
	case outcome == "too_many":
		return nil, errTooManyTags
	}
	c.cfg.Changed()
	return &entityTxOutput{Body: EntityTx{entityOf(e), txid}}, nil
}

func (c *Control) putTag(ctx context.Context, in *tagInput) (*entityTxOutput, error) {
	return c.changeTag(ctx, &in.EntityRef, in.Key, &in.Body.Value)
}

func (c *Control) deleteTag(ctx context.Context, in *tagKeyInput) (*entityTxOutput, error) {
	return c.changeTag(ctx, &in.EntityRef, in.Key, nil)
}
