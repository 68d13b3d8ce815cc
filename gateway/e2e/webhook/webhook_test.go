// Package webhook plays the receiver of wakes: it believes nothing that is not
// signed, and works by what it is sent alone. It holds tests only.
package webhook

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/cli"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// asRouse makes this test binary the rouse binary, for a gateway that can be
// killed.
const asRouse = "ROUSE_TEST_BINARY"

func TestMain(m *testing.M) {
	servertest.ServePlugins() // all that is sent here is sent by a process of its own
	if os.Getenv(asRouse) != "" {
		os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(),
			Self: []string{"rouse", "plugin-serve"}}))
	}
	goleak.VerifyTestMain(m)
}

// notification is what a receiver uses of a wake.
type notification struct {
	ConsumerID string `json:"consumerId"`
	Epoch      int64  `json:"epoch"`
	WakeID     string `json:"wakeId"`
	StreamPath string `json:"streamPath"`
	Callback   string `json:"callback"`
	ClaimToken string `json:"claimToken"`
	Streams    []struct{ Path, Offset string }
	Entity     struct {
		URL, Type, Status string
		Tags              map[string]string
		SpawnArgs         map[string]any
	}
}

// delivery is one POST.
type delivery struct {
	notification
	body, key string
	attempt   string
}

// jwks fetches the public keys as a receiver does.
func jwks(client *http.Client, base string) (map[string]ed25519.PublicKey, error) {
	res, err := client.Get(base + "/__ds/jwks.json")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var set struct {
		Keys []struct{ Kty, Crv, X, Kid, Alg string }
	}
	if err := json.NewDecoder(res.Body).Decode(&set); err != nil {
		return nil, err
	}
	out := map[string]ed25519.PublicKey{}
	for _, k := range set.Keys {
		raw, err := base64.RawURLEncoding.DecodeString(k.X)
		if err != nil || len(raw) != ed25519.PublicKeySize || k.Kty != "OKP" || k.Crv != "Ed25519" {
			return nil, fmt.Errorf("key %s is none", k.Kid)
		}
		out[k.Kid] = raw
	}
	return out, nil
}

// verify checks a signature header over the bytes that came.
func verify(keys map[string]ed25519.PublicKey, header string, body []byte) error {
	part := map[string]string{}
	for f := range strings.SplitSeq(header, ",") {
		k, v, _ := strings.Cut(f, "=")
		part[k] = v
	}
	key, sig := keys[part["kid"]], part["ed25519"]
	raw, err := base64.RawURLEncoding.DecodeString(sig)
	at, terr := strconv.ParseInt(part["t"], 10, 64)
	switch {
	case key == nil:
		return fmt.Errorf("the key %q is not published", part["kid"])
	case err != nil || terr != nil:
		return fmt.Errorf("the header %q is malformed", header)
	case time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute:
		return errors.New("the time is off")
	case !ed25519.Verify(key, append([]byte(part["t"]+"."), body...), raw):
		return errors.New("the signature does not fit")
	}
	return nil
}

// world is two gateways, a person, and a receiver.
type world struct {
	t        *testing.T
	db       *pgtest.DB
	bases    []string
	http     *http.Client
	person   *wire.Client
	receiver *httptest.Server
	posts    chan delivery
}

