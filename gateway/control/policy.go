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
	return problem.New(problem.InvalidTarget, "There is no transport for this type of target. There are: "+strings.Join(append(known, "in dispatch policies runner and worker-pool"), ", ")+".")
}

type policyDoc struct {
	Targets []dispatchTarget `json:"targets" minItems:"1" maxItems:"8" doc:"Where wakes go: to the first target, and on to the next one when its conditions are met."`
	GiveUp  *giveUp          `json:"giveUp,omitempty" doc:"When work that nobody does is parked; absent: never."`
}

type dispatchTarget struct {
	_              struct{} `additionalProperties:"true"`
	Type           string   `json:"type" doc:"runner, worker-pool, webhook, or the type of a transport plugin." example:"runner"`
	RunnerID       string   `json:"runnerId,omitempty" doc:"For type runner: the runner whose wake stream gets the wake."`
	WorkerPoolID   string   `json:"workerPoolId,omitempty" doc:"For type worker-pool: the pool whose members may claim the wake."`
	URL            string   `json:"url,omitempty" doc:"For type webhook: where the wake is POSTed."`
	SubscriptionID string   `json:"subscription_id,omitempty" doc:"A label that webhooks of the ecosystem look for."`
	When           *moveOn  `json:"when,omitempty" doc:"What moves a wake on to the next target. A target with a successor that says nothing moves on when offline, full, failed, or unclaimed for 30 s."`
}

type moveOn struct {
	Offline          bool  `json:"offline,omitempty" doc:"The runner, or every member of the pool, is offline."`
	Full             bool  `json:"full,omitempty" doc:"The runner or the pool holds as many claims as it may."`
	Failed           bool  `json:"failed,omitempty" doc:"The wake could not be delivered."`
	UnclaimedAfterMS int64 `json:"unclaimedAfterMs,omitempty" minimum:"1" maximum:"2592000000" doc:"Nobody has claimed the wake for so long."`
}

type giveUp struct {
	AfterMS  int64 `json:"afterMs,omitempty" minimum:"1" maximum:"31536000000" doc:"Work has waited for so long without anybody at it."`
	Attempts int64 `json:"attempts,omitempty" minimum:"1" maximum:"1000" doc:"So many wakes without progress."`
}

// Schema implements huma.SchemaProvider. The policy is checked by checkPolicy,
// which knows the transports.
func (DispatchPolicy) Schema(r huma.Registry) *huma.Schema {
	return named(r, reflect.TypeFor[policyDoc](), "DispatchPolicy")
}

// Bounds of a policy.
const (
	maxTargets        = 8
	maxTarget         = 16 << 10                   // bytes of one target
	maxUnclaimedAfter = int64(30 * 24 * 3600_000)  // ms
	maxGiveUpAfter    = int64(365 * 24 * 3600_000) // ms
	maxAttempts       = int64(1000)
)

// Types of targets that have no transport.
const (
	targetRunner = "runner"
	targetPool   = "worker-pool"
)

// badPolicy is a refusal with the place in the body.
func badPolicy(place, format string, args ...any) error {
	return problem.New(problem.InvalidRequest, "The dispatch policy is not valid. See errors for the places.").
		WithDetails(problem.Detail{Path: place, Message: fmt.Sprintf(format, args...)})
}

