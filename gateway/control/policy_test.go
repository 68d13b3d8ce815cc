package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/transports/webhook"
)

// R15: lists of targets with their conditions, what they become, and where what
// is wrong with them is said to be.
func TestOrderedTargets(t *testing.T) {
	t.Parallel()
	c := &Control{cfg: Config{Transports: Carriers{webhook.New(webhook.Config{})}}}
	const (
		mac  = `{"runnerId":"mac","type":"runner"}`
		pool = `{"type":"worker-pool","workerPoolId":"coding"}`
		hook = `{"type":"webhook","url":"https://x.example"}`
	)
	with := func(target, when string) string { return strings.TrimSuffix(target, "}") + `,"when":` + when + `}` }
	list := func(targets ...string) string { return `{"targets":[` + strings.Join(targets, ",") + `]}` }
	nine := make([]string, 9)
	for i := range nine {
		nine[i] = fmt.Sprintf(`{"runnerId":"r%d","type":"runner"}`, i)
	}
	for _, tc := range []struct{ policy, stored, place string }{
		{list(mac, pool, hook), "", ""},
		{list(hook, mac, pool), "", ""},
		{list(nine[:8]...), "", ""},
		{list(nine...), "", "/targets"},
		{list(pool), "", ""},
		{list(`{"type":"worker-pool","worker_pool_id":"coding"}`), list(pool), ""},
		{list(`{"type":"worker-pool"}`), "", "/targets/0/workerPoolId"},
		{list(`{"type":"worker-pool","workerPoolId":".."}`), "", "/targets/0/workerPoolId"},
		{list(mac, `{"type":"worker-pool","workerPoolId":"a/b"}`), "", "/targets/1/workerPoolId"},
		{list(`{"type":"worker-pool","workerPoolId":"x","worker_pool_id":"x"}`), "", "/targets/0/worker_pool_id"},
		{list(`{"type":"worker-pool","workerPoolId":"x","runnerId":"mac"}`), "", "/targets/0/runnerId"},
		{list(mac, pool, mac), "", "/targets/2"},
		{list(mac, with(mac, `{"full":true}`)), "", "/targets/1"},
		{list(mac, `{"type":"pigeon"}`), "", "/targets/1"},

		{list(with(mac, `{"offline":true}`), pool), "", ""},
		{list(with(mac, `{"offline":true,"full":false,"failed":true,"unclaimed_after_ms":15000}`), pool), list(`{"runnerId":"mac","type":"runner","when":{"offline":true,"failed":true,"unclaimedAfterMs":15000}}`, pool), ""},
		{list(with(pool, `{"full":true,"unclaimedAfterMs":1}`), with(hook, `{"failed":true,"unclaimedAfterMs":2592000000}`)),
			list(`{"type":"worker-pool","when":{"full":true,"unclaimedAfterMs":1},"workerPoolId":"coding"}`, with(hook, `{"failed":true,"unclaimedAfterMs":2592000000}`)), ""},
		{list(with(mac, `null`), pool), list(mac, pool), ""},
		{list(mac, with(hook, `{}`)), list(mac, hook), ""},
		{list(with(mac, `{}`), pool), "", "/targets/0/when"},
		{list(with(mac, `{"offline":false}`), pool), "", "/targets/0/when"},
		{list(with(mac, `[]`), pool), "", "/targets/0/when"},
		{list(with(mac, `{"offline":1}`), pool), "", "/targets/0/when/offline"},
		{list(with(mac, `{"failed":null}`), pool), "", "/targets/0/when/failed"},
		{list(with(hook, `{"offline":true}`), pool), "", "/targets/0/when/offline"},
		{list(with(hook, `{"full":true,"failed":true}`), pool), "", "/targets/0/when/full"},
		{list(with(mac, `{"busy":true}`), pool), "", "/targets/0/when/busy"},
		{list(with(mac, `{"unclaimedAfterMs":0}`), pool), "", "/targets/0/when/unclaimedAfterMs"},
		{list(with(mac, `{"unclaimedAfterMs":1.5}`), pool), "", "/targets/0/when/unclaimedAfterMs"},
		{list(with(mac, `{"unclaimedAfterMs":"15"}`), pool), "", "/targets/0/when/unclaimedAfterMs"},
		{list(with(mac, `{"unclaimedAfterMs":2592000001}`), pool), "", "/targets/0/when/unclaimedAfterMs"},
		{list(with(mac, `{"unclaimedAfterMs":1,"unclaimed_after_ms":1}`), pool), "", "/targets/0/when/unclaimed_after_ms"},

		{`{"targets":[` + mac + `],"giveUp":{"afterMs":86400000,"attempts":20}}`, "", ""},
		{`{"targets":[` + mac + `],"give_up":{"after_ms":1}}`, `{"targets":[` + mac + `],"giveUp":{"afterMs":1}}`, ""},
		{`{"targets":[` + mac + `],"giveUp":null}`, list(mac), ""},
		{`{"targets":[` + mac + `],"giveUp":{}}`, "", "/giveUp"},
		{`{"targets":[` + mac + `],"giveUp":7}`, "", "/giveUp"},
		{`{"targets":[` + mac + `],"giveUp":{"attempts":0}}`, "", "/giveUp/attempts"},
		{`{"targets":[` + mac + `],"giveUp":{"attempts":1001}}`, "", "/giveUp/attempts"},
		{`{"targets":[` + mac + `],"giveUp":{"afterMs":-1}}`, "", "/giveUp/afterMs"},
		{`{"targets":[` + mac + `],"giveUp":{"afterMs":1e30}}`, "", "/giveUp/afterMs"},
		{`{"targets":[` + mac + `],"giveUp":{"never":true}}`, "", "/giveUp/never"},
		{`{"targets":[` + mac + `],"giveUp":{"attempts":1},"give_up":{"attempts":1}}`, "", "/give_up"},
	} {
		got, err := c.checkPolicy(t.Context(), "/p", DispatchPolicy(tc.policy))
		if tc.place == "" {
			if tc.stored == "" {
				tc.stored = tc.policy
			}
			if err != nil || string(got) != tc.stored {
				t.Errorf("%s is stored as %s: %v", tc.policy, got, err)
			}
			again, err := c.checkPolicy(t.Context(), "/p", DispatchPolicy(got))
			if err != nil || string(again) != string(got) {
				t.Errorf("%s does not stay as it is: %s %v", got, again, err)
			}
			continue
		}
		e := problem.From(err)
		if err == nil || e.Status() != 400 || len(e.Details) != 1 || e.Details[0].Path != "/p"+tc.place {
			t.Errorf("%s: %v %+v, want a 400 at %s", tc.policy, err, e.Details, tc.place)
		}
	}
}

// No policy brings a panic, and what passes passes again as it is.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{`{"targets":[{"type":"runner","runnerId":"a","when":{"offline":true}},{"type":"worker-pool","workerPoolId":"b"}],"giveUp":{"attempts":3}}`,
		`{"targets":[null]}`, `{"targets":[{"type":"webhook","url":"https://x.example","when":{}}]}`, `{"targets":[{}],"giveUp":[]}`} {
		f.Add([]byte(s))
	}
	c := &Control{cfg: Config{Transports: Carriers{webhook.New(webhook.Config{})}}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if checkJSON(raw) != nil {
			return
		}
		got, err := c.checkPolicy(t.Context(), "", DispatchPolicy(raw))
		if err != nil {
			if s := problem.From(err).Status(); s != 400 {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if got == nil {
			return
		}
		again, err := c.checkPolicy(t.Context(), "", DispatchPolicy(got))
		if err != nil || !json.Valid(got) || string(again) != string(got) {
			t.Fatalf("%q became %q and then %q: %v", raw, got, again, err)
		}
	})
}
