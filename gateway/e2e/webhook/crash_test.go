package webhook

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// process is a gateway that can be killed.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	client *wire.Client
}

// launch runs `rouse serve` on the database, with a lease of 2 s.
func launch(t *testing.T, db *pgtest.DB) *process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	http := wire.NewHTTP(20 * time.Second)
	t.Cleanup(http.CloseIdleConnections)
	p := &process{cmd: exec.Command(self, "serve"), exited: make(chan struct{}), client: &wire.Client{Base: "http://" + addr, Principal: "user:kyle", HTTP: http}}
	p.cmd.Env = append(os.Environ(), asRouse+"=1", "ROUSE_DATABASE_URL="+db.DSN, "ROUSE_DIRECT_URL="+db.DirectDSN(), "ROUSE_KEYS="+servertest.TestKeys,
		"ROUSE_INSECURE=true", "ROUSE_TYPE_SPAWN=all", "ROUSE_ALLOW_PRIVATE_WEBHOOKS=true", "ROUSE_LISTEN="+addr, "ROUSE_LEASE_TTL=2s", "ROUSE_POOL_SIZE=8")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	soon.Until(t, "the gateway is ready", func() bool { return p.client.Do(t.Context(), "GET", "/readyz", nil, nil).Status == 200 })
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// A gateway that dies between the POST and the answer leaves a wake that is
// sent again, with the same key and the same epoch, so that a receiver that
// did the work knows it: nothing is lost and nothing runs twice.
func TestAGatewayDiesBetweenThePostAndTheAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := launch(t, db)
	var mu sync.Mutex
	ran := map[string]int{} // by idempotency key, as a receiver keeps it
	var attempts []string
	arrived, died := make(chan struct{}, 10), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var n notification
		if err := json.Unmarshal(body, &n); err != nil {
			t.Error(err)
		}
		key := r.Header.Get("Idempotency-Key")
		mu.Lock()
		if ran[key]++; key != n.WakeID || n.Epoch != int64(len(ran)) {
			t.Errorf("key %q, wake %q, epoch %d", key, n.WakeID, n.Epoch)
		}
		first := len(ran) == 1 && ran[key] == 1
		attempts = append(attempts, r.Header.Get("Rouse-Delivery-Attempt"))
		mu.Unlock()
		arrived <- struct{}{}
		if first {
			<-died // the work is done, the answer never arrives
		}
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	t.Cleanup(receiver.Close)
	must := func(a wire.Answer) {
		t.Helper()
		if a.Status < 200 || a.Status > 299 {
			t.Fatalf("%v: %s", a, a.Raw)
		}
	}
	ctx := t.Context()
	must(first.client.Type(ctx, "job"))
	must(first.client.Do(ctx, "PUT", "/_electric/entities/job/1", map[string]any{
		"dispatch_policy": map[string]any{"targets": []any{map[string]any{"type": "webhook", "url": receiver.URL}}}}, nil))
	must(first.client.Send(ctx, "job", "1", "m-1", "hello"))
	select {
	case <-arrived:
	case <-time.After(30 * time.Second):
		close(died)
		t.Fatal("nothing is posted")
	}
	first.kill()
	close(died)
	second := launch(t, db)
	conn := db.Conn(t)
	soon.Until(t, "the wake is done", func() bool {
		var done bool
		err := conn.QueryRow(ctx, `select coalesce(bool_and(status = 'released'), false) from rouse.consumer_claims`).Scan(&done)
		return err == nil && done
	})
	mu.Lock()
	if len(ran) != 1 || len(attempts) != 2 || attempts[1] != "2" {
		t.Errorf("keys %v, attempts %v", ran, attempts)
	}
	mu.Unlock()
	var epochs, unread int
	if err := conn.QueryRow(ctx, `select (select max(epoch) from rouse.consumers), (select count(*) from rouse.streams s join rouse.consumer_streams c
		on c.stream_id = s.id where c.acked < s.actionable)`).Scan(&epochs, &unread); err != nil || epochs != 1 || unread != 0 {
		t.Errorf("%d epochs, %d unread, %v", epochs, unread, err)
	}
	must(second.client.Send(ctx, "job", "1", "m-2", "hello"))
	soon.Until(t, "the next message has a wake of its own", func() bool {
		var done int
		err := conn.QueryRow(ctx, `select count(*) from rouse.wake_notifications where claim_status = 'completed'`).Scan(&done)
		return err == nil && done == 2
	})
}

// The retry schedule is a row: a gateway that starts later goes on with it, at
// the time that was set, with the next attempt.
func TestTheRetryScheduleOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var mu sync.Mutex
	var attempts []int
	answers := make(chan int, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n, err := strconv.Atoi(r.Header.Get("Rouse-Delivery-Attempt"))
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		attempts = append(attempts, n)
		mu.Unlock()
		status := 503
		select {
		case status = <-answers:
		default:
			w.Header().Set("Retry-After", "3600")
		}
		w.WriteHeader(status)
		if status == 200 {
			_, _ = io.WriteString(w, `{"done":true}`)
		}
	}))
	t.Cleanup(receiver.Close)
	h := newHooked(t, servertest.Options{DB: db})
	h.spawn("1", receiver.URL)
	h.send("1", "m-1")
	conn := db.Conn(t)
	var wake string
	var left time.Duration
	soon.Until(t, "the refusal is recorded", func() bool {
		var seconds float64
		err := conn.QueryRow(t.Context(), `select n.wake_id::text, extract(epoch from n.next_attempt_at - clock_timestamp()) from rouse.wake_notifications n
			join rouse.delivery_attempts a using (service_id, wake_id) where a.outcome = 'retry' and a.status_code = 503`).Scan(&wake, &seconds)
		left = time.Duration(seconds * float64(time.Second))
		return err == nil
	})
	if left < 50*time.Minute || left > time.Hour {
		t.Errorf("due in %v, the receiver asked for an hour", left)
	}
	if err := h.in.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The hour is over.
	if _, err := conn.Exec(t.Context(), `update rouse.wake_notifications set next_attempt_at = clock_timestamp() where wake_id = $1 and resolved_at is null`, wake); err != nil {
		t.Fatal(err)
	}
	answers <- 200
	servertest.Start(t, servertest.Options{DB: db, PluginProcesses: true, Configure: func(c *config.Config) { c.ReaperPeriod = 50 * time.Millisecond }})
	soon.Until(t, "it is done", func() bool {
		var done bool
		err := conn.QueryRow(t.Context(), `select claim_status = 'completed' from rouse.wake_notifications where wake_id = $1`, wake).Scan(&done)
		return err == nil && done
	})
	mu.Lock()
	defer mu.Unlock()
	if len(attempts) != 2 || attempts[0] != 1 || attempts[1] != 2 {
		t.Errorf("attempts %v", attempts)
	}
}
