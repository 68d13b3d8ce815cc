package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRetentionAndTrims(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	ok := p.ok
	ok("stream", "create", "logs/web", "--type", "application/json")
	for range 3 {
		ok("stream", "append", "logs/web", `{"n":1}`)
	}
	if out := ok("retention", "show", "logs/web"); !strings.Contains(out, "kept: everything") || !strings.Contains(out, "21 bytes") {
		t.Fatal(out)
	}
	if out := ok("retention", "set", "logs/web", "--age", "7d", "--bytes", "1000"); !strings.Contains(out, "at most 7d, 1000 bytes") {
		t.Fatal(out)
	}
	var s streamRetention
	if err := json.Unmarshal([]byte(ok("retention", "set", "logs/web", "--messages", "5", "--json")), &s); err != nil || s.Source != "stream" || *s.MaxMessages != 5 || s.MaxBytes != nil {
		t.Fatalf("%+v %v", s, err)
	}
	if out := ok("retention", "set", "logs/web", "--all"); !strings.Contains(out, "kept: everything") {
		t.Fatal(out)
	}
	ok("retention", "unset", "logs/web")

	if out := ok("stream", "trim", "logs/web", "--before", "0000000000000000_0000000000000007"); !strings.Contains(out, "begins at 0000000000000000_0000000000000007 now") {
		t.Fatal(out)
	}
	if out := ok("stream", "info", "logs/web"); !strings.Contains(out, "earliest") || !strings.Contains(out, "0000000000000000_0000000000000007") {
		t.Fatal(out)
	}
	if out := ok("stream", "read", "logs/web"); strings.Count(out, "n") < 2 || strings.Count(out, `"n"`) != 2 {
		t.Fatal(out)
	}
	code, _, said := p.run("", "stream", "read", "logs/web", "--offset", "0000000000000000_0000000000000000")
	if code == ExitOK || !strings.Contains(said, "OFFSET_GONE") || !strings.Contains(said, "0000000000000000_0000000000000007") {
		t.Fatalf("%d %s", code, said)
	}
	if out := ok("stream", "trim", "logs/web", "--all", "--json"); !strings.Contains(out, `"trimmed":`) {
		t.Fatal(out)
	}

	ok("type", "put", "task", "-d", "x")
	if out := ok("retention", "set", "--type", "task", "--messages", "100"); !strings.Contains(out, "at most 100 messages") {
		t.Fatal(out)
	}
	if out := ok("retention", "unset", "--type", "task"); !strings.Contains(out, "everything") {
		t.Fatal(out)
	}
	for _, args := range [][]string{
		{"retention", "show"}, {"retention", "show", "a", "--type", "b"}, {"retention", "set", "a"}, {"retention", "set", "a", "--all", "--bytes", "5"},
		{"retention", "set", "a", "--age", "soon"}, {"retention", "set", "a", "--age", "0d"}, {"retention", "set", "a", "--bytes", "-5"},
		{"retention", "set", "--type", "t", "--all"}, {"stream", "trim", "a"}, {"stream", "trim", "a", "--all", "--before", "x"},
	} {
		if code, _, said := p.run("", args...); code != ExitUsage {
			t.Errorf("%v: exit code %d %s", args, code, said)
		}
	}
}
