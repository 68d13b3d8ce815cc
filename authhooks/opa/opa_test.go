package opa

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/plugins/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, o Options) *Authorizer {
	t.Helper()
	a, err := New(context.WithoutCancel(t.Context()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func question(verb, kind, id string, builtIn bool) contract.Question {
	return contract.Question{Principal: contract.Principal{Kind: "user", ID: "kyle", Attributes: map[string]string{"team": "red", "secret": "hunter2"}, Profile: map[string]string{"email": "hunter2"}},
		Verb: verb, Resource: contract.Resource{Service: "default", Kind: kind, ID: id}, BuiltInAllowed: builtIn}
}

const rules = `package rouse

decision := "deny" if {
	input.verb == "POST"
	not input.principal.attributes.team in data.teams
}
decision := {"verdict": "allow", "cache_for_ms": 250} if input.verb == "read"
decision := true if input.verb == "write"
decision := false if input.verb == "kill"
decision := 7 if input.verb == "number"
decision := {"verdict": "allow", "more": 1} if input.verb == "more"
decision := {"verdict": "deny", "reason": "not now"} if input.verb == "stop"
decision := {"verdict": "deny", "reason": 7} if input.verb == "odd reason"
decision := input.built_in_allowed if input.resource.kind == "runner"
decision := "allow" if input.verb == "PUT"
decision := "deny" if { input.verb == "PUT"; input.resource.id == "/conflict" }
`

func TestWhatAPolicySays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a/rules.rego", rules)
	put(t, dir, "a/rules_test.rego", "this is no policy")
	put(t, dir, "teams.yaml", "teams: [blue]\n")
	put(t, dir, "notes.txt", "not read")
	a := open(t, Options{Policy: dir})
	for _, tc := range []struct {
		verb, kind, id string
		builtIn        bool
		want           contract.Verdict
		cache          time.Duration
		fails          bool
	}{
		{"POST", "route", "/x", true, contract.Deny, 5 * time.Second, false},
		{"read", "entity", "/a/b", false, contract.Allow, 250 * time.Millisecond, false},
		{"write", "entity", "/a/b", false, contract.Allow, 5 * time.Second, false},
		{"kill", "entity", "/a/b", true, contract.Deny, 5 * time.Second, false},
		{"manage", "runner", "r", true, contract.Allow, 5 * time.Second, false},
		{"manage", "runner", "r", false, contract.Deny, 5 * time.Second, false},
		{"GET", "route", "/x", true, contract.NoOpinion, 5 * time.Second, false},
		{"PUT", "route", "/x", true, contract.Allow, 5 * time.Second, false},
		{"PUT", "route", "/conflict", true, contract.Deny, 0, true},
		{"number", "entity", "/", true, contract.Deny, 0, true},
		{"more", "entity", "/", true, contract.Deny, 0, true},
		{"stop", "entity", "/", true, contract.Deny, 5 * time.Second, false},
		{"odd reason", "entity", "/", true, contract.Deny, 0, true},
		{"GET", "route", strings.Repeat("x", maxInput), true, contract.Deny, 0, true},
	} {
		r, err := a.Authorize(t.Context(), question(tc.verb, tc.kind, tc.id, tc.builtIn))
		if (err != nil) != tc.fails || r.Verdict != tc.want || err == nil && r.CacheFor != tc.cache || (r.Why == "not now") != (tc.verb == "stop") {
			t.Errorf("%s %s: %+v %v", tc.verb, tc.kind, r, err)
		}
	}
}

// A schema that refers to another by a URL fetches nothing, and what an evaluation
// fails with is its kind alone.
func TestAPolicyReachesNothingOutside(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"type":"object"}`))
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	put(t, dir, "p.rego", `package rouse
decision := json.match_schema({"a": input.principal.id}, {"$ref": "`+s.URL+`/s"})[0] if input.verb == "read"
decision := "allow" if input.verb == "PUT"
decision := "deny" if { input.verb == "PUT"; input.resource.id == "/conflict" }
`)
	a := open(t, Options{Policy: dir})
	if r, err := a.Authorize(t.Context(), question("read", "route", "/x", true)); r.Verdict == contract.Allow || asked.Load() != 0 {
		t.Errorf("%+v, %v; the server was asked %d times", r, err, asked.Load())
	}
	if _, err := a.Authorize(t.Context(), question("PUT", "route", "/conflict", true)); err == nil || err.Error() != "the policy cannot be evaluated: eval_conflict_error" {
		t.Error(err)
	}
}

// A policy that could not be laid out, as on a disk that is full, is tried again: its
// files do not change once more by themselves.
func TestAPolicyThatFoundNoRoomIsTriedAgain(t *testing.T) {
	tmp := filepath.Join(t.TempDir(), "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	dir := t.TempDir()
	put(t, dir, "p.rego", "package rouse\ndecision := true\n")
	a := open(t, Options{Policy: dir, Recheck: 10 * time.Millisecond})
	if err := os.Remove(tmp); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "p.rego", "package rouse\ndecision := false\n")
	until(t, func() bool { return a.Broken() != "" })
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		r, err := a.Authorize(t.Context(), question("GET", "route", "/x", true))
		return err == nil && r.Verdict == contract.Deny && a.Broken() == ""
	})
}

func TestASlowPolicyEndsByItsDeadline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "slow.rego", "package rouse\ndecision := true if count([x | some i in numbers.range(1, 100000); some j in numbers.range(1, 100000); x := i * j]) > 0\n")
	a := open(t, Options{Policy: filepath.Join(dir, "slow.rego"), Deadline: 30 * time.Millisecond})
	began := time.Now()
	r, err := a.Authorize(t.Context(), question("GET", "route", "/x", true))
	if err == nil || r.Verdict != contract.Deny || !strings.Contains(err.Error(), "longer") {
		t.Fatal(r, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAPolicyIsReplacedAsAWholeAndABrokenOneIsNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "p.rego", "package rouse\ndecision := true\n")
	a := open(t, Options{Policy: dir, Recheck: 5 * time.Millisecond, Deadline: 10 * time.Second})
	verdict := func() contract.Verdict {
		r, err := a.Authorize(t.Context(), question("GET", "route", "/x", true))
		if err != nil {
			t.Error(err)
		}
		return r.Verdict
	}
	if verdict() != contract.Allow {
		t.Fatal("not allowed")
	}
	// Whoever asks meanwhile gets the one or the other.
	stop, odd := make(chan struct{}), atomic.Int32{}
	var askers sync.WaitGroup
	for range 4 {
		askers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if verdict() == contract.NoOpinion {
					odd.Add(1)
				}
			}
		})
	}
	put(t, dir, "p.rego", "package rouse\ndecision := {")
	until(t, func() bool { return a.Broken() != "" })
	if verdict() != contract.Allow {
		t.Error("a broken policy took the old one's place")
	}
	if strings.Contains(a.Broken(), os.TempDir()) {
		t.Errorf("the complaint names a scratch folder: %s", a.Broken())
	}
	put(t, dir, "p.rego", "package rouse\ndecision := http.send({}).ok\n")
	until(t, func() bool { return strings.Contains(a.Broken(), "http.send") })
	put(t, dir, "p.rego", "package rouse\ndecision := false\n")
	until(t, func() bool { return verdict() == contract.Deny && a.Broken() == "" })
	if err := os.Remove(filepath.Join(dir, "p.rego")); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return a.Broken() != "" })
	if verdict() != contract.Deny {
		t.Error("a lost policy lets somebody in")
	}
	close(stop)
	askers.Wait()
	if odd.Load() != 0 {
		t.Errorf("%d decisions were of no policy", odd.Load())
	}
}

// A release is put in another one's place by turning a link.
func TestAPolicyMayBeALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := filepath.Join(dir, "policy")
	turn := func(to string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, at+"~"), os.Rename(at+"~", at)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir, "one/p.rego", "package rouse\ndecision := data.rules.verdict\n")
	put(t, dir, "one/rules/data.json", `{"verdict": true}`)
	put(t, dir, "two/p.rego", "package rouse\ndecision := false\n")
	put(t, dir, "three", "package rouse\ndecision := true\n")
	turn("one")
	a := open(t, Options{Policy: at, Recheck: 5 * time.Millisecond, Deadline: 10 * time.Second})
	verdict := func() contract.Verdict {
		r, err := a.Authorize(t.Context(), question("GET", "route", "/x", true))
		if err != nil {
			t.Error(err)
		}
		return r.Verdict
	}
	if verdict() != contract.Allow {
		t.Error("not allowed")
	}
	turn("two")
	until(t, func() bool { return verdict() == contract.Deny })
	at = filepath.Join(dir, "file.rego")
	turn("three")
	if a = open(t, Options{Policy: at, Deadline: 10 * time.Second}); verdict() != contract.Allow {
		t.Error("a link to a file is not read")
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to that")
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

func TestPoliciesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"syntax": "package rouse\ndecision := ", "unknown function": "package rouse\ndecision := f(1)\n",
		"the network": "package rouse\ndecision := http.send({\"url\": \"http://127.0.0.1\", \"method\": \"get\"}).status_code == 200\n", "empty": ""} {
		dir := t.TempDir()
		put(t, dir, "p.rego", text)
		if a, err := New(t.Context(), Options{Policy: dir}); err == nil {
			a.Close()
			t.Errorf("%s is accepted", name)
		}
	}
	for _, path := range []string{t.TempDir(), "/nowhere/policy"} {
		if a, err := New(t.Context(), Options{Policy: path}); err == nil {
			a.Close()
			t.Errorf("%s is accepted", path)
		}
	}
}

func TestTheDecisionLogHoldsNoSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "p.rego", rules)
	put(t, dir, "teams.json", `{"teams": []}`)
	var out bytes.Buffer
	a := open(t, Options{Policy: dir, Decisions: true, Log: slog.New(slog.NewJSONHandler(&out, nil))})
	for _, verb := range []string{"read", "kill", "number"} {
		_, _ = a.Authorize(t.Context(), question(verb, "entity", "/a/b", true))
	}
	for _, want := range []string{`"verdict":"allow"`, `"verdict":"deny"`, `"principal":"user:kyle"`, `"resource":"/a/b"`, `"built_in_allowed":true`, `"error"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s: %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Error("the log shows an attribute")
	}
}

func BenchmarkAuthorize(b *testing.B) {
	dir := b.TempDir()
	put(b, dir, "p.rego", rules)
	put(b, dir, "teams.json", `{"teams": ["blue", "green"]}`)
	a := open(b, Options{Policy: dir, Deadline: time.Second})
	q := question("POST", "route", "/_electric/entities/chat/1/send", true)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if r, err := a.Authorize(b.Context(), q); err != nil || r.Verdict != contract.Deny {
			b.Fatal(r, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
