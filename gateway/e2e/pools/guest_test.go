package pools

import (
	"context"
	"testing"

	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/openapi/runner"
)

// TestAGuestWorksInAPool: somebody else's runner, which was invited, works an
// entity as its owner's would: it reads what there is to do while it holds the
// claim, writes what it has done, and has no more to see afterwards, nor had it before.
func TestAGuestWorksInAPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("coding", nil)
	ada := r.as("user:ada")
	ada.runner("adas")
	r.do(200, "PUT", "/_electric/worker-pools/coding/members/adas", object{})
	ada.do(200, "PUT", "/_electric/worker-pools/coding/members/adas", object{})
	ada.alive("adas", soon.Bound)

	const main = "/task/1/main?offset=-1"
	r.spawn("1", policy(toPool("coding", nil)))
	w := r.waits("1", "worker-pool")
	ada.Refused(401, "UNAUTHORIZED", "GET", main, nil)
	g := ada.claims("adas", w.WakeID)
	ada.do(200, "GET", main, nil)
	r.as("user:eve").Refused(401, "UNAUTHORIZED", "GET", main, nil)
	if a := r.callback(g, object{"done": true, "acks": []object{{"path": g.Streams[0].Path, "offset": g.Streams[0].Offset}}}); a.Status != 200 {
		t.Fatalf("%s", a.Raw)
	}
	r.Eventually("the claim has ended for its reader too", func() bool { // what was allowed is remembered for two seconds
		return ada.Do(t.Context(), "GET", main, nil, nil).Status == 401
	})

	got := make(chan []string, 1)
	guest := ada.run("adas", 0, nil, func(ctx context.Context, c *runner.Claim) error {
		read, err := unread(ctx, c)
		got <- read
		return err
	})
	r.send("1", "again")
	if e := guest.until(runner.Done); e.Epoch != 2 {
		t.Errorf("%+v", e)
	}
	if read := <-got; len(read) != 1 || read[0] != "again" {
		t.Errorf("%q", read)
	}
}
