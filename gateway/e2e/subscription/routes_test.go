package subscription

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/world"
)

// A subscription is made, confirmed, shown, listed and deleted, at both mounts.
func TestALife(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, func(c *config.Config) { c.PublicURL = "https://rouse.example/base/" })
	for i, mount := range mounts {
		id := []string{"one", "two"}[i]
		body := object{"type": "webhook", "pattern": "/orders/*/", "streams": []string{"/extra/a"}, "webhook": object{"url": "http://127.0.0.1:9/hook?s=1"},
			"lease_ttl_ms": 1500, "description": "what for", "something": "of a later protocol"}
		made := world.Into[subscription](t, r.do(201, "", "PUT", mount+subPath(id), body))
		if made.ID != id || made.SubscriptionID != id || made.Type != "webhook" || made.Pattern != "orders/*" || made.Lease != 1500 || made.Status != "active" ||
			made.Description != "what for" || made.CreatedAt == "" || made.Owner != "/principal/user%3Akyle" || made.Webhook == nil ||
			made.Webhook.URL != "http://127.0.0.1:9/hook?s=1" || made.Webhook.Signing.Alg != "ed25519" || !strings.HasPrefix(made.Webhook.Signing.Kid, "ds_") {
			t.Errorf("%+v", made)
		}
		// The URLs are those of the public base and of the mount it was made through.
		if made.Webhook.Signing.JWKSURL != "https://rouse.example/base"+mount+"/__ds/jwks.json" {
			t.Errorf("keys at %s", made.Webhook.Signing.JWKSURL)
		}
		if len(made.Streams) != 1 || made.Streams[0].Path != "extra/a" || made.Streams[0].Link != "explicit" {
			t.Errorf("%+v", made.Streams)
		}
		// The other gateway and the other mount say the same.
		again := world.Into[subscription](t, r.at(1).do(200, "", "PUT", mounts[1-i]+subPath(id), body))
		if again.CreatedAt != made.CreatedAt || again.Webhook.Signing.JWKSURL != made.Webhook.Signing.JWKSURL {
			t.Errorf("%+v", again)
		}
		for name, v := range map[string]any{"pattern": "orders/**", "lease_ttl_ms": 1501, "description": "something else", "streams": []string{"extra/b"},
			"webhook": object{"url": "http://127.0.0.1:9/other"}, "type": "pull-wake"} {
			other := object{"wake_stream": "w"}
			for k, v := range body {
				other[k] = v
			}
			other[name] = v
			r.do(409, "SUBSCRIPTION_ALREADY_EXISTS", "PUT", mount+subPath(id), other)
		}
		if got := world.Into[subscription](t, r.do(200, "", "GET", mounts[1-i]+subPath(id), nil)); got.Webhook == nil || got.Pattern != "orders/*" {
			t.Errorf("%+v", got)
		}
		if a := r.do(200, "", "HEAD", mount+subPath(id), nil); len(a.Raw) != 0 {
			t.Errorf("HEAD answers %s", a.Raw)
		}
	}
	list := func(query string) (ids []string) {
		type page struct{ Subscriptions []subscription }
		for _, s := range world.Into[page](t, r.do(200, "", "GET", "/__ds/subscriptions"+query, nil)).Subscriptions {
			if s.Streams != nil {
				t.Errorf("a list names streams: %+v", s)
			}
			ids = append(ids, s.ID)
		}
		return ids
	}
	if got := list(""); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("%v", got)
	}
	if got := list("?after=one&limit=5"); !slices.Equal(got, []string{"two"}) {
		t.Errorf("%v", got)
	}
	for range 2 {
		r.do(204, "", "DELETE", subPath("one"), nil)
	}
	r.do(404, "SUBSCRIPTION_NOT_FOUND", "GET", subPath("one"), nil)
	if got := list("/"); !slices.Equal(got, []string{"two"}) {
		t.Errorf("%v", got)
	}
	// The id is free again, for another configuration.
	if again := r.pool("one", object{"pattern": "x/*"}); again.Type != "pull-wake" || again.WakeStream != "wakes/one" || again.Webhook != nil {
		t.Errorf("%+v", again)
	}
}

