package control

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rouse-run/rouse/gateway/store"
)

// health codes of a runner's issues.
const (
	issueOffline  = "RUNNER_OFFLINE"
	issueNever    = "RUNNER_NEVER_SEEN"
	issueDisabled = "RUNNER_DISABLED"
	issueBacklog  = "WAKES_UNCLAIMED"
	issueFull     = "RUNNER_FULL"
)

// RunnerHealthDoc is the diagnostics document of a runner.
type RunnerHealthDoc struct {
	Runner struct {
		Runner
		LivenessStatus string     `json:"liveness_status" enum:"online,offline,expired"`
		LeaseExpiresAt *time.Time `json:"lease_expires_at"`
		LeaseRemaining *int64     `json:"lease_remaining_ms"`
	} `json:"runner" nameHint:"RunnerHealthRunner"`
	Client json.RawMessage `json:"client"`
	Claims struct {
		ActiveCount int                 `json:"active_count"`
		Active      []store.ActiveClaim `json:"active"`
	} `json:"claims" nameHint:"RunnerHealthClaims"`
	Dispatch struct {
		Active            int64  `json:"entities_with_active_claim"`
		Outstanding       int64  `json:"entities_with_outstanding_wake"`
		Pending           int64  `json:"entities_with_pending_work"`
		OldestOutstanding *int64 `json:"oldest_outstanding_wake_ms"`
	} `json:"dispatch" nameHint:"RunnerHealthDispatch"`
	Health struct {
		Status string        `json:"status" enum:"healthy,degraded,unhealthy"`
		Issues []healthIssue `json:"issues"`
	} `json:"health" nameHint:"RunnerHealthStatus"`
}

type healthIssue struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type healthDocOutput struct{ Body RunnerHealthDoc }

func (c *Control) runnerHealth(ctx context.Context, in *RunnerRef) (*healthDocOutput, error) {
	r, err := c.runner(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	h, err := c.cfg.Store.RunnerHealth(ctx, from(ctx).service, in.ID)
	if err != nil {
		return nil, err
	}
	out := &healthDocOutput{}
	d := &out.Body
	d.Runner.Runner, d.Runner.LeaseExpiresAt = runnerOf(r), r.LeaseExpiresAt
	d.Client = r.Diagnostics
	if d.Client == nil {
		d.Client = json.RawMessage("{}")
	}
	d.Claims.ActiveCount, d.Claims.Active = len(r.ActiveClaims), d.Runner.ActiveClaims
	d.Dispatch.Active, d.Dispatch.Outstanding, d.Dispatch.Pending, d.Dispatch.OldestOutstanding = h.Active, h.Outstanding, h.Outstanding, h.OldestOutstanding
	d.Health.Status, d.Health.Issues = "healthy", []healthIssue{}
	issue := func(status, code, text string) {
		d.Health.Issues = append(d.Health.Issues, healthIssue{code, text})
		if d.Health.Status != "unhealthy" {
			d.Health.Status = status
		}
	}
	switch {
	case r.LeaseRemaining == nil:
		d.Runner.LivenessStatus = "offline"
		issue("unhealthy", issueNever, "The runner has never sent a heartbeat. Start it.")
	case !r.Online():
		d.Runner.LivenessStatus = "expired"
		zero := int64(0)
		d.Runner.LeaseRemaining = &zero
		issue("unhealthy", issueOffline, "The runner's heartbeats have stopped. Check that it runs and can reach this server.")
	default:
		d.Runner.LivenessStatus, d.Runner.LeaseRemaining = "online", r.LeaseRemaining
	}
	if r.AdminStatus == "disabled" {
		issue("degraded", issueDisabled, "The runner is disabled and is granted no claim. Enable it.")
	}
	if r.Capacity != nil && len(r.ActiveClaims) >= int(*r.Capacity) {
		issue("degraded", issueFull, "The runner holds as many claims as its capacity.")
	}
	if h.OldestOutstanding != nil && *h.OldestOutstanding > 30_000 {
		issue("degraded", issueBacklog, "A wake has waited for more than 30 seconds to be claimed.")
	}
	return out, nil
}
