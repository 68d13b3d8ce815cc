package clients

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/openapi/client"
)

// bearer is the generated client with a user's token, or with none.
func bearer(t *testing.T, url, token string) actor {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	c, err := client.NewClientWithResponses(url, client.WithHTTPClient(&http.Client{Transport: tr, Timeout: bound}),
		client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return actor{c, t}
}

// R24, R26: a gateway as `serve` runs it, with two people of a token file.
func TestServeWithATokenFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	people := map[string]string{"user:kyle": devtoken.NewToken(), "user:mallory": devtoken.NewToken(), "system:framework": devtoken.NewToken()}
	for who, token := range people {
		if err := devtoken.Add(file, devtoken.Entry{Principal: who, SHA256: devtoken.Hash(token)}); err != nil {
			t.Fatal(err)
		}
	}
	in := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) {
		c.Insecure, c.TokensFile, c.TypeSpawn = false, file, "registrar"
	}})
	ctx := t.Context()
	kyle, mallory, system := bearer(t, in.URL, people["user:kyle"]), bearer(t, in.URL, people["user:mallory"]), bearer(t, in.URL, people["system:framework"])
	nobody, wrong := bearer(t, in.URL, ""), bearer(t, in.URL, "rouse_pat_wrong")

	if r, err := nobody.GetHealthWithResponse(ctx); err != nil || r.JSON200 == nil {
		t.Fatal(err)
	}
	for name, a := range map[string]actor{"UNAUTHORIZED": nobody, "UNAUTHENTICATED": wrong} {
		if r, err := a.ListEntitiesWithResponse(ctx, nil); err != nil || r.StatusCode() != 401 || code(r.ApplicationProblemJSONDefault) != name {
			t.Errorf("%s: %v %s", name, err, r.Body)
		}
	}
	if r, err := kyle.PutEntityTypeWithResponse(ctx, nil, client.EntityTypePut{Name: "chat", Description: ptr("")}); err != nil || r.JSON201 == nil {
		t.Fatalf("%v %s", err, r.Body)
	}
	var rows int
	if err := in.DB.Conn(t).QueryRow(ctx, `select count(*) from rouse.users where id = 'kyle' and auth_provider = 'devtoken'`).Scan(&rows); err != nil || rows != 1 {
		t.Fatalf("%d users rows, %v", rows, err)
	}
	// Only the registrar spawns its type, in serve.
	if r, err := mallory.SpawnEntityWithResponse(ctx, "chat", "1", nil, client.SpawnRequest{}); err != nil || r.StatusCode() != 401 {
		t.Errorf("%v %s", err, r.Body)
	}
	if r, err := kyle.SpawnEntityWithResponse(ctx, "chat", "1", nil, client.SpawnRequest{}); err != nil || r.JSON201 == nil {
		t.Fatalf("%v %s", err, r.Body)
	}
	if r, err := kyle.RegisterRunnerWithResponse(ctx, nil, client.RunnerRegister{ID: "mac", Label: "Mac"}); err != nil || r.JSON201 == nil {
		t.Fatalf("%v %s", err, r.Body)
	}

	// What belongs to kyle is closed to mallory: streams and control alike.
	reads := func(a actor, path string) int {
		t.Helper()
		r, err := a.ReadStreamWithResponse(ctx, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode()
	}
	for path, refused := range map[string]int{"chat/1/main": 401, "runners/mac/wake": 403} {
		if k, s, m, n := reads(kyle, path), reads(system, path), reads(mallory, path), reads(nobody, path); k != 200 || s != 200 || m != refused || n != 401 {
			t.Errorf("%s: owner %d, system %d, another %d, nobody %d", path, k, s, m, n)
		}
		for _, a := range []actor{mallory, kyle} {
			if r, err := a.DeleteStreamWithResponse(ctx, path, nil); err != nil || r.StatusCode() != 403 {
				t.Errorf("delete of %s: %v %d", path, err, r.StatusCode())
			}
			if r, err := a.CreateStreamWithBodyWithResponse(ctx, path, nil, "application/json", strings.NewReader("")); err != nil || r.StatusCode() != 403 {
				t.Errorf("put of %s: %v %d", path, err, r.StatusCode())
			}
		}
	}
	if r, err := mallory.KillEntityWithResponse(ctx, "chat", "1", nil); err != nil || r.StatusCode() != 401 {
		t.Errorf("%v %s", err, r.Body)
	}
	if r, err := mallory.ListEntitiesWithResponse(ctx, nil); err != nil || r.JSON200 == nil || len(*r.JSON200) != 0 {
		t.Errorf("%v %s", err, r.Body)
	}
	if r, err := system.GetEntityWithResponse(ctx, "chat", "1", nil); err != nil || r.JSON200 == nil {
		t.Errorf("%v %s", err, r.Body)
	}
}

