package linear

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checkTimeout bounds a checker's search; not knowing counts as failure.
const checkTimeout = time.Minute

// seed is printed and can be given again by ROUSE_SEED. The calls' own timing
// stays what it is.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if v := os.Getenv("ROUSE_SEED"); v != "" {
		var err error
		if s, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d: ROUSE_SEED=%[1]d makes the same choices again", s)
	return s
}

// load is how long histories are: 1, or more by ROUSE_LINEAR_SECONDS.
func duration(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	if v := os.Getenv("ROUSE_LINEAR_SECONDS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Second
	}
	return short
}

// world is two gateways on one database, with short leases.
type world struct {
	t        *testing.T
	db       *pgtest.DB
	gateways []*servertest.Instance
	clients  []*wire.Client
	start    time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	counts  map[string]int
	acked   map[string]map[string]bool // by consumer: appends that were acknowledged
}

func newWorld(t *testing.T, lease time.Duration) *world {
	return newWorldOn(t, pgtest.New(t), lease, nil)
}

func newWorldOn(t *testing.T, db *pgtest.DB, lease time.Duration, log *slog.Logger) *world {
	t.Helper()
	w := &world{t: t, db: db, counts: map[string]int{}, acked: map[string]map[string]bool{}, start: time.Now()}
	http := wire.NewHTTP(20 * time.Second)
	for range 2 {
		gw := servertest.Start(t, servertest.Options{DB: w.db, Log: log, Configure: func(c *config.Config) {
			c.LeaseTTL = lease
			c.ReaperPeriod = 50 * time.Millisecond
			c.ScanPeriod = 500 * time.Millisecond
		}})
		w.gateways = append(w.gateways, gw)
		w.clients = append(w.clients, &wire.Client{Base: gw.URL, Principal: "user:kyle", HTTP: http})
	}
	t.Cleanup(http.CloseIdleConnections) // before the gateways drain
	w.must(w.clients[0].Type(t.Context(), "chat"), 200, 201)
	w.must(w.clients[0].Runner(t.Context(), "mac"), 200, 201)
	return w
}

func (w *world) must(a wire.Answer, allowed ...int) wire.Answer {
	w.t.Helper()
	for _, s := range allowed {
		if a.Status == s {
			return a
		}
	}
	w.t.Fatalf("%v: %s", a, a.Raw)
	return a
}

type entity struct{ id, consumer, path string }

func (w *world) spawn(id string) entity {
	w.t.Helper()
	w.must(w.clients[0].Spawn(w.t.Context(), "chat", id, "mac"), 200, 201)
	e := entity{id: id, path: "/chat/" + id + "/main"}
	if err := w.db.Conn(w.t).QueryRow(w.t.Context(), `select name from rouse.consumers where entity_url = $1`, "/chat/"+id).Scan(&e.consumer); err != nil {
		w.t.Fatal(err)
	}
	return e
}

// record keeps one call. A call without a definite end stays open for ever.
func (w *world) record(client int, began, ended time.Time, in, out any, indefinite bool, count string) {
	op := porcupine.Operation{ClientId: client, Input: in, Call: began.Sub(w.start).Nanoseconds(), Output: out, Return: ended.Sub(w.start).Nanoseconds()}
	if indefinite {
		op.Return = int64(1) << 62
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[count]++
	if c, ok := in.(mutexCall); ok && indefinite && c.op != "acquire" && c.op != "release" && c.op != "append" {
		return // whether it was carried out or not, nobody else can tell
	}
	w.history = append(w.history, op)
}

func (w *world) atLeast(min map[string]int) {
	w.t.Helper()
	for k, n := range min {
		if w.counts[k] < n {
			w.t.Errorf("only %d × %s, %d are needed for the history to mean something (%v)", w.counts[k], k, n, w.counts)
		}
	}
}

// linearizable fails the test, and keeps the picture, if no order explains the
// history.
func (w *world) linearizable(model porcupine.Model) {
	w.t.Helper()
	began := time.Now()
	res, info := porcupine.CheckOperationsVerbose(model, w.history, checkTimeout)
	w.t.Logf("%d calls checked in %v: %s; %v", len(w.history), time.Since(began).Round(time.Millisecond), res, w.counts)
	if res == porcupine.Ok {
		return
	}
	if f, err := os.CreateTemp("", "rouse-history-*.html"); err == nil {
		if porcupine.Visualize(model, info, f) == nil {
			w.t.Logf("the picture is in %s", f.Name())
		}
		_ = f.Close()
	}
	w.t.Errorf("no order of the calls explains their answers: %s", res)
}

// pause waits without holding anything; it ends early with ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func rng(seed uint64, who int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(who))) }

// position is the number in an offset.
func position(offset string) int64 {
	_, p, _ := strings.Cut(offset, "_")
	n, err := strconv.ParseInt(p, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("offset %q", offset))
	}
	return n
}
