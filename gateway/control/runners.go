package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/seal"
	"github.com/rouse-run/rouse/gateway/store"
)

// Runner is a runner as its owner sees it.
type Runner struct {
	ID              string          `json:"id"`
	OwnerPrincipal  string          `json:"owner_principal"`
	Label           string          `json:"label"`
	Kind            string          `json:"kind" enum:"local,cloud-worker,sandbox,ci,server"`
	AdminStatus     string          `json:"admin_status" enum:"enabled,disabled"`
	WakeStream      string          `json:"wake_stream"`
	WakeStreams     []string        `json:"wake_streams"`
	SandboxProfiles json.RawMessage `json:"sandbox_profiles"`
	Capacity        *int32          `json:"capacity,omitempty" doc:"How many claims it holds at once; absent: any number."`
	WakeKey         string          `json:"wake_key,omitempty" doc:"The X25519 public key, in base64, that the entries of its wake streams are sealed to. Absent: they are served in the clear."`
	WakeKeyID       string          `json:"wake_key_id,omitempty" doc:"The keyId of entries that are sealed to it."`
	CreatedAt       time.Time       `json:"created_at"`
	UpdatedAt       time.Time       `json:"updated_at"`

	Liveness               string              `json:"liveness" enum:"online,offline" doc:"Derived from the heartbeat lease."`
	LastSeenAt             *time.Time          `json:"last_seen_at"`
	LivenessLeaseExpiresAt *time.Time          `json:"liveness_lease_expires_at"`
	WakeStreamOffset       *string             `json:"wake_stream_offset" doc:"The cursor the runner last reported."`
	Diagnostics            json.RawMessage     `json:"diagnostics,omitempty"`
	ActiveClaims           []store.ActiveClaim `json:"active_claims" doc:"From the mutex, never self-reported."`
	Pools                  []RunnerPool        `json:"pools,omitempty" doc:"In the answer of a heartbeat: the worker pools it is in, whose wake streams it reads too."`
}

func runnerOf(r store.Runner) Runner {
	key := seal.FromBytes(r.WakeKey)
	out := Runner{ID: r.ID, WakeKey: key.String(), WakeKeyID: key.ID(), OwnerPrincipal: r.Owner, Label: r.Label, Kind: r.Kind, AdminStatus: r.AdminStatus, WakeStream: r.WakeStream,
		WakeStreams: []string{r.WakeStream}, SandboxProfiles: r.SandboxProfiles, Capacity: r.Capacity,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), Liveness: "offline", LastSeenAt: r.LastSeenAt,
		LivenessLeaseExpiresAt: r.LeaseExpiresAt, WakeStreamOffset: r.WakeStreamOffset, Diagnostics: r.Diagnostics, ActiveClaims: r.ActiveClaims}
	if r.Online() {
		out.Liveness = "online"
	}
	if out.ActiveClaims == nil {
		out.ActiveClaims = []store.ActiveClaim{}
	}
	return out
}

