package control

import (
	"strings"
	"testing"
)

const (
	wakeKeyA = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
	wakeKeyB = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
)

func TestAWakeKeyIsSetShownReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	has := func(body []byte, key, id string) {
		t.Helper()
		if id == "" && (strings.Contains(string(body), "wake_key")) || id != "" && !strings.Contains(string(body), `"wake_key":"`+key+`","wake_key_id":"`+id+`"`) {
			t.Errorf("%s", body)
		}
	}
	const idA, idB = "300c9c9603b92a4b", "f35e5616160a30bf"
	has(r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"x","wakeKey":"`+wakeKeyA+`"}`).body, wakeKeyA, idA)
	has(r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"y"}`).body, wakeKeyA, idA)
	has(r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"y","wake_key":"`+wakeKeyB+`"}`).body, wakeKeyB, idB)
	has(r.must(200, kyle, "PUT", "/_electric/runners/mac/wake-key", `{"wake_key":"`+strings.TrimRight(wakeKeyA, "=")+`"}`).body, wakeKeyA, idA)
	for _, bad := range []string{`{}`, `{"wake_key":""}`, `{"wake_key":"` + wakeKeyA[:40] + `"}`, `{"wake_key":"` + strings.Repeat("A", 43) + `="}`, `{"wake_key":7}`, `{"wake_key":"` + strings.Repeat("A", 5000) + `"}`} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "PUT", "/_electric/runners/mac/wake-key", bad)
		if strings.Contains(string(a.body), "AAAAAAAA") || strings.Contains(string(a.body), wakeKeyA[:40]) {
			t.Errorf("the answer repeats what it refuses: %s", a.body)
		}
	}
	r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/runners", `{"id":"other","label":"x","wake_key":"AAAA"}`)
	if n := r.count(`select count(*) from rouse.runners where id = 'other'`); n != 0 {
		t.Error("a runner with a bad key was made")
	}
	has(r.must(200, kyle, "GET", "/_electric/runners/mac", "").body, wakeKeyA, idA)
	has(r.must(200, kyle, "DELETE", "/_electric/runners/mac/wake-key", "").body, "", "")
	has(r.must(200, kyle, "DELETE", "/_electric/runners/mac/wake-key", "").body, "", "")
	if n := r.count(`select count(*) from rouse.audit_log where action = 'runner.wake_key.set' and detail ? 'key_id'`); n != 3 {
		t.Errorf("%d changes of the key in the audit", n)
	}
	if n := r.count(`select count(*) from rouse.audit_log where action = 'runner.wake_key.remove'`); n != 1 {
		t.Errorf("%d removals of the key in the audit", n)
	}
}
