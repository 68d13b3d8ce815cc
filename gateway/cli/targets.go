package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
)

// targetFlags say where wakes go.
type targetFlags struct {
	Runner         string        `group:"dispatch" xor:"target" help:"Wakes go to this runner." placeholder:"ID"`
	Pool           string        `group:"dispatch" xor:"target" help:"Wakes go to this worker pool." placeholder:"ID"`
	Webhook        string        `group:"dispatch" xor:"target" help:"Wakes are POSTed to this address." placeholder:"URL"`
	To             []string      `group:"dispatch" xor:"target" sep:"none" help:"Wakes go to runner:ID, pool:ID or a webhook's address; given several times, to the next one when the one before is offline, full, fails, or nobody claims for 30 s. Other conditions follow it: runner:ID,offline,unclaimed=15s." placeholder:"TARGET"`
	Policy         string        `group:"dispatch" xor:"target" help:"The whole dispatch policy." placeholder:"JSON"`
	GiveUpAfter    time.Duration `group:"dispatch" help:"Park work that has waited for so long with nobody at it." placeholder:"TIME"`
	GiveUpAttempts int64         `group:"dispatch" help:"Park work after so many wakes without progress." placeholder:"N"`
}

// dispatchTarget and dispatchPolicy are written as the gateway takes them.
type dispatchTarget struct {
	Type         string         `json:"type"`
	RunnerID     string         `json:"runnerId,omitempty"`
	WorkerPoolID string         `json:"workerPoolId,omitempty"`
	URL          string         `json:"url,omitempty"`
	When         map[string]any `json:"when,omitempty"`
}

type dispatchPolicy struct {
	Targets []dispatchTarget `json:"targets"`
	GiveUp  map[string]any   `json:"giveUp,omitempty"`
}

// policy is what the flags say, nil for nothing.
func (f targetFlags) policy() (json.RawMessage, error) {
	var p dispatchPolicy
	giveUp := map[string]any{}
	if f.GiveUpAfter != 0 {
		if f.GiveUpAfter < time.Millisecond {
			return nil, failf(ExitUsage, "--give-up-after must be at least 1ms")
		}
		giveUp["afterMs"] = f.GiveUpAfter.Milliseconds()
	}
	if f.GiveUpAttempts != 0 {
		giveUp["attempts"] = f.GiveUpAttempts
	}
	switch {
	case f.Runner != "":
		p.Targets = []dispatchTarget{{Type: "runner", RunnerID: f.Runner}}
	case f.Pool != "":
		p.Targets = []dispatchTarget{{Type: "worker-pool", WorkerPoolID: f.Pool}}
	case f.Webhook != "":
		p.Targets = []dispatchTarget{{Type: "webhook", URL: f.Webhook}}
	case len(f.To) > 0:
		for _, text := range f.To {
			t, err := parseTarget(text)
			if err != nil {
				return nil, err
			}
			p.Targets = append(p.Targets, t)
		}
	case len(giveUp) > 0 && f.Policy != "":
		return nil, failf(ExitUsage, "the policy says itself when it gives up: put giveUp into --policy")
	case len(giveUp) > 0:
		return nil, failf(ExitUsage, "say where wakes go too: --give-up-after and --give-up-attempts are part of a policy")
	case f.Policy != "":
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(f.Policy), &object); err != nil || object == nil {
			return nil, failf(ExitUsage, "--policy is not a policy in JSON")
		}
		return json.RawMessage(f.Policy), nil
	default:
		return nil, nil
	}
	if len(giveUp) > 0 {
		p.GiveUp = giveUp
	}
	return json.Marshal(p)
}

// parseTarget reads runner:ID, pool:ID or an address, and the conditions behind it.
func parseTarget(text string) (t dispatchTarget, err error) {
	rest := text
	when := map[string]any{}
	for {
		i := strings.LastIndexByte(rest, ',')
		if i < 0 {
			break
		}
		name, value, given := strings.Cut(rest[i+1:], "=")
		switch {
		case !given && (name == "offline" || name == "full" || name == "failed"):
			when[name] = true
		case name == "unclaimed":
			d, err := time.ParseDuration(value)
			if err != nil || d < time.Millisecond {
				return t, failf(ExitUsage, "unclaimed needs a time with its unit, as in unclaimed=15s")
			}
			when["unclaimedAfterMs"] = d.Milliseconds()
		default:
			// A comma of an address; of an id it is none.
			if !strings.Contains(rest, "://") {
				return t, failf(ExitUsage, "%q is no condition: there are offline, full, failed and unclaimed=TIME", printable(rest[i+1:]))
			}
			return finishTarget(t, rest, when)
		}
		rest = rest[:i]
	}
	return finishTarget(t, rest, when)
}

func finishTarget(t dispatchTarget, text string, when map[string]any) (dispatchTarget, error) {
	if len(when) > 0 {
		t.When = when
	}
	kind, id, _ := strings.Cut(text, ":")
	switch {
	case kind == "runner" && id != "":
		t.Type, t.RunnerID = "runner", id
	case (kind == "pool" || kind == "worker-pool") && id != "":
		t.Type, t.WorkerPoolID = "worker-pool", id
	case kind == "https" || kind == "http":
		t.Type, t.URL = "webhook", text
	default:
		return t, failf(ExitUsage, "%q is no target: name runner:ID, pool:ID or a webhook's address; other transports go into --policy", printable(text))
	}
	return t, nil
}

// target names where a policy sends wakes: from the first target on.
func target(p *client.DispatchPolicy) string {
	if p == nil {
		return ""
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return ""
	}
	return targets(raw)
}

func targets(policy json.RawMessage) string {
	var p dispatchPolicy
	if json.Unmarshal(policy, &p) != nil {
		return ""
	}
	names := make([]string, len(p.Targets))
	for i, t := range p.Targets {
		switch {
		case t.RunnerID != "":
			names[i] = t.Type + " " + t.RunnerID
		case t.WorkerPoolID != "":
			names[i] = "pool " + t.WorkerPoolID
		case t.URL != "":
			names[i] = fmt.Sprintf("%s %s", t.Type, receiver(t.URL))
		default:
			names[i] = t.Type
		}
	}
	return printable(strings.Join(names, " → "))
}
