package dispatch

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
)

// A transport is handed what its target was written as; only a subscription's
// lies within what the gateway keeps beside it.
func TestWhatATransportIsHanded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ consumer, stored, handed, callback string }{
		"a subscription's": {"s_1", `{"subscription_id":"jobs","mount":"/v1/stream","target":{"type":"webhook","mount":7,"target":{}}}`, `{"type":"webhook","mount":7,"target":{}}`,
			"https://rouse.example/v1/stream/default/jobs"},
		"a webhook subscription's": {"s_1", `{"type":"webhook","subscription_id":"jobs","mount":""}`, `{"type":"webhook","subscription_id":"jobs","mount":""}`,
			"https://rouse.example/default/jobs"},
		"an entity's":                           {"e_1", `{"type":"webhook","target":{"type":"exec"}}`, `{"type":"webhook","target":{"type":"exec"}}`, "https://rouse.example/default/w1"},
		"an entity's with members of our names": {"e_1", `{"mount":7,"subscription_id":[],"type":"webhook"}`, `{"mount":7,"subscription_id":[],"type":"webhook"}`, "https://rouse.example/default/w1"},
		"a subscription's that cannot be read":  {"s_1", `{"subscription_id":"jobs","target":{"type":7}}`, "", ""},
		"a subscription's of another gateway":   {"s_1", `{"subscription_id":"jobs","target":{"type":"pigeon"}}`, "", ""},
		"an entity's of nobody":                 {"e_1", `{"target":{"type":"webhook"}}`, "", ""},
	} {
		var handed, notification string
		w := dueWake("w1", time.Minute)
		w.Attempt, w.ConsumerName, w.Target = 1, c.consumer, json.RawMessage(c.stored)
		d := newDelivery(&fakeDB{}, fakeNotifier{}, []contract.Transport{fakeTransport{func(_ context.Context, x contract.Delivery) contract.Result {
			handed, notification = string(x.Target), string(x.Notification)
			return contract.Result{Outcome: contract.Accepted}
		}}}, nil, nil)
		r := d.deliver(t.Context(), w)
		if handed != c.handed || (r.Outcome == contract.Accepted) != (c.handed != "") || !strings.Contains(notification, c.callback) {
			t.Errorf("%s: %q, %+v, %s", name, handed, r, notification)
		}
	}
}