type (
	RunnerRef struct {
		Service string `query:"service"`
		ID      string `path:"id"`
	}
	runnerOutput    struct{ Body Runner }
	runnerListInput struct {
		Service string `query:"service"`
		Owner   string `query:"owner_principal" doc:"Only one's own: a principal URL."`
		After   string `query:"after" doc:"Only ids behind this one."`
		Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"1000"`
	}
	runnerListOutput struct{ Body []Runner }
	registerInput    struct {
		Service string `query:"service"`
		Body    struct {
			ID              string           `json:"id"`
			Label           string           `json:"label" minLength:"1" maxLength:"256"`
			Kind            string           `json:"kind,omitempty" enum:"local,cloud-worker,sandbox,ci,server"`
			AdminStatus     string           `json:"admin_status,omitempty" enum:"enabled,disabled"`
			OwnerPrincipal  string           `json:"owner_principal,omitempty" doc:"A principal URL; only the caller's own."`
			WakeStream      string           `json:"wake_stream,omitempty" doc:"Only /runners/{id}/wake."`
			SandboxProfiles []sandboxProfile `json:"sandbox_profiles,omitempty" maxItems:"100"`
			Capacity        *int32           `json:"capacity,omitempty" minimum:"1" maximum:"1024"`
			WakeKey         string           `json:"wake_key,omitempty" maxLength:"64" doc:"The base64 of an X25519 public key to seal its wakes to. Left out: the key stays as it is."`
		} `nameHint:"RunnerRegister"`
	}
	heartbeatInput struct {
		RunnerRef
		Body struct {
			LeaseMS     int64           `json:"lease_ms,omitempty" minimum:"1" maximum:"3600000" doc:"How long the runner counts as online without another heartbeat. Default 90 s."`
			Offset      string          `json:"wake_stream_offset,omitempty" maxLength:"64"`
			ExpiresAt   *time.Time      `json:"liveness_lease_expires_at,omitempty" doc:"Instead of lease_ms."`
			Diagnostics json.RawMessage `json:"diagnostics,omitempty"`
		} `nameHint:"RunnerHeartbeat"`
	}
	claimInput struct {
		RunnerRef
		Body struct {
			_              struct{} `additionalProperties:"true"`
			SubscriptionID string   `json:"subscription_id,omitempty" maxLength:"512"`
			Stream         string   `json:"stream,omitempty" maxLength:"1100"`
			Generation     int64    `json:"generation,omitempty" minimum:"0"`
			WakeID         string   `json:"wakeId,omitempty" maxLength:"64"`
			ClaimID        string   `json:"claimId,omitempty" maxLength:"128" doc:"Names the attempt: repeated with it, a claim answers the same again."`
		} `nameHint:"RunnerClaim"`
	}
	claimOutput struct {
		Status int
		Body   *Notification
	}
)

type sandboxProfile struct {
	Name        string `json:"name" minLength:"1" maxLength:"128"`
	Label       string `json:"label" maxLength:"256"`
	Description string `json:"description,omitempty" maxLength:"4096"`
	Remote      bool   `json:"remote,omitempty"`
}

func (c *Control) registerRunners() {
	tags := []string{"runners"}
	own := []problem.Code{problem.NotFound, problem.RunnerForbidden}
	add(c, huma.Operation{OperationID: "registerRunner", Method: http.MethodPost, Path: "/_electric/runners", Tags: tags, DefaultStatus: 201,
		Summary: "Register or change a runner"}, routeOptions{aliases: map[string]string{"adminStatus": "admin_status", "ownerPrincipal": "owner_principal",
		"wakeStream": "wake_stream", "sandboxProfiles": "sandbox_profiles", "wakeKey": "wake_key"}},
		[]problem.Code{problem.RunnerForbidden, problem.RunnerExists}, c.registerRunner)
	add(c, huma.Operation{OperationID: "listRunners", Method: http.MethodGet, Path: "/_electric/runners", Tags: tags,
		Summary: "The caller's runners"}, routeOptions{}, []problem.Code{problem.RunnerForbidden}, c.listRunners)
	add(c, huma.Operation{OperationID: "getRunner", Method: http.MethodGet, Path: "/_electric/runners/{id}", Tags: tags,
		Summary: "A runner"}, routeOptions{}, own, func(ctx context.Context, in *RunnerRef) (*runnerOutput, error) {
		r, err := c.runner(ctx, in.ID)
		return &runnerOutput{runnerOf(r)}, err
	})
	add(c, huma.Operation{OperationID: "getRunnerHealth", Method: http.MethodGet, Path: "/_electric/runners/{id}/health", Tags: tags,
		Summary: "A runner's diagnostics"}, routeOptions{}, own, c.runnerHealth)
	add(c, huma.Operation{OperationID: "heartbeatRunner", Method: http.MethodPost, Path: "/_electric/runners/{id}/heartbeat", Tags: tags,
		Summary: "Stay online"}, routeOptions{aliases: map[string]string{"wakeStreamOffset": "wake_stream_offset", "leaseMs": "lease_ms",
		"livenessLeaseExpiresAt": "liveness_lease_expires_at"}}, own, c.heartbeatRunner)
	add(c, huma.Operation{OperationID: "claimForRunner", Method: http.MethodPost, Path: "/_electric/runners/{id}/claim", Tags: tags,
		Summary:   "Claim the entity a wake is about",
		Responses: map[string]*huma.Response{"204": {Description: "There is nothing to claim."}}},
		routeOptions{aliases: map[string]string{"wake_id": "wakeId", "claim_id": "claimId"}},
		append([]problem.Code{problem.AlreadyClaimed, problem.NoPendingWork, problem.NotRunning, problem.RunnerFull, problem.NotPoolMember, problem.PoolDisabled, problem.PoolFull, problem.WakeCallbackNotFound}, own...),
		c.claimForRunner)
	for _, v := range []struct{ verb, status string }{{"enable", "enabled"}, {"disable", "disabled"}} {
		add(c, huma.Operation{OperationID: v.verb + "Runner", Method: http.MethodPost, Path: "/_electric/runners/{id}/" + v.verb, Tags: tags,
			Summary: "Set a runner " + v.status}, routeOptions{}, own, func(ctx context.Context, in *RunnerRef) (*runnerOutput, error) {
			return c.setRunner(ctx, in.ID, v.status)
		})
	}
	c.registerWakeKeys()
}

var (
	errRunnerNotFound = problem.New(problem.NotFound, "There is no such runner. Register it first.")
	errRunnerOwner    = problem.New(problem.RunnerForbidden, "The runner belongs to somebody else.")
)

// runner loads a runner of the caller.
func (c *Control) runner(ctx context.Context, id string) (store.Runner, error) {
	who := from(ctx)
	r, err := c.cfg.Store.RunnerGet(ctx, who.service, id)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return r, errRunnerNotFound
	case err != nil:
		return r, err
	}
	allowed, err := c.may(ctx, mayManage, "runner", id, who.Owns(r.Owner))
	if err != nil || !allowed {
		if err == nil {
			err = errRunnerOwner
		}
		return store.Runner{}, err
	}
	return r, nil
}

// ownerOf is whom a caller makes something for: whoever it names, or itself. Only
// the trusted name others; the rest are refused by others.
func ownerOf(who *caller, named string, others error) (string, error) {
	if named == "" {
		return who.principal(), nil
	}
	p, err := auth.Parse(named)
	if err != nil || !strings.HasPrefix(named, "/principal/") {
		return "", invalidFields(problem.Detail{Path: "/owner_principal", Message: "must be a principal URL"})
	}
	if p.URL() != who.principal() && !who.trusted() {
		return "", others
	}
	return p.URL(), nil
}

func (c *Control) registerRunner(ctx context.Context, in *registerInput) (*runnerOutput, error) {
	who, b := from(ctx), &in.Body
	if why := checkRunnerID(b.ID); why != "" {
		return nil, invalidFields(problem.Detail{Path: "/id", Message: why})
	}
	owner, err := ownerOf(who, b.OwnerPrincipal, problem.New(problem.RunnerForbidden, "A runner is registered for oneself only. Leave owner_principal out."))
	if err != nil {
		return nil, err
	}
	if b.WakeStream != "" && strings.TrimPrefix(b.WakeStream, "/") != "runners/"+b.ID+"/wake" {
		return nil, invalidFields(problem.Detail{Path: "/wake_stream", Message: "must be /runners/{id}/wake"})
	}
	r := store.Runner{ID: b.ID, Owner: owner, Label: b.Label, Kind: b.Kind, AdminStatus: b.AdminStatus, Capacity: b.Capacity}
	if b.SandboxProfiles != nil {
		profiles, err := json.Marshal(b.SandboxProfiles)
		if err != nil {
			return nil, err
		}
		r.SandboxProfiles = profiles
	}
	if b.WakeKey != "" {
		key, err := wakeKey(b.WakeKey)
		if err != nil {
			return nil, err
		}
		r.WakeKey, r.WakeKeyID = key.Bytes(), key.ID()
	}
	if err := c.mayRunner(ctx, b.ID, mayManage); err != nil {
		return nil, err
	}
	outcome, _, _, err := c.cfg.Store.RunnerRegister(ctx, who.service, who.principal(), who.trustedFor(mayManage, kindRunner, b.ID), r)
	switch {
	case err != nil:
		return nil, err
	case outcome == "forbidden":
		return nil, problem.New(problem.RunnerForbidden, "The runner id belongs to its first registrar, somebody else. Choose another id.")
	case outcome == "path_taken":
		return nil, problem.New(problem.RunnerExists, "The runner's wake stream exists already. Choose another id.")
	}
	got, err := c.runner(ctx, b.ID)
	return &runnerOutput{runnerOf(got)}, err
}

func (c *Control) listRunners(ctx context.Context, in *runnerListInput) (*runnerListOutput, error) {
	who := from(ctx)
	owner := who.principal()
	if in.Owner != "" {
		p, err := auth.Parse(in.Owner)
		if err != nil {
			return nil, invalidFields(problem.Detail{Path: "query.owner_principal", Message: "must be a principal URL"})
		}
		if owner = p.URL(); !who.Owns(owner) {
			return nil, errRunnerOwner
		}
	} else if who.trusted() {
		owner = ""
	}
	if why := storable(in.After); why != "" {
		return nil, invalidFields(problem.Detail{Path: "query.after", Message: why})
	}
	rows, err := c.cfg.Store.RunnerList(ctx, who.service, owner, in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &runnerListOutput{Body: make([]Runner, len(rows))}
	for i, r := range rows {
		out.Body[i] = runnerOf(r)
	}
	return out, nil
}

func (c *Control) setRunner(ctx context.Context, id, status string) (*runnerOutput, error) {
	who := from(ctx)
	if err := c.mayRunner(ctx, id, mayManage); err != nil {
		return nil, err
	}
	outcome, _, err := c.cfg.Store.RunnerSetStatus(ctx, who.service, id, who.principal(), who.trustedFor(mayManage, kindRunner, id), status)
	switch {
	case err != nil:
		return nil, err
	case outcome == "not_found":
		return nil, errRunnerNotFound
	case outcome == "forbidden":
		return nil, errRunnerOwner
	}
	r, err := c.runner(ctx, id)
	return &runnerOutput{runnerOf(r)}, err
}

// maxDiagnostics bounds what a runner says about itself, in bytes.
const maxDiagnostics = 16 << 10

// sanitize drops from diagnostics what looks like a secret: they are shown in
// UIs.
func sanitize(raw json.RawMessage) (json.RawMessage, error) {
	raw = mayBeNull(raw)
	if raw == nil {
		return nil, nil
	}
	if len(raw) > maxDiagnostics {
		return nil, invalidFields(problem.Detail{Path: "/diagnostics", Message: "must be at most 16384 bytes"})
	}
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil {
		return nil, invalidFields(problem.Detail{Path: "/diagnostics", Message: "must be an object"})
	}
	dropSecrets(m)
	return json.Marshal(m)
}

func dropSecrets(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			l := strings.ToLower(k)
			if slices.ContainsFunc([]string{"token", "secret", "password", "authorization", "cookie", "api_key", "apikey"}, func(s string) bool { return strings.Contains(l, s) }) {
				delete(v, k)
				continue
			}
			if s, ok := x.(string); ok && strings.Contains(s, "rouse_") {
				delete(v, k)
				continue
			}
			dropSecrets(x)
		}
	case []any:
		for _, x := range v {
			dropSecrets(x)
		}
	}
}

func (c *Control) heartbeatRunner(ctx context.Context, in *heartbeatInput) (*runnerOutput, error) {
	who, b := from(ctx), &in.Body
	h := store.Heartbeat{Service: who.service, Runner: in.ID, Principal: who.principal(),
		Lease: time.Duration(b.LeaseMS) * time.Millisecond, WakeStreamOffset: b.Offset}
	if b.ExpiresAt != nil && b.LeaseMS == 0 {
		if h.Lease = time.Until(*b.ExpiresAt); h.Lease < time.Millisecond {
			return nil, invalidFields(problem.Detail{Path: "/liveness_lease_expires_at", Message: "is not in the future"})
		}
	}
	if b.Offset != "" && b.Offset != "-1" {
		if _, err := store.ParseOffset(b.Offset); err != nil || b.Offset == "now" {
			return nil, invalidFields(problem.Detail{Path: "/wake_stream_offset", Message: "is not an offset the server handed out"})
		}
	}
	var err error
	if h.Diagnostics, err = sanitize(b.Diagnostics); err != nil {
		return nil, err
	}
	if err := c.mayRunner(ctx, in.ID, mayManage); err != nil {
		return nil, err
	}
	h.Trusted = who.trustedFor(mayManage, kindRunner, in.ID)
	l, err := c.cfg.Store.RunnerHeartbeat(ctx, h)
	switch {
	case err != nil:
		return nil, err
	case l.Outcome == "not_found":
		return nil, errRunnerNotFound
	case l.Outcome == "not_owner":
		return nil, errRunnerOwner
	}
	r, err := c.runner(ctx, in.ID)
	out := runnerOf(r)
	out.Pools = runnerPools(l.Pools)
	return &runnerOutput{out}, err
}

// claimForRunner takes the lease for a runner and answers the notification, as
// pull-wake clients of the ecosystem expect it.
func (c *Control) claimForRunner(ctx context.Context, in *claimInput) (*claimOutput, error) {
	who, b := from(ctx), &in.Body
	wake, isOne := canonicalWake(b.WakeID)
	if wake != "" && !isOne {
		return nil, errNoWake
	}
	req := claims.AcquireRequest{Wire: claims.Peer, Service: who.service, Holder: who.principal(),
		Runner: in.ID, ClaimID: b.ClaimID, Wake: wake}
	for at, v := range map[string]string{"/subscription_id": b.SubscriptionID, "/stream": b.Stream, "/claimId": b.ClaimID} {
		if why := storable(v); why != "" {
			return nil, invalidFields(problem.Detail{Path: at, Message: why})
		}
	}
	named := true
	switch {
	case b.WakeID != "":
	case b.Stream != "":
		req.Path = strings.TrimPrefix(b.Stream, "/")
	case b.SubscriptionID != "":
		req.Consumer = b.SubscriptionID
	default:
		named = false
	}
	if err := c.mayRunner(ctx, in.ID, mayClaim); err != nil {
		return nil, err
	}
	req.Trusted = who.trustedFor(mayClaim, kindRunner, in.ID)
	g, err := c.cfg.Claims.Acquire(ctx, req)
	switch {
	case err == claims.ErrStopped: //nolint:errorlint // a disabled runner carries the same code and is an error
		return &claimOutput{Status: http.StatusOK, Body: &Notification{done: true}}, nil
	case errors.Is(err, claims.ErrNoWork) && !named:
		return &claimOutput{Status: http.StatusNoContent}, nil
	case problem.CodeOf(err) == problem.Fenced:
		// Pull-wake clients skip a wake for this code, and count others as faults.
		return nil, problem.New(problem.NoPendingWork, "This wake is over. A newer one follows if work is left.")
	case err != nil:
		return nil, err
	}
	n, err := c.notification(who, g)
	if err != nil {
		return nil, err
	}
	return &claimOutput{Status: http.StatusOK, Body: n}, nil
}