// R36: the error stream is made by the holder's first write, is nobody else's,
// and a failed run shows.
func TestErrorStream(t *testing.T) {
	t.Parallel()
	in := servertest.Start(t, servertest.Options{})
	ctx := t.Context()
	kyle, mallory := as(t, in.URL, "user:kyle"), as(t, in.URL, "user:mallory")
	if r, err := kyle.PutEntityTypeWithResponse(ctx, nil, client.EntityTypePut{Name: "chat", Description: ptr("")}); err != nil || r.JSON201 == nil {
		t.Fatal(err)
	}
	held := kyle.work("1", "mac")
	// Its name cannot be taken before it exists.
	if r, err := mallory.CreateStreamWithBodyWithResponse(ctx, "chat/1/error", nil, "text/plain", strings.NewReader("mine")); err != nil || r.StatusCode() != 403 || code(r.ApplicationProblemJSONDefault) != "PATH_RESERVED" {
		t.Errorf("%v %d %s", err, r.StatusCode(), r.Body)
	}
	body := `{"headers":{"operation":"insert"},"type":"error","key":"e-1","value":{"message":"exit 1"}}`
	write := func(a actor, token string) int {
		t.Helper()
		r, err := a.AppendToStreamWithBodyWithResponse(ctx, "chat/1/error", &client.AppendToStreamParams{ElectricClaimToken: &token}, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode()
	}
	// It is made by a holder's write, not by junk.
	if st := write(mallory, "rouse_wt_junk"); st != 404 {
		t.Errorf("junk before the first write: %d", st)
	}
	// Nor by the holder of another entity, whose token is as good as any there.
	foreign := mallory.work("2", "pc")
	errorStreams := func() (n int) {
		t.Helper()
		if err := in.DB.Conn(t).QueryRow(ctx, `select count(*) from rouse.streams where kind = 'error'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if st, n := write(mallory, *foreign.WriteToken), errorStreams(); st != 401 || n != 0 {
		t.Errorf("a foreign holder before the first write: %d, and %d error streams are there", st, n)
	}
	for range 2 {
		if st := write(kyle, *held.WriteToken); st >= 300 {
			t.Fatalf("the holder: %d", st)
		}
	}
	if st := write(mallory, "rouse_wt_junk"); st != 401 {
		t.Errorf("junk: %d", st)
	}
	if st, n := write(mallory, *foreign.WriteToken), errorStreams(); st != 401 || n != 1 {
		t.Errorf("a foreign holder: %d, and %d error streams are there", st, n)
	}
	if r, err := kyle.ReadStreamWithResponse(ctx, "chat/1/error", nil); err != nil || strings.Count(string(r.Body), "exit 1") != 2 {
		t.Errorf("%v %s", err, r.Body)
	}
	if r, err := mallory.ReadStreamWithResponse(ctx, "chat/1/error", nil); err != nil || r.StatusCode() != 401 {
		t.Errorf("%v %d", err, r.StatusCode())
	}
	tail := (*held.Streams)[0].Offset
	d, err := kyle.WakeCallbackWithResponse(ctx, *held.WakeID, &client.WakeCallbackParams{ElectricClaimToken: held.ClaimToken},
		client.WakeCallback{Epoch: held.Epoch, Done: ptr(true), Error: ptr("exit 1"), Acks: &[]client.AckBody{{Path: ptr("/chat/1/main"), Offset: tail}}})
	if err != nil || d.JSON200 == nil || *d.JSON200.NextWake {
		t.Fatalf("%v %s", err, d.Body)
	}
	if r, err := kyle.GetEntityDisplayWithResponse(ctx, "chat", "1", nil); err != nil || r.JSON200 == nil || r.JSON200.Display != "Run failed — check logs" {
		t.Errorf("%v %s", err, r.Body)
	}
}
