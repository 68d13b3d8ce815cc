package observation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A change that another gateway made is in a list of members long before the
// next look at everything, which comes every three seconds.
func TestAListOfMembersFollowsWhatOtherGatewaysChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := newRigOn(t, r.db)
	r.team()
	a := r.call(200, r.kyle, "POST", "/_electric/observations/entities/ensure-stream", `{"tags":{"team":"red"}}`)
	stream := strings.Split(strings.Split(string(a.Raw), `"streamUrl":"`)[1], `"`)[0]
	var took []time.Duration
	for i := range 7 {
		began := time.Now()
		other.spawn(fmt.Sprint(i), `,"tags":{"team":"red"}`)
		r.eventually("the member", func() bool { return len(r.rows(stream, "members")) == i+1 })
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("it takes %v", took)
	if took[len(took)/2] > time.Second {
		t.Errorf("half of the changes take more than %v", took[len(took)/2])
	}
}
