package auth

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/plugins/contract"
)

// changing is a hook and an authorizer whose settings change.
type changing struct {
	*remembered
	generation atomic.Uint64
	rules      atomic.Int32
}

func (c *changing) Generation() uint64 { return c.generation.Load() }

func (c *changing) Authorize(context.Context, contract.Question) (contract.Ruling, error) {
	c.rules.Add(1)
	return contract.Ruling{Verdict: contract.Allow, CacheFor: time.Minute}, nil
}

// What a hook or an authorizer has said ends with the settings by which it said so.
func TestAnswersEndWithTheSettingsTheyAreOf(t *testing.T) {
	t.Parallel()
	h := &changing{remembered: &remembered{hold: time.Minute}}
	c := New(Config{Hooks: []contract.AuthHook{WithoutSystem(h)}, Authorizers: []contract.Authorizer{h}})
	kyle := []string{"Authorization", "Bearer user:kyle"}
	for range 3 {
		if _, err := c.Authenticate(request(kyle...)); err != nil {
			t.Fatal(err)
		}
	}
	if asked, ruled := h.asked.Load(), h.rules.Load(); asked != 1 || ruled != 1 {
		t.Fatalf("asked %d times, ruled %d times", asked, ruled)
	}
	h.deny.Store(true)
	h.generation.Add(1)
	if _, err := c.Authenticate(request(kyle...)); problem.CodeOf(err) != problem.Unauthenticated {
		t.Errorf("after the change: %v", err)
	}
	h.deny.Store(false)
	h.generation.Add(1)
	if _, err := c.Authenticate(request(kyle...)); err != nil || h.asked.Load() != 3 || h.rules.Load() != 2 {
		t.Errorf("%v, asked %d times, ruled %d times", err, h.asked.Load(), h.rules.Load())
	}
}

// Who asks after a change does not wait for an answer that was asked for before it.
func TestAnAnswerUnderWayIsNotShared(t *testing.T) {
	t.Parallel()
	h := &changing{remembered: &remembered{hold: time.Minute}}
	c := New(Config{Hooks: []contract.AuthHook{h}})
	if _, err := c.Authenticate(request("Authorization", "Bearer user:first")); err != nil {
		t.Fatal(err)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	h.slow = func() {
		if first.CompareAndSwap(false, true) {
			close(begun)
			<-goOn
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Authenticate(request("Authorization", "Bearer user:kyle"))
		done <- err
	}()
	<-begun
	h.generation.Add(1)
	if _, err := c.Authenticate(request("Authorization", "Bearer user:kyle")); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAHookNamesSystemPrincipalsOnlyWhereItMay(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"system:framework", "system:other"} {
		h := &remembered{names: []string{"Authorization"}, hold: time.Minute}
		bounded := New(Config{Hooks: []contract.AuthHook{WithoutSystem(some{h})}})
		for range 2 { // asked, and remembered
			if p, err := bounded.Authenticate(request("Authorization", "Bearer "+name)); problem.CodeOf(err) != problem.Unauthenticated {
				t.Errorf("it may be %v: %v", p, err)
			}
		}
		if p, err := New(Config{Hooks: []contract.AuthHook{h}}).Authenticate(request("Authorization", "Bearer "+name)); err != nil || p.Key() != name {
			t.Errorf("%v %v", p, err)
		}
		if p, err := bounded.Authenticate(request("Authorization", "Bearer user:kyle")); err != nil || p.Key() != "user:kyle" {
			t.Errorf("%v %v", p, err)
		}
	}
}

// Rules that change without the settings: an answer by the new ones ends what is
// remembered of the old, and one that was asked for before does not come back.
func TestAnswersEndWithTheRulesTheyAreBy(t *testing.T) {
	t.Parallel()
	var revision atomic.Value
	revision.Store("1")
	var asked atomic.Int32
	hold := map[string]chan struct{}{"slow": make(chan struct{}), "begun": make(chan struct{})}
	c := New(Config{Authorizers: []contract.Authorizer{judgement(func(q contract.Question) (contract.Ruling, error) {
		asked.Add(1)
		r := contract.Ruling{Verdict: contract.Deny, CacheFor: time.Minute, Revision: revision.Load().(string)}
		if q.Verb == "slow" && r.Revision == "1" {
			close(hold["begun"])
			<-hold["slow"]
		}
		if r.Revision == "2" {
			r.Verdict = contract.Allow
		}
		return r, nil
	})}})
	may := func(verb string) bool {
		t.Helper()
		ok, err := c.May(t.Context(), Principal{Kind: User, ID: "kyle"}, verb, contract.Resource{Kind: "entity", ID: "/a/b"}, true)
		if err != nil {
			t.Error(err)
		}
		return ok
	}
	for range 2 {
		if may("read") || may("write") {
			t.Error("it is allowed")
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	late := make(chan bool)
	go func() { late <- may("slow") }()
	<-hold["begun"]
	revision.Store("2")
	if may("read") {
		t.Error("what is remembered counts until something else is asked")
	}
	if !may("signal") || !may("read") || !may("write") {
		t.Error("what was remembered still counts")
	}
	close(hold["slow"])
	if <-late {
		t.Error("the old rules allowed it")
	}
	if !may("read") || !may("slow") {
		t.Error("the old rules came back")
	}
}
