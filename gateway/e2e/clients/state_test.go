package clients

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/openapi/client"
)

// What a holder appends is checked against its type's state schemas, at every
// gateway, and a batch with one bad event leaves nothing behind.
func TestAHoldersEventsAreChecked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	one, two := servertest.Start(t, servertest.Options{DB: db}), servertest.Start(t, servertest.Options{DB: db})
	ctx := t.Context()
	kyle, there := as(t, one.URL, "user:kyle"), as(t, two.URL, "user:kyle")
	schemas := map[string]json.RawMessage{"note": json.RawMessage(`{"type":"object","required":["text"]}`)}
	if r, err := kyle.PutEntityTypeWithResponse(ctx, nil, client.EntityTypePut{Name: "chat", Description: ptr(""), StateSchemas: &schemas}); err != nil || r.JSON201 == nil {
		t.Fatalf("%v %s", err, r.Body)
	}
	if r, err := kyle.RegisterRunnerWithResponse(ctx, nil, client.RunnerRegister{ID: "mac", Label: "Mac"}); err != nil || r.JSON201 == nil {
		t.Fatal(err)
	}
	policy := &client.DispatchPolicy{Targets: []client.DispatchTarget{{Type: "runner", RunnerID: ptr("mac")}}}
	if r, err := kyle.SpawnEntityWithResponse(ctx, "chat", "1", nil, client.SpawnRequest{DispatchPolicy: policy}); err != nil || r.JSON201 == nil {
		t.Fatalf("%v %s", err, r.Body)
	}
	if _, err := kyle.SendToEntityWithResponse(ctx, "chat", "1", nil, client.SendRequest{Payload: []byte(`1`)}); err != nil {
		t.Fatal(err)
	}
	e, _ := kyle.wake("runners/mac/wake", "-1")
	c, err := kyle.ClaimForRunnerWithResponse(ctx, "mac", nil, client.RunnerClaim{WakeID: &e.WakeID})
	if err != nil || c.JSON200 == nil {
		t.Fatalf("%v %s", err, c.Body)
	}
	const (
		good    = `{"type":"note","key":"n","value":{"text":"kept"},"headers":{"operation":"insert"}}`
		bad     = `{"type":"note","key":"n","value":{"secret":"dropped"},"headers":{"operation":"insert"}}`
		unknown = `{"type":"nothing","key":"dropped","value":1,"headers":{"operation":"insert"}}`
		text    = `{"type":"text","key":"t","value":{"of":"the protocol's own"},"headers":{"operation":"insert"}}`
		gone    = `{"type":"note","key":"n","headers":{"operation":"delete"}}`
	)
	for _, tc := range []struct {
		token, body string
		status      int
		code        string
	}{
		{*c.JSON200.WriteToken, good, 204, ""},
		{*c.JSON200.WriteToken, "[" + good + "," + text + "," + gone + "]", 204, ""},
		{*c.JSON200.WriteToken, unknown, 422, "UNKNOWN_EVENT_TYPE"},
		{*c.JSON200.WriteToken, bad, 422, "SCHEMA_VALIDATION_FAILED"},
		{*c.JSON200.WriteToken, "[" + good + "," + bad + "]", 422, "SCHEMA_VALIDATION_FAILED"},
		{"rouse_wt_junk", bad, 401, "UNAUTHORIZED"},
		{*c.JSON200.ClaimToken, bad, 401, "UNAUTHORIZED"},
	} {
		for name, a := range map[string]actor{"one": kyle, "two": there} {
			r, err := a.AppendToStreamWithBodyWithResponse(ctx, "chat/1/main", &client.AppendToStreamParams{ElectricClaimToken: &tc.token}, "application/json", strings.NewReader(tc.body))
			if err != nil || r.StatusCode() != tc.status || code(r.ApplicationProblemJSONDefault) != tc.code || strings.Contains(string(r.Body), "dropped") {
				t.Errorf("gateway %s: %s: %v %d %s", name, tc.body, err, r.StatusCode(), r.Body)
			}
		}
	}
	r, err := kyle.ReadStreamWithResponse(ctx, "chat/1/main", nil)
	if err != nil || strings.Count(string(r.Body), "kept") != 4 || strings.Contains(string(r.Body), "dropped") {
		t.Errorf("%v %s", err, r.Body)
	}
	// A claim that is over is told so before anything is said of schemas.
	d, err := kyle.WakeCallbackWithResponse(ctx, e.WakeID, &client.WakeCallbackParams{ElectricClaimToken: c.JSON200.ClaimToken},
		client.WakeCallback{Epoch: c.JSON200.Epoch, Done: ptr(true)})
	if err != nil || d.JSON200 == nil {
		t.Fatalf("%v %s", err, d.Body)
	}
	for _, a := range []actor{kyle, there} {
		r, err := a.AppendToStreamWithBodyWithResponse(ctx, "chat/1/main", &client.AppendToStreamParams{ElectricClaimToken: c.JSON200.WriteToken}, "application/json", strings.NewReader(bad))
		if err != nil || r.StatusCode() != 401 {
			t.Errorf("after the release: %v %d %s", err, r.StatusCode(), r.Body)
		}
	}
}
