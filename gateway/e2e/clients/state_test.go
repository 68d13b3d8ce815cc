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
	c := kyle.work("1", "mac")
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
		{*c.WriteToken, good, 204, ""},
		{*c.WriteToken, "[" + good + "," + text + "," + gone + "]", 204, ""},
		{*c.WriteToken, unknown, 422, "UNKNOWN_EVENT_TYPE"},
		{*c.WriteToken, bad, 422, "SCHEMA_VALIDATION_FAILED"},
		{*c.WriteToken, "[" + good + "," + bad + "]", 422, "SCHEMA_VALIDATION_FAILED"},
		{"rouse_wt_junk", bad, 401, "UNAUTHORIZED"},
		{*c.ClaimToken, bad, 401, "UNAUTHORIZED"},
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
	d, err := kyle.WakeCallbackWithResponse(ctx, *c.WakeID, &client.WakeCallbackParams{ElectricClaimToken: c.ClaimToken},
		client.WakeCallback{Epoch: c.Epoch, Done: ptr(true)})
	if err != nil || d.JSON200 == nil {
		t.Fatalf("%v %s", err, d.Body)
	}
	for _, a := range []actor{kyle, there} {
		r, err := a.AppendToStreamWithBodyWithResponse(ctx, "chat/1/main", &client.AppendToStreamParams{ElectricClaimToken: c.WriteToken}, "application/json", strings.NewReader(bad))
		if err != nil || r.StatusCode() != 401 {
			t.Errorf("after the release: %v %d %s", err, r.StatusCode(), r.Body)
		}
	}
}
