package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/dispatch"
	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/transports/webhook"
)

const kyle = "/principal/user%3Akyle"

type rig struct {
	t    *testing.T
	db   *pgtest.DB
	conn *pgx.Conn
	st   *store.Store
	svc  *claims.Service
}

func newRig(t *testing.T) *rig {
	t.Helper()
	db := pgtest.New(t)
	st, err := store.Open(t.Context(), store.Options{DSN: db.DSN, MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	keys, err := claims.ParseKeys(claims.NewKeys())
	if err != nil {
		t.Fatal(err)
	}
	svc := claims.New(context.WithoutCancel(t.Context()), st, claims.NewTokens(keys), claims.Config{PublicURL: "http://rouse.example"})
	t.Cleanup(func() { _ = svc.Stop(context.Background()) })
	r := &rig{t: t, db: db, conn: db.Conn(t), st: st, svc: svc}
	r.exec(`select rouse.entity_type_put(1, 'chat', $1, false, '', null, null, null, null, null, null, null, null)`, kyle)
	r.exec(`select rouse.runner_register(1, 'mac', $1, false, $1, 'Mac', 'local', 'enabled', '[]', null)`, kyle)
	return r
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.conn.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func (r *rig) count(sql string, args ...any) (n int) {
	r.t.Helper()
	if err := r.conn.QueryRow(r.t.Context(), sql, args...).Scan(&n); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (r *rig) spawn(url, policy string) {
	r.t.Helper()
	r.exec(`select rouse.entity_spawn(1, $1, 'chat', 1, $2, false, false, '{}', '{}', null, $3, null,
		'{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{}}', null)`, url, kyle, policy)
	r.exec(`update rouse.consumers set lease_ttl_ms = 400 where entity_url = $1`, url)
}

func (r *rig) push(url string) {
	r.t.Helper()
	r.exec(`select rouse._stream_push(s.id, '{"a":1}', true) from rouse.streams s where s.path = substr($1, 2) || '/main'`, url)
}

// gateway is a dispatch of its own without a feed, so without any signal.
func (r *rig) gateway(ts ...contract.Transport) *dispatch.Dispatch {
	r.t.Helper()
	d, err := dispatch.New(dispatch.Config{ScanPeriodDown: 50 * time.Millisecond, ReapPeriod: 50 * time.Millisecond, ReapGrace: time.Millisecond},
		dispatch.Deps{DB: r.st, Notify: r.svc, Transports: ts})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := d.Start(context.WithoutCancel(r.t.Context())); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := d.Stop(ctx); err != nil {
			r.t.Error(err)
		}
	})
	return d
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	soon.Until(r.t, what, ok)
}

// R23: with every signal suppressed everything is still woken, by two gateways
// that know nothing of each other; each once.
func TestEverythingRunsWithoutSignals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.gateway()
	r.gateway()
	const n = 30
	for i := range n {
		url := fmt.Sprintf("/chat/%d", i)
		r.spawn(url, `{"targets":[{"type":"runner","runnerId":"mac"}]}`)
		r.push(url)
	}
	r.eventually("all are woken", func() bool { return r.count(`select count(*) from rouse.consumers where state = 'waking'`) == n })
	if got := r.count(`select count(*) from rouse.wake_notifications`); got != n {
		t.Errorf("%d wakes for %d entities", got, n)
	}
	// A dead holder: claimed, never heard of again.
	if _, err := r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Path: "chat/3/main", Holder: kyle}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.eventually("its lease ends and the next wake is there", func() bool {
		return r.count(`select count(*) from rouse.consumers where entity_url = '/chat/3' and state = 'waking' and epoch = 2`) == 1
	})
	t.Logf("claimable again %v after the grant; a lease is 400 ms", time.Since(began).Round(time.Millisecond))
	if got := r.count(`select count(*) from rouse.consumer_claims where status = 'expired'`); got != 1 {
		t.Errorf("%d expired claims", got)
	}
}

