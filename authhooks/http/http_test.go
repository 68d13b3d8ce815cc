package httphook

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/plugins/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func endpoint(t *testing.T, o Options, h http.HandlerFunc) *Hook {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	o.URL = s.URL + "/check?key=hunter2"
	hook, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hook.Close)
	return hook
}

func bearer(token string) contract.Request {
	return contract.Request{Header: http.Header{"Authorization": {"Bearer " + token}, "Cookie": {"a=b"}, "X-Other": {"1"}}}
}

func TestTheEndpointDecides(t *testing.T) {
	t.Parallel()
	var got map[string]any
	say := ""
	h := endpoint(t, Options{Headers: []string{"authorization", "cookie"}, Secret: "mine"}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer mine" {
			t.Errorf("%s %v", r.Method, r.Header)
		}
		got = nil
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, say)
	})
	say = `{"verdict":"allow","principal":{"kind":"user","id":"kyle","profile":{"email":"k@x"},"attributes":{"team":"a"}},"cache_for_ms":1500}`
	d, err := h.Authenticate(t.Context(), bearer("t"))
	if err != nil || d.Verdict != contract.Allow || d.Principal.Key() != "user:kyle" || d.Principal.Attributes["team"] != "a" || d.CacheFor != 1500*time.Millisecond {
		t.Errorf("%+v %v", d, err)
	}
	if shown, _ := got["headers"].(map[string]any); len(shown) != 2 || got["ask"] != "authenticate" {
		t.Errorf("the endpoint saw %v", got)
	}
	for verdict, want := range map[string]contract.Verdict{"deny": contract.Deny, "no_opinion": contract.NoOpinion} {
		say = `{"verdict":"` + verdict + `"}`
		if d, err := h.Authenticate(t.Context(), bearer("t")); err != nil || d.Verdict != want {
			t.Errorf("%s: %v %v", verdict, d, err)
		}
	}
	say = `{"verdict":"deny","reason":"` + strings.Repeat("w", 400) + `"}`
	if d, err := h.Authenticate(t.Context(), bearer("t")); err != nil || d.Verdict != contract.Deny || !strings.HasPrefix(d.Why, "www") || len(d.Why) > 310 {
		t.Errorf("%v %v", d, err)
	}
	got, say = nil, `{"verdict":"allow"}`
	if d, err := h.Authenticate(t.Context(), contract.Request{Header: http.Header{"X-Other": {"1"}}}); err != nil || d.Verdict != contract.NoOpinion || got != nil {
		t.Errorf("asked about nothing: %v %v %v", d, err, got)
	}
	r, err := h.Authorize(t.Context(), contract.Question{Principal: contract.Principal{Kind: "user", ID: "kyle", Profile: map[string]string{"email": "k@x"}},
		Verb: "read", Resource: contract.Resource{Service: "default", Kind: "entity", ID: "/a/b"}, BuiltInAllowed: true})
	if err != nil || r.Verdict != contract.Allow {
		t.Errorf("%v %v", r, err)
	}
	raw, err := json.Marshal(got)
	if err != nil || string(raw) != `{"ask":"authorize","built_in_allowed":true,"principal":{"id":"kyle","kind":"user"},"resource":{"id":"/a/b","kind":"entity","service":"default"},"verb":"read"}` {
		t.Errorf("asked %s", raw)
	}
}

func TestWhateverElseComesBackRefuses(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	defer close(hang) // before the servers end
	for name, answer := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"201": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			_, _ = io.WriteString(w, `{"verdict":"allow"}`)
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example", http.StatusTemporaryRedirect)
		},
		"no JSON":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "allow") },
		"nothing":     func(http.ResponseWriter, *http.Request) {},
		"no verdict":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) },
		"odd verdict": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"verdict":"ALLOW"}`) },
		"nobody":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"verdict":"allow"}`) },
		"negative time": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"verdict":"deny","cache_for_ms":-1}`)
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"verdict":"`+strings.Repeat("x", 1<<20))
		},
		"cut connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"hang":           func(http.ResponseWriter, *http.Request) { <-hang },
	} {
		h := endpoint(t, Options{Timeout: 200 * time.Millisecond}, answer)
		d, err := h.Authenticate(t.Context(), bearer("hunter2"))
		if err == nil || d.Verdict == contract.Allow || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v %v", name, d, err)
		}
		if name == "nobody" {
			continue // a ruling needs no principal
		}
		if r, err := h.Authorize(t.Context(), contract.Question{}); err == nil || r.Verdict == contract.Allow {
			t.Errorf("%s: authorize: %v %v", name, r, err)
		}
	}
}

func TestWhereCredentialsMayBeSent(t *testing.T) {
	t.Parallel()
	for u, good := range map[string]bool{"https://a.example/x": true, "http://127.0.0.1:1/x": true, "http://localhost/x": true, "http://[::1]/x": true,
		"http://a.example/x": false, "ftp://a.example": false, "https://u:p@a.example": false, "": false, "/x": false} {
		if _, err := New(Options{URL: u}); (err == nil) != good {
			t.Errorf("%s: %v", u, err)
		}
	}
	if _, err := New(Options{URL: "http://a.example", AllowHTTP: true}); err != nil {
		t.Error(err)
	}
}