// newWorld starts it; answer decides what the receiver answers to a delivery
// that is signed by a published key.
func newWorld(t *testing.T, answer func(delivery) (int, string)) *world {
	t.Helper()
	w := &world{t: t, db: pgtest.New(t), posts: make(chan delivery, 100)}
	client := wire.NewHTTP(20 * time.Second)
	w.receiver = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		keys, err := jwks(client, w.bases[0])
		if err == nil {
			err = verify(keys, r.Header.Get("Webhook-Signature"), body)
		}
		if err != nil {
			t.Error(err)
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		for name, damaged := range map[string][]byte{"a byte more": append(body[:len(body):len(body)], ' '), "nothing": nil} {
			if verify(keys, r.Header.Get("Webhook-Signature"), damaged) == nil {
				t.Errorf("the signature fits %s", name)
			}
		}
		d := delivery{body: string(body), key: r.Header.Get("Idempotency-Key"), attempt: r.Header.Get("Rouse-Delivery-Attempt")}
		if err := json.Unmarshal(body, &d.notification); err != nil {
			t.Error(err)
		}
		if r.Method != http.MethodPost || d.key != d.WakeID || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s with key %q for the wake %s", r.Method, d.key, d.WakeID)
		}
		status, text := answer(d)
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, text)
		w.posts <- d
	}))
	for range 2 {
		w.bases = append(w.bases, servertest.Start(t, servertest.Options{DB: w.db, PluginProcesses: true, Configure: func(c *config.Config) {
			c.ReaperPeriod = 50 * time.Millisecond
		}}).URL)
	}
	t.Cleanup(w.receiver.Close)
	t.Cleanup(client.CloseIdleConnections)
	w.http, w.person = client, &wire.Client{Base: w.bases[0], Principal: "user:kyle", HTTP: client}
	w.must(w.person.Type(t.Context(), "job"))
	w.must(w.person.Do(t.Context(), "PUT", "/_electric/entities/job/1", map[string]any{"args": map[string]any{"colour": "blue"}, "tags": map[string]string{"team": "b"},
		"dispatch_policy": map[string]any{"targets": []any{map[string]any{"type": "webhook", "url": w.receiver.URL + "/hook?secret=s"}}}}, nil))
	return w
}

func (w *world) must(a wire.Answer) wire.Answer {
	w.t.Helper()
	if a.Status < 200 || a.Status > 299 {
		w.t.Fatalf("%v: %s", a, a.Raw)
	}
	return a
}

func (w *world) send(key string) {
	w.t.Helper()
	w.must(w.person.Send(w.t.Context(), "job", "1", key, "hello"))
}

func (w *world) post() delivery {
	w.t.Helper()
	select {
	case d := <-w.posts:
		return d
	case <-time.After(20 * time.Second):
		w.t.Fatal("nothing is posted")
		return delivery{}
	}
}

// claims are the entity's claims as the database has them, newest first.
func (w *world) claims() []string {
	w.t.Helper()
	var out []string
	if err := w.db.Conn(w.t).QueryRow(w.t.Context(), `select coalesce(array_agg(epoch || ' ' || status order by epoch desc), '{}') from rouse.consumer_claims`).Scan(&out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	soon.Until(w.t, what, ok)
}

// R8: a receiver that answers {"done":true} has finished: its snapshot is acked,
// its claim released, and the next message wakes it with the next epoch.
func TestDoneInTheAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(delivery) (int, string) { return http.StatusOK, `{"done":true}` })
	w.send("m-1")
	first := w.post()
	if first.Epoch != 1 || first.Entity.URL != "/job/1" || first.Entity.Tags["team"] != "b" || first.Entity.SpawnArgs["colour"] != "blue" || first.StreamPath != "/job/1/main" ||
		len(first.Streams) != 1 || first.Streams[0].Path != "/job/1/main" || first.attempt != "1" {
		t.Errorf("%+v", first)
	}
	w.eventually("the claim is released", func() bool { c := w.claims(); return len(c) == 1 && c[0] == "1 released" })
	var open bool
	if err := w.db.Conn(t).QueryRow(t.Context(), `select exists(select from rouse.streams s join rouse.consumer_streams c on c.stream_id = s.id
		where c.acked < s.actionable) or exists(select from rouse.consumers where state <> 'idle')`).Scan(&open); err != nil || open {
		t.Errorf("something is open behind it: %v", err)
	}
	// Its tokens are worth nothing any more.
	stranger := &wire.Client{Base: w.bases[1], HTTP: w.http}
	path := strings.TrimPrefix(first.Callback, w.bases[0])
	path = path[strings.Index(path, "/_electric/"):]
	if a := stranger.Do(t.Context(), "POST", path, map[string]any{"epoch": 1, "wakeId": first.WakeID}, map[string]string{"electric-claim-token": first.ClaimToken}); a.Status < 400 {
		t.Errorf("a finished wake is claimed: %v", a)
	}
	w.send("m-2")
	if second := w.post(); second.Epoch != 2 || second.WakeID == first.WakeID || second.ConsumerID != first.ConsumerID {
		t.Errorf("%+v", second)
	}
	w.eventually("the second is released", func() bool { c := w.claims(); return len(c) == 2 && c[0] == "2 released" })
}