// R11: every notice told to two routers several times, in any order.
func TestDuplicateNoticesWakeOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.gateway(), r.gateway()
	const n = 10
	var batch []feed.Notice
	for i := range n {
		url := fmt.Sprintf("/chat/%d", i)
		r.spawn(url, `{"targets":[{"type":"runner","runnerId":"mac"}]}`)
		r.push(url)
		var note feed.Notice
		if err := r.conn.QueryRow(t.Context(), `select id, tail from rouse.streams where path = substr($1, 2) || '/main'`, url).Scan(&note.Stream, &note.Tail); err != nil {
			t.Fatal(err)
		}
		note.Flags = feed.Actionable
		batch = append(batch, note, note)
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			d := a
			if i%2 == 0 {
				d = b
			}
			d.Router().Notices(t.Context(), feed.NewBatch(0, batch, nil))
		})
	}
	wg.Wait()
	r.eventually("all are woken", func() bool { return r.count(`select count(*) from rouse.consumers where state = 'waking'`) == n })
	if got := r.count(`select count(*) from rouse.wake_notifications`); got != n {
		t.Errorf("%d wakes for %d entities", got, n)
	}
	if got := r.count(`select count(*) from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = 'runners/mac/wake'`); got != n {
		t.Errorf("%d entries for %d wakes", got, n)
	}
}

// A worker that dies with a wake in hand: the loan ends, another one sends it
// again under the same key, and the work is done once.
func TestWorkerDiesAndTheWakeIsSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	keys := map[string]int{}
	attempts := map[string]bool{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		mu.Lock()
		keys[q.Header.Get("Idempotency-Key")]++
		attempts[q.Header.Get("Rouse-Delivery-Attempt")] = true
		mu.Unlock()
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	t.Cleanup(receiver.Close)
	policy, _ := json.Marshal(map[string]any{"targets": []any{map[string]any{"type": "webhook", "url": receiver.URL}}})
	r.spawn("/chat/hook", string(policy))
	r.push("/chat/hook")
	r.exec(`select rouse.dispatch_route(array[id], array[actionable]) from rouse.streams where path = 'chat/hook/main'`)
	// The first worker takes it and is never heard of again.
	lent, _, err := r.st.DeliveryLend(t.Context(), 10, 10, nil)
	if err != nil || len(lent) != 1 {
		t.Fatalf("%v %v", lent, err)
	}
	tr := webhook.New(webhook.Config{AllowPrivate: true})
	t.Cleanup(tr.Close)
	r.gateway(tr)
	r.gateway(tr)
	r.eventually("it is done", func() bool {
		return r.count(`select count(*) from rouse.consumer_claims where status = 'released'`) == 1
	})
	mu.Lock()
	defer mu.Unlock()
	if len(keys) != 1 || keys[lent[0].WakeID] != 1 || !attempts["2"] {
		t.Errorf("received %v, attempts %v", keys, attempts)
	}
	if got := r.count(`select count(*) from rouse.consumers where state = 'idle' and epoch = 1`); got != 1 {
		t.Error("the mutex is not at rest")
	}
	// The dead one's late answer changes nothing.
	if became, err := r.st.DeliveryResult(t.Context(), lent[0], "done", 0, 200, ""); err != nil || became != "resolved" {
		t.Errorf("late answer: %s %v", became, err)
	}
}

// R10: failures are retried by the schedule until one works; 410 is the end.
func TestWebhookIsRetriedUntilItWorks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	calls := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		mu.Lock()
		defer mu.Unlock()
		calls++
		switch {
		case q.URL.Path == "/gone":
			w.WriteHeader(http.StatusGone)
		case calls == 1:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			_, _ = io.WriteString(w, `{"done":true}`)
		}
	}))
	t.Cleanup(receiver.Close)
	tr := webhook.New(webhook.Config{AllowPrivate: true})
	t.Cleanup(tr.Close)
	for url, path := range map[string]string{"/chat/works": "/", "/chat/gone": "/gone"} {
		r.spawn(url, fmt.Sprintf(`{"targets":[{"type":"webhook","url":%q}]}`, receiver.URL+path))
	}
	r.push("/chat/works")
	r.gateway(tr)
	began := time.Now()
	r.eventually("it is done", func() bool {
		return r.count(`select count(*) from rouse.consumer_claims where status = 'released' and entity_url = '/chat/works'`) == 1
	})
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("retried after %v, the schedule says 1 s", took)
	}
	r.push("/chat/gone")
	r.eventually("it is given up", func() bool {
		return r.count(`select count(*) from rouse.wake_notifications where delivery_status = 'failed' and entity_url = '/chat/gone'`) == 1
	})
	if got := r.count(`select count(*) from rouse.delivery_attempts where outcome = 'permanent' and status_code = 410`); got != 1 {
		t.Errorf("%d permanent attempts", got)
	}
}
