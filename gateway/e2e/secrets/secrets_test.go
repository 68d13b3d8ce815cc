package secrets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var tokenForm = regexp.MustCompile(`rouse_[chw]t_[A-Za-z0-9_-]{20,}`)

// bag collects the tokens that come by.
type bag struct {
	mu     sync.Mutex
	tokens map[string]bool
}

func (b *bag) look(raw []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range tokenForm.FindAll(raw, -1) {
		b.tokens[string(s)] = true
	}
}

// count is how many tokens of a kind there are.
func (b *bag) count(prefix string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.tokens {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

// spread is every form a token could lie somewhere in.
func (b *bag) spread() map[string]string {
	out := map[string]string{}
	for s := range b.tokens {
		sum := sha256.Sum256([]byte(s))
		kind := s[:9]
		out[s[9:]] = kind + " as it is"
		out[hex.EncodeToString([]byte(s[9:]))] = kind + " in hex"
		out[hex.EncodeToString(sum[:])] = kind + " hashed"
	}
	return out
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

type rig struct {
	t    *testing.T
	db   *pgtest.DB
	conn *pgx.Conn
	gw   *servertest.Instance
	c    *wire.Client
	bag  *bag
	log  *lockedBuffer
}

func (r *rig) seen(a wire.Answer, allowed ...int) wire.Answer {
	r.t.Helper()
	r.bag.look(a.Raw)
	for k := range a.Header {
		r.bag.look([]byte(a.Header.Get(k)))
	}
	for _, s := range allowed {
		if a.Status == s {
			return a
		}
	}
	r.t.Fatalf("%v: %s", a, a.Raw)
	return a
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	soon.Until(r.t, what, ok)
}

func (r *rig) exec(sql string) {
	r.t.Helper()
	if _, err := r.conn.Exec(r.t.Context(), sql); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// R12, S10: no token that was handed out is anywhere at rest.
func TestTokensAreNowhereAtRest(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, db: pgtest.New(t), bag: &bag{tokens: map[string]bool{}}, log: &lockedBuffer{}}
	r.conn = r.db.Conn(t)
	r.exec(`create publication everything for all tables`)
	r.exec(`select pg_create_logical_replication_slot('secrets_' || current_database(), 'pgoutput')`)
	client := wire.NewHTTP(20 * time.Second)
	r.gw = servertest.Start(t, servertest.Options{DB: r.db, Log: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Configure: func(c *config.Config) { c.LogLevel = slog.LevelDebug }})
	t.Cleanup(client.CloseIdleConnections)
	r.c = &wire.Client{Base: r.gw.URL, Principal: "user:kyle", HTTP: client}

	var mu sync.Mutex
	hooks := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.bag.look(body)
		mu.Lock()
		defer mu.Unlock()
		hooks++
		if hooks == 1 {
			w.WriteHeader(http.StatusInternalServerError) // once more, and the error is noted
			return
		}
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	t.Cleanup(receiver.Close)

	r.work(t.Context(), receiver.URL)
	mu.Lock()
	if hooks < 2 {
		t.Errorf("%d webhooks", hooks)
	}
	mu.Unlock()
	for prefix, n := range map[string]int{"rouse_ct_": 3, "rouse_ht_": 3, "rouse_wt_": 3} {
		if got := r.bag.count(prefix); got < n {
			t.Errorf("only %d tokens %s came by", got, prefix)
		}
	}
	metrics := r.seen(r.c.Do(t.Context(), "GET", "/metrics", nil, nil), 200)
	places := map[string]string{"the gateway's log": r.log.String(), "the metrics": string(metrics.Raw)}
	r.dump(places)
	checked := 0
	for place, text := range places {
		checked += len(text)
		for s, how := range r.bag.spread() {
			if strings.Contains(text, s) {
				t.Errorf("%s holds a token: %s", place, how)
			}
		}
		if strings.Contains(text, servertest.TestKeys[4:30]) {
			t.Errorf("%s holds the key ring", place)
		}
	}
	// A search that finds nothing must be able to find something.
	for place, want := range map[string]string{"table messages": hex.EncodeToString([]byte("planted-payload")), "the log of changes": hex.EncodeToString([]byte("planted-payload")),
		"table consumer_claims": "planted-failure"} {
		if !strings.Contains(places[place], want) {
			t.Errorf("%s does not even hold what was put there", place)
		}
	}
	t.Logf("%d tokens looked for in %d places, %d bytes", len(r.bag.tokens), len(places), checked)
}

// work takes both kinds of wakes through everything that hands out a token.
func (r *rig) work(ctx context.Context, hook string) {
	c := r.c
	r.seen(c.Type(ctx, "job"), 200, 201)
	r.seen(c.Runner(ctx, "mac"), 200, 201)
	r.seen(c.Spawn(ctx, "job", "a", "mac"), 200, 201)
	r.seen(c.Do(ctx, "PUT", "/_electric/entities/job/hook", map[string]any{"dispatch_policy": map[string]any{"targets": []any{map[string]any{"type": "webhook", "url": hook}}}}, nil), 200, 201)
	r.seen(c.Do(ctx, "POST", "/_electric/runners/mac/heartbeat", map[string]any{}, nil), 200)
	for round := range 3 {
		r.seen(c.Send(ctx, "job", "a", fmt.Sprint(round), "planted-payload"), 200)
		var g wire.Answer
		r.eventually("the wake can be claimed", func() bool {
			// The entry as its owner reads it carries a claim token.
			entries, _, a := c.All(ctx, "/runners/mac/wake")
			r.seen(a, 200)
			if len(entries) <= round {
				return false
			}
			var e struct{ ClaimToken, WakeID string }
			if err := json.Unmarshal(entries[len(entries)-1], &e); err != nil {
				r.t.Fatal(err)
			}
			if round == 1 { // by the callback, as the RFC has it
				g = c.Do(ctx, "POST", "/_electric/wake-callbacks/"+e.WakeID, map[string]any{"wakeId": e.WakeID}, map[string]string{"electric-claim-token": e.ClaimToken})
				g.StreamPath = "/job/a/main"
			} else {
				g = c.Claim(ctx, "mac", fmt.Sprint("claim-", round))
			}
			r.bag.look(g.Raw)
			return g.Status == 200 && g.WriteToken != ""
		})
		consumer := g.ConsumerID
		r.seen(c.Append(ctx, "/job/a/main", g.WriteToken, map[string]any{"n": round}, nil), 200, 204)
		r.seen(c.Append(ctx, "/job/a/error", g.WriteToken, map[string]any{"oops": round}, nil), 200, 201, 204)
		r.seen(c.Heartbeat(ctx, consumer, g.ClaimToken), 200)
		r.seen(c.Heartbeat(ctx, consumer, g.WriteToken), 200)
		_, tail, a := c.All(ctx, "/job/a/main")
		r.seen(a, 200)
		r.seen(c.Ack(ctx, consumer, g.ClaimToken, "/job/a/main", tail), 200)
		// Refusals are written down too, and must not quote.
		r.seen(c.Heartbeat(ctx, "e_nobody", g.ClaimToken), 401)
		r.seen(c.Append(ctx, "/job/hook/main", g.WriteToken, map[string]any{}, nil), 401, 403, 409)
		r.seen(c.Do(ctx, "POST", "/_electric/consumers/"+consumer+"/heartbeat", map[string]any{"token": g.WriteToken}, map[string]string{"electric-claim-token": g.WriteToken + "x"}), 400, 401)
		r.seen(c.Do(ctx, "GET", "/job/a/main?offset="+g.WriteToken, nil, nil), 400)
		r.seen(c.Do(ctx, "POST", "/_electric/runners/mac/heartbeat", map[string]any{"diagnostics": map[string]any{"n": round}}, nil), 200)
		body := map[string]any{"done": true}
		if round == 2 {
			body["error"] = "planted-failure"
		}
		r.seen(c.Do(ctx, "POST", "/_electric/wake-callbacks/"+g.WakeID, body, map[string]string{"electric-claim-token": g.ClaimToken}), 200)
		r.seen(c.Append(ctx, "/job/a/main", g.WriteToken, map[string]any{}, nil), 401, 409)
	}
	r.seen(c.Send(ctx, "job", "hook", "h", "planted-payload"), 200)
	r.eventually("the webhook is done", func() bool {
		var n int
		if err := r.conn.QueryRow(ctx, `select count(*) from rouse.consumer_claims where entity_url = '/job/hook' and status = 'released'`).Scan(&n); err != nil {
			r.t.Fatal(err)
		}
		return n == 1
	})
	for _, path := range []string{"/_electric/entities/job/a", "/_electric/entities/job/a/dispatch", "/_electric/entities/job/a/claims", "/_electric/entities/job/a/wakes", "/_electric/runners/mac"} {
		a := c.Do(ctx, "GET", path, nil, nil)
		if a.Status != 200 || tokenForm.Match(a.Raw) {
			r.t.Errorf("GET %s: status %d, a token in it: %v", path, a.Status, tokenForm.Match(a.Raw))
		}
	}
}

// dump reads every table whole, and the log of all changes.
func (r *rig) dump(places map[string]string) {
	ctx := r.t.Context()
	rows, err := r.conn.Query(ctx, `select table_schema, table_name from information_schema.tables
		where table_type = 'BASE TABLE' and table_schema not in ('pg_catalog', 'information_schema')`)
	if err != nil {
		r.t.Fatal(err)
	}
	type name struct{ Schema, Table string }
	names, err := pgx.CollectRows(rows, pgx.RowToStructByPos[name])
	if err != nil || len(names) < 10 {
		r.t.Fatalf("%d tables, %v", len(names), err)
	}
	for _, n := range names {
		var text string
		if err := r.conn.QueryRow(ctx, `select coalesce(string_agg(t::text, E'\n'), '') from `+pgx.Identifier{n.Schema, n.Table}.Sanitize()+` t`).Scan(&text); err != nil {
			r.t.Fatal(err)
		}
		places["table "+n.Table] = text
	}
	var changes []byte
	if err := r.conn.QueryRow(ctx, `select string_agg(data, '') from pg_logical_slot_get_binary_changes('secrets_' || current_database(), null, null,
		'proto_version', '1', 'publication_names', 'everything', 'messages', 'true')`).Scan(&changes); err != nil {
		r.t.Fatal(err)
	}
	places["the log of changes"] = string(changes)
}
