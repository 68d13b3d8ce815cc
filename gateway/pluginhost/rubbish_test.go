package pluginhost

import (
	"strconv"
	"testing"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
)

func pidText(pid int) string { return strconv.Itoa(pid) }

// answers has a result for each wake, its place as the status code.
func answers(ids ...string) *transportv1.DeliverBatchResponse {
	a := &transportv1.DeliverBatchResponse{}
	for n, id := range ids {
		a.Results = append(a.Results, &transportv1.Result{WakeId: id, Outcome: transportv1.Outcome_OUTCOME_DONE, StatusCode: int32(n)})
	}
	return a
}

// F19: what a plugin answers may be anything.
func TestRubbishCostsTheCallOnly(t *testing.T) {
	t.Parallel()
	spec := ownSpec("liar")
	spec.Memory = 8 << 30 // the plugin's own trouble with what it answers is not looked at here
	h := newHost(t, Set{Transports: map[string]Spec{"fixture": spec}})
	tr := h.transports["fixture"]
	up(t, h)
	for _, id := range []string{"none", "another", "no outcome", "a new outcome", "twice", "huge"} {
		r := send(t, tr, id, "x", 30*time.Second)
		if r.Outcome != contract.Retry || r.StatusCode != 0 {
			t.Errorf("%s: %+v", id, r)
		}
	}
	r := send(t, tr, "wild numbers", "x", 10*time.Second)
	if r.Outcome != contract.Retry || r.RetryAfter != maxRetryAfter || r.StatusCode != 0 || len(r.Error) > 400 {
		t.Errorf("wild numbers: %+v", r)
	}
	if r := send(t, tr, "fine", "x", 10*time.Second); r.Outcome != contract.Done {
		t.Errorf("after all that: %+v", r)
	}
	if i := info(h); i.Starts != 1 {
		t.Errorf("it was restarted %d times", i.Starts-1)
	}
}