// checkPolicy refuses a policy that cannot be stored and returns its canonical
// form. Whether a runner or pool exists and who may use it is decided in the
// transaction that uses the policy. at is the policy's place in the body. nil
// stays nil.
func (c *Control) checkPolicy(ctx context.Context, at string, p DispatchPolicy) (json.RawMessage, error) {
	if len(p) == 0 || string(p) == "null" {
		return nil, nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(p, &m) != nil {
		return nil, badPolicy(at, "must be an object")
	}
	if err := renamed(at, m, "give_up", "giveUp"); err != nil {
		return nil, err
	}
	for k := range m {
		if k != "targets" && k != "giveUp" {
			return nil, badPolicy(at+"/"+k, "is not a known member")
		}
	}
	var targets []json.RawMessage
	if json.Unmarshal(m["targets"], &targets) != nil || len(targets) < 1 || len(targets) > maxTargets {
		return nil, badPolicy(at+"/targets", "must be a list of 1 to %d targets", maxTargets)
	}
	canonical, seen := make([]json.RawMessage, len(targets)), map[string]int{}
	for i, raw := range targets {
		place := fmt.Sprintf("%s/targets/%d", at, i)
		target, plain, err := c.checkTarget(ctx, place, raw, i < len(targets)-1)
		if err != nil {
			return nil, err
		}
		if before, twice := seen[plain]; twice {
			return nil, badPolicy(place, "is the same as target %d; when all have been tried, the first one's turn comes again if the last one has a when", before)
		}
		canonical[i], seen[plain] = target, i
	}
	out := struct {
		Targets []json.RawMessage `json:"targets"`
		GiveUp  *giveUp           `json:"giveUp,omitempty"`
	}{Targets: canonical}
	if raw := mayBeNull(m["giveUp"]); raw != nil {
		g, err := numbers(at+"/giveUp", raw, map[string]int64{"afterMs": maxGiveUpAfter, "attempts": maxAttempts}, map[string]string{"after_ms": "afterMs"})
		if err != nil {
			return nil, err
		}
		out.GiveUp = &giveUp{AfterMS: g["afterMs"], Attempts: g["attempts"]}
	}
	return json.Marshal(out)
}

// checkTarget is checkPolicy for one target; more says that another follows it.
// plain is the target without its conditions.
func (c *Control) checkTarget(ctx context.Context, at string, raw json.RawMessage, more bool) (target json.RawMessage, plain string, err error) {
	var t map[string]json.RawMessage
	if json.Unmarshal(raw, &t) != nil || t == nil {
		return nil, "", badPolicy(at, "must be an object")
	}
	if len(raw) > maxTarget {
		return nil, "", badPolicy(at, "is too large")
	}
	typ := member(t, "type")
	if typ == "" || len(typ) > 64 {
		return nil, "", badPolicy(at+"/type", "must be the name of a target type")
	}
	when, err := checkWhen(at+"/when", typ, t["when"], more)
	if err != nil {
		return nil, "", err
	}
	delete(t, "when") // a transport need not know of it
	switch typ {
	case targetRunner:
		err = checkOwn(at, t, typ, "runner_id", "runnerId")
	case targetPool:
		err = checkOwn(at, t, typ, "worker_pool_id", "workerPoolId")
	}
	if err != nil {
		return nil, "", err
	}
	if target, err = json.Marshal(t); err != nil {
		return nil, "", err
	}
	plain = string(target)
	if typ != targetRunner && typ != targetPool {
		if err := c.cfg.Transports.Validate(ctx, typ, target); err != nil {
			e := problem.From(err)
			if len(e.Details) == 0 {
				e.WithDetails(problem.Detail{Path: at, Message: "is refused by its transport"})
			}
			return nil, "", e
		}
	}
	if when != nil {
		t["when"] = when
		target, err = json.Marshal(t)
	}
	return target, plain, err
}

// checkOwn checks a target that is one of ours, whose id has two names.
func checkOwn(at string, t map[string]json.RawMessage, typ, snake, name string) error {
	if err := renamed(at, t, snake, name); err != nil {
		return err
	}
	for k := range t {
		if k != "type" && k != name && k != "subscription_id" {
			return badPolicy(at+"/"+k, "is not a known member of a %s target", typ)
		}
	}
	if why := checkRunnerID(member(t, name)); why != "" {
		return badPolicy(at+"/"+name, "%s", why)
	}
	if _, ok := t["subscription_id"]; ok && member(t, "subscription_id") == "" {
		return badPolicy(at+"/subscription_id", "must be a string that is not empty")
	}
	return nil
}

// checkWhen checks what moves a wake on from a target. What says nothing is nil.
func checkWhen(at, typ string, raw json.RawMessage, more bool) (json.RawMessage, error) {
	if raw = mayBeNull(raw); raw == nil {
		return nil, nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil, badPolicy(at, "must be an object")
	}
	if err := renamed(at, m, "unclaimed_after_ms", "unclaimedAfterMs"); err != nil {
		return nil, err
	}
	var w moveOn
	for k, v := range m {
		switch k {
		case "offline", "full", "failed":
			var b bool
			if json.Unmarshal(v, &b) != nil || string(v) == "null" {
				return nil, badPolicy(at+"/"+k, "must be true or false")
			}
			if b && k != "failed" && typ != targetRunner && typ != targetPool {
				return nil, badPolicy(at+"/"+k, "is for runners and worker pools: of another target nobody knows it")
			}
			switch k {
			case "offline":
				w.Offline = b
			case "full":
				w.Full = b
			case "failed":
				w.Failed = b
			}
		case "unclaimedAfterMs":
			n, ok := count(v, maxUnclaimedAfter)
			if !ok {
				return nil, badPolicy(at+"/"+k, "must be a whole number of milliseconds from 1 to %d", maxUnclaimedAfter)
			}
			w.UnclaimedAfterMS = n
		default:
			return nil, badPolicy(at+"/"+k, "is not a known condition: there are offline, full, failed and unclaimedAfterMs")
		}
	}
	if w == (moveOn{}) {
		if more {
			return nil, badPolicy(at, "names nothing that would move a wake on to the next target; leave it out for the default")
		}
		return nil, nil
	}
	return json.Marshal(w)
}

// numbers reads an object of whole numbers from 1 to their bounds; at least one
// must be there.
func numbers(at string, raw json.RawMessage, bounds map[string]int64, aliases map[string]string) (map[string]int64, error) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil, badPolicy(at, "must be an object")
	}
	for from, to := range aliases {
		if err := renamed(at, m, from, to); err != nil {
			return nil, err
		}
	}
	out := map[string]int64{}
	for k, v := range m {
		most, ok := bounds[k]
		if !ok {
			return nil, badPolicy(at+"/"+k, "is not a known member")
		}
		n, ok := count(v, most)
		if !ok {
			return nil, badPolicy(at+"/"+k, "must be a whole number from 1 to %d", most)
		}
		out[k] = n
	}
	if len(out) == 0 {
		return nil, badPolicy(at, "must say at least one bound; leave it out to never give up")
	}
	return out, nil
}

func count(raw json.RawMessage, most int64) (int64, bool) {
	var n int64
	return n, json.Unmarshal(raw, &n) == nil && n >= 1 && n <= most
}

// renamed gives a member its one name.
func renamed(at string, m map[string]json.RawMessage, from, to string) error {
	v, ok := m[from]
	if !ok {
		return nil
	}
	if _, twice := m[to]; twice {
		return badPolicy(at+"/"+from, "is given as %s too", to)
	}
	m[to] = v
	delete(m, from)
	return nil
}

// member is a text of an object, or "".
func member(m map[string]json.RawMessage, name string) string {
	var s string
	if json.Unmarshal(m[name], &s) != nil {
		return ""
	}
	return s
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
