package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/plugins/contract"
)

// DispatchPolicy says where an entity's wakes go. It is kept as it came, since
// a target may have members that only its transport knows.
type DispatchPolicy json.RawMessage

// MarshalJSON implements json.Marshaler.
func (p DispatchPolicy) MarshalJSON() ([]byte, error) { return json.RawMessage(p).MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler.
func (p *DispatchPolicy) UnmarshalJSON(b []byte) error {
	*p = append((*p)[:0], b...)
	return nil
}

// Carriers are the transports of this gateway, by the type of target they serve.
type Carriers []contract.Transport

var _ Transports = Carriers(nil)

// Validate implements [Transports]. What a webhook's url is refused for is
// WEBHOOK_URL_REJECTED.
func (cs Carriers) Validate(ctx context.Context, typ string, target json.RawMessage) error {
	var known []string
	for _, t := range cs {
		if t.Type() != typ {
			known = append(known, t.Type())
			continue
		}
		if err := t.ValidateTarget(ctx, target); err != nil {
			if p, ok := errors.AsType[*problem.Error](err); ok {
				return p // it could not be asked
			}
			code := problem.InvalidTarget
			if typ == "webhook" {
				code = problem.WebhookURLRejected
			}
			return problem.New(code, "The dispatch target is refused: "+err.Error()+".")
		}
		return nil
	}
	return problem.New(problem.InvalidTarget, "There is no transport for this type of target. There are: "+strings.Join(append(known, "in dispatch policies runner"), ", ")+".")
}

type policyDoc struct {
	Targets []dispatchTarget `json:"targets" minItems:"1" doc:"Where wakes go. Exactly one target."`
}

type dispatchTarget struct {
	_              struct{} `additionalProperties:"true"`
	Type           string   `json:"type" doc:"runner, webhook, or the type of a transport plugin." example:"runner"`
	RunnerID       string   `json:"runnerId,omitempty" doc:"For type runner: the runner whose wake stream gets the wake."`
	URL            string   `json:"url,omitempty" doc:"For type webhook: where the wake is POSTed."`
	SubscriptionID string   `json:"subscription_id,omitempty" doc:"A label that webhooks of the ecosystem look for."`
}

// Schema implements huma.SchemaProvider. The policy is checked by checkPolicy,
// which knows the transports.
func (DispatchPolicy) Schema(r huma.Registry) *huma.Schema {
	return named(r, reflect.TypeFor[policyDoc](), "DispatchPolicy")
}

// checkPolicy refuses a policy that cannot be stored and returns its canonical
// form. Whether a runner exists and who owns it is decided in the transaction
// that uses the policy. at is the policy's place in the body. nil stays nil.
func (c *Control) checkPolicy(ctx context.Context, at string, p DispatchPolicy) (json.RawMessage, error) {
	if len(p) == 0 || string(p) == "null" {
		return nil, nil
	}
	bad := func(place, format string, args ...any) error {
		return problem.New(problem.InvalidRequest, "The dispatch policy is not valid. See errors for the places.").
			WithDetails(problem.Detail{Path: at + place, Message: fmt.Sprintf(format, args...)})
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(p, &m) != nil {
		return nil, bad("", "must be an object")
	}
	for k := range m {
		if k != "targets" {
			return nil, bad("/"+k, "is not a known member")
		}
	}
	var targets []json.RawMessage
	if json.Unmarshal(m["targets"], &targets) != nil || len(targets) != 1 {
		return nil, bad("/targets", "must be a list of exactly one target")
	}
	var t map[string]json.RawMessage
	if json.Unmarshal(targets[0], &t) != nil || t == nil {
		return nil, bad("/targets/0", "must be an object")
	}
	text := func(k string) string {
		var s string
		if json.Unmarshal(t[k], &s) != nil {
			return ""
		}
		return s
	}
	typ := text("type")
	switch {
	case typ == "" || len(typ) > 64:
		return nil, bad("/targets/0/type", "must be the name of a target type")
	case typ == "runner":
		if v, ok := t["runner_id"]; ok {
			if _, twice := t["runnerId"]; twice {
				return nil, bad("/targets/0/runner_id", "is given as runnerId too")
			}
			t["runnerId"] = v
			delete(t, "runner_id")
		}
		for k := range t {
			if k != "type" && k != "runnerId" && k != "subscription_id" {
				return nil, bad("/targets/0/"+k, "is not a known member of a runner target")
			}
		}
		if why := checkRunnerID(text("runnerId")); why != "" {
			return nil, bad("/targets/0/runnerId", "%s", why)
		}
		if _, ok := t["subscription_id"]; ok && text("subscription_id") == "" {
			return nil, bad("/targets/0/subscription_id", "must be a string that is not empty")
		}
	default:
		if len(targets[0]) > 16<<10 {
			return nil, bad("/targets/0", "is too large")
		}
		if err := c.cfg.Transports.Validate(ctx, typ, targets[0]); err != nil {
			e := problem.From(err)
			if len(e.Details) == 0 {
				e.WithDetails(problem.Detail{Path: at + "/targets/0", Message: "is refused by its transport"})
			}
			return nil, e
		}
	}
	target, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(`{"targets":[` + string(target) + `]}`), nil
}

// checkRunnerID says why an id cannot be a runner's, or "".
func checkRunnerID(id string) string {
	if id == "" || len(id) > 128 {
		return "must be 1 to 128 characters long"
	}
	if strings.Trim(id, ".") == "" {
		return "must not be dots only"
	}
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-:@~+", c) >= 0) {
			return "must be made of letters, digits and . _ - : @ ~ +"
		}
	}
	return ""
}
