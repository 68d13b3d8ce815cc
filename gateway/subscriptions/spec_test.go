package subscriptions

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"a": "a", "/a/b": "a/b", "a/b/": "a/b", "//a//": "a", "/v1/stream/a/b": "a/b", "v1/stream/a": "a", "a b/ü": "a b/ü", "a*": "a*",
		"": "", "/": "", "a//b": "", ".": "", "a/..": "", "_a": "", "__ds/x": "", "runners/r/wake": "", "v1/other": "", "a\x00": "", "a\nb": "", "\xff": "", strings.Repeat("x", 1025): ""} {
		got, why := relative(in, false)
		if got != want || (why == "") != (want != "") {
			t.Errorf("%q: %q %q", in, got, why)
		}
	}
	for in, want := range map[string]string{"a/*": "a/*", "/**/": "**", "*": "*", "runners/**": "runners/**", "a*/b": "", "***": "", "_x/*": "", "api/*": "",
		strings.Repeat("*/", 31) + "a": strings.Repeat("*/", 31) + "a", strings.Repeat("*/", 32) + "a": ""} {
		if got, why := relative(in, true); got != want || (why == "") != (want != "") {
			t.Errorf("pattern %q: %q %q", in, got, why)
		}
	}
}

// ways counts.
func ways(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// Whatever a body holds, it is taken or refused with a code, and what is taken
// can be stored.
func FuzzSpec(f *testing.F) {
	for _, seed := range []string{`{}`, `{"type":"webhook","pattern":"a/*","webhook":{"url":"https://a.example/"}}`, `{"type":"pull-wake","streams":["a"],"wake_stream":"w","lease_ttl_ms":1000}`,
		`{"type":"pull-wake","pattern":"**","wake_stream":"w"}`, `{"type":"webhook","pattern":"\u0000"}`,
		`{"type":"exec","pattern":"a","target":{"command":"c","n":[1e9,{"a":"\u0000"}]}}`, `{"type":"exec","pattern":"a","target":{"type":"x"}}`, `{"type":"exec","pattern":"a","target":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var s spec
		if json.Unmarshal([]byte(body), &s) != nil {
			t.Skip("not of the form")
		}
		got, err := s.check()
		if err != nil {
			if problem.CodeOf(err) != problem.InvalidRequest {
				t.Errorf("%v", err)
			}
			return
		}
		if got.Lease < minLease || got.Lease > maxLease || got.Pattern == "" && len(got.Streams) == 0 || ways(got.WebhookURL != "", got.WakeStream != "", got.Target != nil) != 1 {
			t.Errorf("%+v", got)
		}
		var target map[string]json.RawMessage
		if got.Target != nil && (json.Unmarshal(got.Target, &target) != nil || target["type"] == nil || storable(got.Target) != "") {
			t.Errorf("%s cannot be stored", got.Target)
		}
		for _, p := range append([]string{got.Pattern, got.WakeStream, got.WebhookURL, got.Description}, got.Streams...) {
			if strings.Contains(p, "\x00") {
				t.Errorf("%q cannot be stored", p)
			}
		}
	})
}
