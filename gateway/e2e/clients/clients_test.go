// Package clients tells the whole story to a real gateway through the generated
// clients, in Go and in TypeScript.
package clients

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/openapi/client"
)

func TestMain(m *testing.M) {
	servertest.ServePlugins()
	goleak.VerifyTestMain(m)
}

const bound = 2 * time.Minute

func TestTheStoryInTypeScript(t *testing.T) {
	t.Parallel()
	in := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.LongPollTimeout = 5 * time.Second }})
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "openapi", "ts"))
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".bin", "tsc")); err != nil {
		run("npm", "ci", "--no-audit", "--no-fund")
	}
	run(filepath.Join("node_modules", ".bin", "tsc"), "-p", "tsconfig.test.json")
	run("node", filepath.Join("dist", "test", "story.js"), in.URL)
}

// actor is the generated client under one principal.
type actor struct {
	*client.ClientWithResponses
	t *testing.T
}

func as(t *testing.T, url, principal string) actor {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	c, err := client.NewClientWithResponses(url, client.WithHTTPClient(&http.Client{Transport: tr, Timeout: bound}),
		client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Electric-Principal", principal)
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return actor{c, t}
}

// code is a refusal's code.
func code(p *client.Problem) string {
	if p == nil {
		return ""
	}
	return p.Code
}

func ptr[T any](v T) *T { return &v }

type entry struct {
	Type       string `json:"type"`
	WakeID     string `json:"wakeId"`
	Epoch      int64  `json:"epoch"`
	ClaimToken string `json:"claimToken"`
}

// work registers a runner, spawns chat/id for it, sends it a message and claims
// the wake.
func (a actor) work(id, runner string) *client.WakeNotification {
	a.t.Helper()
	ctx := a.t.Context()
	if r, err := a.RegisterRunnerWithResponse(ctx, nil, client.RunnerRegister{ID: runner, Label: runner}); err != nil || r.JSON201 == nil {
		a.t.Fatal(err)
	}
	policy := &client.DispatchPolicy{Targets: []client.DispatchTarget{{Type: "runner", RunnerID: &runner}}}
	if r, err := a.SpawnEntityWithResponse(ctx, "chat", id, nil, client.SpawnRequest{DispatchPolicy: policy}); err != nil || r.JSON201 == nil {
		a.t.Fatalf("%v %s", err, r.Body)
	}
	if _, err := a.SendToEntityWithResponse(ctx, "chat", id, nil, client.SendRequest{Payload: []byte(`1`)}); err != nil {
		a.t.Fatal(err)
	}
	e, _ := a.wake("runners/"+runner+"/wake", "-1")
	c, err := a.ClaimForRunnerWithResponse(ctx, runner, nil, client.RunnerClaim{WakeID: &e.WakeID})
	if err != nil || c.JSON200 == nil {
		a.t.Fatalf("%v %s", err, c.Body)
	}
	return c.JSON200
}

// wake tails a wake stream from after until it has a wake.
func (a actor) wake(path, after string) (entry, string) {
	a.t.Helper()
	for {
		resp, err := a.ReadStream(a.t.Context(), path, &client.ReadStreamParams{Offset: &after, Live: ptr(client.LongPoll)})
		if err != nil {
			a.t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 && resp.StatusCode != 204 {
			a.t.Fatalf("status %d, %v: %s", resp.StatusCode, err, body)
		}
		after = resp.Header.Get("Stream-Next-Offset")
		var list []entry
		if len(body) > 0 {
			if err := json.Unmarshal(body, &list); err != nil {
				a.t.Fatalf("%s: %v", body, err)
			}
		}
		for _, e := range list {
			if e.Type == "wake" {
				return e, after
			}
		}
	}
}

// Two gateways on one database: the phone speaks to one, the laptop to the
// other. The laptop dies with its claim; the second claim has a higher epoch,
// finishes, and what the first one still tries is refused.
func TestTheStoryInGo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	short := func(c *config.Config) { c.LeaseTTL, c.LongPollTimeout = time.Second, 5*time.Second }
	one := servertest.Start(t, servertest.Options{DB: db, Configure: short})
	two := servertest.Start(t, servertest.Options{DB: db, Configure: short})
	ctx := t.Context()
	phone, laptop, stranger := as(t, one.URL, "user:kyle"), as(t, two.URL, "user:kyle"), as(t, two.URL, "user:mallory")
	const typ, id, mac = "go-session", "team/b/8", "go-laptop"

	if r, err := phone.PutEntityTypeWithResponse(ctx, nil, client.EntityTypePut{Name: typ, Description: ptr("A coding session.")}); err != nil || r.JSON201 == nil {
		t.Fatal(err, r)
	}
	if r, err := laptop.RegisterRunnerWithResponse(ctx, nil, client.RunnerRegister{ID: mac, Label: "Kyle's laptop"}); err != nil || r.JSON201 == nil {
		t.Fatal(err, r)
	}
	if r, err := stranger.GetRunnerWithResponse(ctx, mac, nil); err != nil || r.StatusCode() != 403 || code(r.ApplicationProblemJSONDefault) != "RUNNER_FORBIDDEN" {
		t.Fatalf("%v %s", err, r.Body)
	}
	policy := &client.DispatchPolicy{Targets: []client.DispatchTarget{{Type: "runner", RunnerID: ptr(mac)}}}
	spawned, err := phone.SpawnEntityWithResponse(ctx, typ, id, nil, client.SpawnRequest{DispatchPolicy: policy, Args: ptr(json.RawMessage(`{"n":12345678901234567890}`))})
	if err != nil || spawned.JSON201 == nil || spawned.JSON201.URL != "/go-session/team/b/8" || string(*spawned.JSON201.SpawnArgs) != `{"n":12345678901234567890}` {
		t.Fatalf("%v %s", err, spawned.Body)
	}
	main := strings.TrimPrefix(spawned.JSON201.Streams.Main, "/")
	sent, err := phone.SendToEntityWithResponse(ctx, typ, id, nil, client.SendRequest{Payload: json.RawMessage(`"fix the build"`)})
	if err != nil || sent.JSON200 == nil {
		t.Fatalf("%v %s", err, sent.Body)
	}

	first, next := laptop.wake("runners/"+mac+"/wake", "-1")
	claim := func(e entry) *client.WakeNotification {
		t.Helper()
		r, err := laptop.ClaimForRunnerWithResponse(ctx, mac, nil, client.RunnerClaim{WakeID: &e.WakeID, Generation: &e.Epoch})
		if err != nil || r.JSON200 == nil {
			t.Fatalf("claim: %v %s", err, r.Body)
		}
		return r.JSON200
	}
	lost := claim(first)
	append1 := func(token, text string) *client.AppendToStreamResponse {
		t.Helper()
		body := strings.NewReader(`{"headers":{"operation":"insert"},"type":"text","key":"t-` + text + `","value":{"text":"` + text + `"}}`)
		r, err := laptop.AppendToStreamWithBodyWithResponse(ctx, main, &client.AppendToStreamParams{ElectricClaimToken: &token}, "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := append1(*lost.WriteToken, "half"); r.StatusCode() >= 300 {
		t.Fatalf("%s", r.Body)
	}
	// The laptop dies here: no heartbeat. Its lease ends, and the entity is
	// claimable again under the next epoch.
	second, _ := laptop.wake("runners/"+mac+"/wake", next)
	if second.Epoch != first.Epoch+1 || second.WakeID == first.WakeID {
		t.Fatalf("the second wake is %+v", second)
	}
	if r := append1(*lost.WriteToken, "late"); r.StatusCode() != 401 {
		t.Fatalf("the dead holder still writes: %d %s", r.StatusCode(), r.Body)
	}
	got := claim(second)
	confirmed, err := laptop.WakeCallbackWithResponse(ctx, second.WakeID, &client.WakeCallbackParams{ElectricClaimToken: got.ClaimToken}, client.WakeCallback{WakeID: &second.WakeID, Epoch: got.Epoch})
	if err != nil || confirmed.JSON200 == nil || confirmed.JSON200.WriteToken == nil {
		t.Fatalf("%v %s", err, confirmed.Body)
	}
	if r := append1(*confirmed.JSON200.WriteToken, "whole"); r.StatusCode() >= 300 {
		t.Fatalf("%s", r.Body)
	}
	if r, err := laptop.WakeCallbackWithResponse(ctx, first.WakeID, &client.WakeCallbackParams{ElectricClaimToken: lost.ClaimToken}, client.WakeCallback{Epoch: lost.Epoch}); err != nil || r.StatusCode() != 409 || code(r.ApplicationProblemJSONDefault) != "FENCED" {
		t.Fatalf("%v %s", err, r.Body)
	}
	done, err := laptop.WakeCallbackWithResponse(ctx, second.WakeID, &client.WakeCallbackParams{ElectricClaimToken: got.ClaimToken},
		client.WakeCallback{Epoch: got.Epoch, Done: ptr(true), Acks: &[]client.AckBody{{Path: &main, Offset: sent.JSON200.Offset}}})
	if err != nil || done.JSON200 == nil || *done.JSON200.NextWake {
		t.Fatalf("%v %s", err, done.Body)
	}

	read, err := phone.ReadStreamWithResponse(ctx, main, &client.ReadStreamParams{Offset: ptr("-1")})
	if err != nil || read.JSON200 == nil {
		t.Fatal(err)
	}
	var rows []struct{ Type, Key string }
	if err := json.Unmarshal(read.Body, &rows); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	if want := []string{"entity-created", sent.JSON200.Key, "t-half", "t-whole"}; strings.Join(keys, " ") != strings.Join(want, " ") {
		t.Errorf("the stream holds %v, want %v", keys, want)
	}
	claims, err := phone.ListEntityClaimsWithResponse(ctx, typ, id, nil)
	if err != nil || claims.JSON200 == nil || len(*claims.JSON200) != 2 || (*claims.JSON200)[0].Status != "released" || (*claims.JSON200)[1].Status != "expired" {
		t.Fatalf("%v %s", err, claims.Body)
	}
	if d, err := phone.GetEntityDisplayWithResponse(ctx, typ, id, nil); err != nil || d.JSON200 == nil || d.JSON200.Display != "Waiting for input" {
		t.Fatalf("%v %s", err, d.Body)
	}
}