// Whatever is not there says so in the same way, everywhere.
func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("there", object{"pattern": "p/*"})
	for _, mount := range mounts {
		for _, c := range []struct{ method, path string }{
			{"GET", ""}, {"POST", "/streams"}, {"DELETE", "/streams/a"}, {"POST", "/claim"}, {"POST", "/ack"}, {"POST", "/release"}, {"POST", "/callback"}, {"GET", "/wakes"},
		} {
			r.do(404, "SUBSCRIPTION_NOT_FOUND", c.method, mount+subPath("nobody")+c.path, object{"streams": []string{"a"}, "worker": "w"},
				"Authorization", "Bearer "+forgedToken(t))
		}
		for path, allowed := range map[string]string{
			"/__ds/subscriptions": "GET, HEAD, OPTIONS", subPath("there"): "GET, HEAD, PUT, DELETE, OPTIONS", subPath("there") + "/streams": "POST, OPTIONS",
			subPath("there") + "/streams/a/b": "DELETE, OPTIONS", subPath("there") + "/claim": "POST, OPTIONS", subPath("there") + "/ack": "POST, OPTIONS",
			subPath("there") + "/release": "POST, OPTIONS", subPath("there") + "/callback": "POST, OPTIONS", subPath("there") + "/wakes": "GET, HEAD, OPTIONS",
			"/__ds/jwks.json": "GET, HEAD, OPTIONS",
		} {
			a := r.do(405, "METHOD_NOT_ALLOWED", "PATCH", mount+path, nil)
			if a.Header.Get("Allow") != allowed {
				t.Errorf("%s allows %s", path, a.Header.Get("Allow"))
			}
			a = r.do(204, "", "OPTIONS", mount+path, nil)
			if a.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(a.Header.Get("Access-Control-Allow-Headers"), "authorization") {
				t.Errorf("%s: %v", path, a.Header)
			}
		}
		for _, path := range []string{"/__ds", "/__ds/", "/__ds/other", subPath("there") + "/other", subPath("there") + "/claim/more", "/__ds/jwks"} {
			r.do(404, "NOT_FOUND", "GET", mount+path, nil)
		}
	}
	r.do(404, "SERVICE_NOT_FOUND", "GET", subPath("there")+"?service=nowhere", nil)
	// No stream lies below the reserved name, however it is spelt.
	r.do(403, "PATH_RESERVED", "PUT", "/%5F%5Fds/subscriptions/x", nil)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	hook := object{"url": "http://127.0.0.1:9/"}
	with := func(name string, v any) object {
		o := object{"type": "webhook", "pattern": "p/*", "webhook": hook}
		if v == nil {
			delete(o, name)
		} else {
			o[name] = v
		}
		return o
	}
	pull := func(name string, v any) object {
		o := object{"type": "pull-wake", "pattern": "p/*", "wake_stream": "w/a"}
		if v == nil {
			delete(o, name)
		} else {
			o[name] = v
		}
		return o
	}
	long, many := strings.Repeat("x", 1025), slices.Repeat([]string{"a/b"}, 1001)
	for name, body := range map[string]any{
		"no body": nil, "no JSON": "{", "an array": "[]", "null": "null", "a string": `"webhook"`, "two values": `{} {}`, "twice": `{"type":"webhook","type":"pull-wake"}`,
		"no UTF-8": "{\"type\":\"web\xff\"}", "deep": strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000),
		"deep elsewhere": `{"type":"webhook","pattern":"p","webhook":{"url":"http://127.0.0.1:9/"},"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}",
		"no type":        with("type", nil), "another type": with("type", "email"), "type of a kind": with("type", 7),
		"nothing to watch": with("pattern", nil), "an empty pattern": with("pattern", ""), "a pattern of slashes": with("pattern", "//"), "a long pattern": with("pattern", long),
		"a pattern with a hole": with("pattern", "a//b"), "dots": with("pattern", "a/../b"), "half an asterisk": with("pattern", "a*/b"), "a control character": with("pattern", "a\nb"),
		"a reserved root": with("pattern", "_cron/*"), "itself": with("pattern", "__ds/**"), "a pattern of a kind": with("pattern", []string{"a"}),
		"streams of a kind": with("streams", "a"), "a stream of a kind": with("streams", []any{1}), "an empty stream": with("streams", []string{""}), "many streams": with("streams", many),
		"a reserved stream": with("streams", []string{"runners/r/wake"}), "another reserved stream": with("streams", []string{"_x"}),
		"no lease": with("lease_ttl_ms", 0), "a short lease": with("lease_ttl_ms", 999), "a long lease": with("lease_ttl_ms", 600_001), "a lease in parts": with("lease_ttl_ms", 1000.5),
		"a lease of a kind": with("lease_ttl_ms", "1000"), "a huge lease": `{"type":"webhook","pattern":"p","webhook":{"url":"http://127.0.0.1:9/"},"lease_ttl_ms":1e300}`,
		"a long description": with("description", strings.Repeat("x", 4097)), "NUL": with("description", "a\x00b"), "a description of a kind": with("description", object{}),
		"no url": with("webhook", nil), "no webhook's url": with("webhook", object{}), "a url of a kind": with("webhook", object{"url": 7}), "a webhook of a kind": with("webhook", "http://127.0.0.1:9/"),
		"no wake stream": pull("wake_stream", nil), "an empty wake stream": pull("wake_stream", "/"), "a reserved wake stream": pull("wake_stream", "runners/r/wake"),
		"a control stream": pull("wake_stream", "_w"),
	} {
		r.do(400, "INVALID_REQUEST", "PUT", subPath("bad"), body)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	own := pull("pattern", nil)
	own["streams"] = []string{"w/a"}
	r.do(400, "INVALID_REQUEST", "PUT", subPath("bad"), own)
	for _, u := range []string{"http://10.0.0.1/hook", "http://rouse.example/hook", "ftp://127.0.0.1/", "https://user:pw@rouse.example/", "not a url", "//x", "http://[::", "https://", "http://169.254.169.254/"} {
		a := r.do(400, "WEBHOOK_URL_REJECTED", "PUT", subPath("bad"), with("webhook", object{"url": u}))
		if len(u) > len("https://") && strings.Contains(string(a.Raw), u) {
			t.Errorf("the answer repeats %s", u)
		}
	}
	r.do(413, "PAYLOAD_TOO_LARGE", "PUT", subPath("bad"), with("description", strings.Repeat("x", 1<<20)))
	for _, id := range []string{"%00", "a%2Fb", "a%0Ab", "%ff", strings.Repeat("i", 257)} {
		r.do(400, "INVALID_REQUEST", "PUT", subPath(id), with("", nil))
	}
	r.do(414, "URI_TOO_LONG", "GET", subPath(strings.Repeat("i", 4000)), nil)
	r.do(400, "INVALID_REQUEST", "GET", subPath("x")+"?service=a&service=b", nil)
	for _, q := range []string{"?limit=0", "?limit=1001", "?limit=x", "?after=%00"} {
		r.do(400, "INVALID_REQUEST", "GET", "/__ds/subscriptions"+q, nil)
	}
	if n := world.One[int](r.World, `select count(*) from rouse.subscriptions`); n != 0 {
		t.Errorf("%d subscriptions were made", n)
	}
	if n := world.One[int](r.World, `select count(*) from rouse.streams`); n != 0 {
		t.Errorf("%d streams were made", n)
	}

	r.pool("good", object{"pattern": "p/*"})
	for _, body := range []any{nil, "{", object{}, object{"streams": []string{}}, object{"streams": "a"}, object{"streams": []string{"a", ""}}, object{"streams": []string{"wakes/good"}},
		object{"streams": []string{"_x"}}, object{"streams": many}} {
		r.do(400, "INVALID_REQUEST", "POST", subPath("good")+"/streams", body)
	}
	r.do(400, "INVALID_REQUEST", "DELETE", subPath("good")+"/streams/a%2F%2Fb", nil)
	for _, body := range []any{nil, "{", object{}, object{"worker": ""}, object{"worker": 7}, object{"worker": strings.Repeat("w", 257)}, object{"worker": "a\x00"}, object{"worker": "w", "claim_id": long}} {
		r.do(400, "INVALID_REQUEST", "POST", subPath("good")+"/claim", body)
	}
	if got := r.get("good"); len(got.Streams) != 0 || got.State != "idle" {
		t.Errorf("%+v", got)
	}
	// A pattern passes over wake streams; only a name among the streams is refused above.
	r.do(201, "", "PUT", subPath("everything"), object{"type": "pull-wake", "pattern": "**", "wake_stream": "w/everything"})
}

// Streams are named and taken back; a name may come before its stream.
func TestMembership(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.stream("m/exists", `{"n":1}`)
	r.pool("m", object{"streams": []string{"m/first"}})
	paths := func() (out []string) {
		for _, s := range r.get("m").Streams {
			out = append(out, s.Path+" "+s.Link)
		}
		slices.Sort(out)
		return out
	}
	for range 2 {
		r.do(204, "", "POST", "/v1/stream"+subPath("m")+"/streams", object{"streams": []string{"/m/exists", "v1/stream/m/later", "m/ümlaut x"}})
	}
	if got := paths(); !slices.Equal(got, []string{"m/exists explicit", "m/first explicit", "m/later explicit", "m/ümlaut x explicit"}) {
		t.Errorf("%q", got)
	}
	// What was there before is not news; what comes is.
	r.append("m/exists", `{"n":2}`)
	r.wake("wakes/m", 1)
	c := r.claim("m", "w")
	r.turn(200, "", "m", "ack", c, c.Token, object{"acks": acks("m/exists", c.tail(t, "m/exists")), "done": true})
	r.stream("m/later", `{"n":1}`)
	r.wake("wakes/m", 2)
	c = r.claim("m", "w")
	r.turn(200, "", "m", "ack", c, c.Token, object{"acks": acks("/m/later/", c.tail(t, "m/later")), "done": true})
	for _, spelt := range []string{"m%2Flater", "m/exists", "m/%C3%BCmlaut%20x", "nobody"} {
		for range 2 {
			r.do(204, "", "DELETE", subPath("m")+"/streams/"+spelt, nil)
		}
	}
	if got := paths(); !slices.Equal(got, []string{"m/first explicit"}) {
		t.Errorf("%q", got)
	}
	r.append("m/exists", `{"n":3}`)
	r.append("m/later", `{"n":2}`)
	r.do(409, "NO_PENDING_WORK", "POST", subPath("m")+"/claim", object{"worker": "w"})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	for _, mount := range mounts {
		a := r.as("").do(200, "", "GET", mount+"/__ds/jwks.json", nil)
		if a.Header.Get("Content-Type") != "application/jwk-set+json" || a.Header.Get("Cache-Control") != "public, max-age=300" || a.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%v", a.Header)
		}
		type set struct {
			Keys []struct{ Kty, Crv, X, Kid, Alg, Use, D string }
		}
		got := world.Into[set](t, a)
		if len(got.Keys) != 1 || got.Keys[0].Kty != "OKP" || got.Keys[0].Crv != "Ed25519" || got.Keys[0].Alg != "EdDSA" || got.Keys[0].D != "" || !strings.HasPrefix(got.Keys[0].Kid, "ds_") {
			t.Errorf("%+v", got)
		}
		if a := r.do(200, "", http.MethodHead, mount+"/__ds/jwks.json", nil); len(a.Raw) != 0 {
			t.Errorf("HEAD answers %s", a.Raw)
		}
	}
}
