package pools

import (
	"testing"

	"github.com/rouse-run/rouse/gateway/e2e/world"
)

// TestWorkGoesToNoStrangersPool: a pool's id stays its owner's when the pool is
// gone. Policies still name it, and who took it would be given their work; nor
// does a join token of the old pool let anybody into a new one.
func TestWorkGoesToNoStrangersPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("coding", nil, "laptop")
	r.do(201, "PUT", "/_electric/entities/task/idle", object{"dispatch_policy": policy(toPool("coding", nil))})
	r.spawn("waiting", policy(toPool("coding", nil)))
	r.waits("waiting", "worker-pool")
	token := world.Into[struct {
		JoinToken string `json:"join_token"`
	}](t, r.do(201, "POST", "/_electric/worker-pools/coding/join-tokens", object{})).JoinToken

	r.do(204, "DELETE", "/_electric/worker-pools/coding", nil)
	bob := r.as("user:bob")
	bob.runner("bobs")
	bob.Refused(403, "POOL_FORBIDDEN", "PUT", "/_electric/worker-pools/coding", object{})
	r.Eventually("the work is parked", func() bool {
		return r.display("waiting") == "Parked — its target is gone; redrive it"
	})

	// Kyle has it back, with the work that was for it, and without whom he had let in.
	r.do(201, "PUT", "/_electric/worker-pools/coding", object{})
	bob.Refused(401, "JOIN_TOKEN_INVALID", "PUT", "/_electric/worker-pools/coding/members/bobs", object{"join_token": token})
	r.do(200, "PUT", "/_electric/worker-pools/coding/members/laptop", object{})
	r.do(200, "POST", "/_electric/entities/task/waiting/redrive", nil)
	r.send("idle", "hello")
	for _, id := range []string{"waiting", "idle"} {
		r.claims("laptop", r.waits(id, "worker-pool").WakeID)
	}
}