// R8: a receiver that answers otherwise calls back with what it was sent: it
// claims, writes, heartbeats and finishes without any user's credentials, at
// whichever gateway.
func TestTheCallback(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(delivery) (int, string) { return http.StatusAccepted, `{"ok":true}` })
	w.send("m-1")
	d := w.post()
	here := &wire.Client{HTTP: w.http} // the callback is a whole URL
	there := &wire.Client{Base: w.bases[1], HTTP: w.http}
	at := d.Callback[strings.Index(d.Callback, "/_electric/"):]
	ctx := t.Context()
	with := func(token string) map[string]string { return map[string]string{"electric-claim-token": token} }

	if a := here.Do(ctx, "POST", d.Callback, map[string]any{"epoch": d.Epoch, "wakeId": d.WakeID}, with(d.ClaimToken[:len(d.ClaimToken)-3]+"xyz")); a.Status != 401 {
		t.Errorf("a forged token: %v", a)
	}
	if a := here.Append(ctx, d.Callback[:strings.Index(d.Callback, "/_electric/")]+"/job/1/main", d.ClaimToken, `{"type":"text"}`, nil); a.Status != 401 {
		t.Errorf("a claim token writes: %v", a)
	}
	claim := w.must(here.Do(ctx, "POST", d.Callback, map[string]any{"epoch": d.Epoch, "wakeId": d.WakeID}, with(d.ClaimToken)))
	if !claim.OK || claim.WriteToken == "" || claim.Epoch != 1 || claim.LeaseMS <= 0 {
		t.Fatalf("%v: %s", claim, claim.Raw)
	}
	hold := d.ClaimToken
	if claim.ClaimToken != "" {
		hold = claim.ClaimToken
	}
	for i, c := range []*wire.Client{{Base: w.bases[0], HTTP: w.http}, there} {
		w.must(c.Append(ctx, "/job/1/main", claim.WriteToken, fmt.Sprintf(`{"type":"text","key":"t-%d","value":{},"headers":{"operation":"insert"}}`, i), nil))
		if a := w.must(c.Do(ctx, "POST", at, map[string]any{"epoch": d.Epoch}, with(hold))); !a.OK || a.LeaseMS <= 0 {
			t.Errorf("a heartbeat: %s", a.Raw)
		}
	}
	w.send("m-2") // while it works: no second wake, but one behind the release
	done := w.must(there.Do(ctx, "POST", at, map[string]any{"epoch": d.Epoch, "done": true, "acks": []any{map[string]string{"path": d.Streams[0].Path, "offset": d.Streams[0].Offset}}}, with(hold)))
	if !done.OK || done.NextWake == nil || !*done.NextWake {
		t.Errorf("done: %s", done.Raw)
	}
	if a := there.Append(ctx, "/job/1/main", claim.WriteToken, `{"type":"text"}`, nil); a.Status != 401 {
		t.Errorf("a released claim writes: %v", a)
	}
	next := w.post()
	if next.Epoch != 2 || next.WakeID == d.WakeID {
		t.Errorf("%+v", next)
	}
	if c := w.claims(); len(c) == 0 || c[len(c)-1] != "1 released" {
		t.Errorf("claims %v", c)
	}
	rows, _, a := w.person.All(ctx, "/job/1/main")
	w.must(a)
	text := 0
	for _, r := range rows {
		if strings.Contains(string(r), `"key":"t-`) {
			text++
		}
	}
	if text != 2 {
		t.Errorf("%d of its rows are there: %s", text, rows)
	}
}

// A receiver that fails is told again, of the same wake.
func TestToldAgain(t *testing.T) {
	t.Parallel()
	failures := 0
	w := newWorld(t, func(delivery) (int, string) {
		if failures++; failures <= 2 { // the receiver is asked one after the other
			return http.StatusInternalServerError, "no"
		}
		return http.StatusOK, `{"done":true}`
	})
	w.send("m-1")
	for attempt := 1; attempt <= 3; attempt++ {
		d := w.post()
		if d.Epoch != 1 || d.attempt != strconv.Itoa(attempt) {
			t.Errorf("attempt %d: %+v", attempt, d)
		}
	}
	w.eventually("it is done", func() bool { c := w.claims(); return len(c) == 1 && c[0] == "1 released" })
}
