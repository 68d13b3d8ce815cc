package webhook

import (
	"crypto/ed25519"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// signed is a delivery as it came.
type signed struct {
	header string
	body   []byte
}

func (s signed) kid() string {
	_, rest, _ := strings.Cut(s.header, "kid=")
	kid, _, _ := strings.Cut(rest, ",")
	return kid
}

// The signing key follows the key ring. A receiver that knows nothing but the
// published keys verifies what was signed before a rotation and after it, as
// long as the old key stands in the ring, and nothing of it afterwards.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	older, newer := strings.TrimSpace(claims.NewKeys()), strings.TrimSpace(claims.NewKeys())
	db := pgtest.New(t)
	posts := make(chan signed, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- signed{r.Header.Get("Webhook-Signature"), body}
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	t.Cleanup(receiver.Close)
	n := 0
	// delivery runs a gateway with the ring, sends a message and gives what came
	// and the keys that the gateway publishes, which are the same at both mounts.
	delivery := func(ring string) (signed, map[string]ed25519.PublicKey) {
		t.Helper()
		h := newHooked(t, servertest.Options{DB: db, Configure: func(c *config.Config) { c.Keys = config.NewSecret(ring) }})
		if n == 0 {
			h.spawn("1", receiver.URL)
		}
		n++
		h.send("1", strings.Repeat("m", n))
		var got signed
		select {
		case got = <-posts:
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is posted")
		}
		keys, err := jwks(h.person.HTTP, h.in.URL)
		if err != nil {
			t.Fatal(err)
		}
		below, err := jwks(h.person.HTTP, h.in.URL+"/v1/stream")
		if err != nil || len(below) != len(keys) {
			t.Errorf("%d keys, %d below /v1/stream, %v", len(keys), len(below), err)
		}
		soon.Until(t, "it is recorded", func() bool {
			var open int
			err := db.Pool(t).QueryRow(t.Context(), `select count(*) from rouse.wake_notifications where resolved_at is null`).Scan(&open)
			return err == nil && open == 0
		})
		if err := h.in.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		return got, keys
	}
	ok := func(when string, keys map[string]ed25519.PublicKey, s signed, want bool) {
		t.Helper()
		if err := verify(keys, s.header, s.body); (err == nil) != want {
			t.Errorf("%s: %v", when, err)
		}
	}
	before, published := delivery(older)
	ok("before", published, before, true)
	// The new key is published before it signs, so that no receiver meets a
	// signature of a key it cannot find.
	announced, published := delivery(older + "," + newer)
	ok("announced, signed before", published, before, true)
	ok("announced", published, announced, true)
	if announced.kid() != before.kid() || len(published) != 2 {
		t.Errorf("signed by %s, not by %s; %d keys", announced.kid(), before.kid(), len(published))
	}
	after, published := delivery(newer + "," + older)
	ok("after, signed before", published, before, true)
	ok("after", published, after, true)
	if after.kid() == before.kid() || published[after.kid()] == nil {
		t.Errorf("signed by %s as before", after.kid())
	}
	last, published := delivery(newer)
	ok("dropped", published, last, true)
	ok("dropped, signed after the rotation", published, after, true)
	ok("dropped, signed before", published, before, false)
	for name, damaged := range map[string]signed{
		"another body": {after.header, append([]byte(" "), after.body...)}, "another time": {strings.Replace(after.header, "t=", "t=1", 1), after.body},
		"another's header": {last.header, after.body}, "no header": {"", after.body},
	} {
		if name == "another's header" && last.header == after.header {
			continue
		}
		ok(name, published, damaged, false)
	}
}
