package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/plugins/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a real server.
func start(t *testing.T, port int, change ...func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}
	for _, f := range change {
		f(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// receiver is a stream with a consumer on it.
func receiver(t *testing.T, s *server.Server, subjects ...string) jetstream.Consumer {
	t.Helper()
	nc, err := client.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "wakes", Subjects: subjects})
	if err != nil {
		t.Fatal(err)
	}
	c, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func open(t *testing.T, cfg Config) *Transport {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

func send(t *testing.T, tr *Transport, subject, id string, attempt int, limit time.Duration) contract.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return tr.Deliver(ctx, contract.Delivery{WakeID: id, Service: "default", Attempt: attempt, Target: json.RawMessage(fmt.Sprintf(`{"type":"nats","subject":%q}`, subject)),
		Notification: json.RawMessage(`{"epoch":7}`), Signature: "t=1,kid=a,ed25519=b"})
}

func TestAWakeIsInTheStreamOnce(t *testing.T) {
	t.Parallel()
	s := start(t, -1)
	c := receiver(t, s, "wakes.>")
	tr := open(t, Config{URL: s.ClientURL()})
	for range 3 { // the same attempt again, and a later one
		if r := send(t, tr, "wakes.builds", "w1", 1, 10*time.Second); r.Outcome != contract.Accepted {
			t.Fatalf("got %+v", r)
		}
	}
	if r := send(t, tr, "wakes.builds", "w1", 2, 10*time.Second); r.Outcome != contract.Accepted {
		t.Fatalf("got %+v", r)
	}
	for attempt := 1; attempt <= 2; attempt++ {
		m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		h := m.Headers()
		if string(m.Data()) != `{"epoch":7}` || m.Subject() != "wakes.builds" || h.Get("Idempotency-Key") != "w1" || h.Get("Webhook-Signature") != "t=1,kid=a,ed25519=b" ||
			h.Get("Rouse-Service") != "default" || h.Get("Rouse-Delivery-Attempt") != fmt.Sprint(attempt) {
			t.Errorf("got %s %s %v", m.Subject(), m.Data(), h)
		}
	}
	if m, err := c.Next(jetstream.FetchMaxWait(200 * time.Millisecond)); err == nil {
		t.Errorf("there is one more: %v", m.Headers())
	}
	if err := tr.Health(); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeTakenIsSaid(t *testing.T) {
	t.Parallel()
	s := start(t, -1, func(o *server.Options) { o.MaxPayload = 2048 })
	receiver(t, s, "wakes.>")
	tr := open(t, Config{URL: s.ClientURL(), Subjects: []string{"wakes.*", "other.>"}})
	if r := send(t, tr, "other.x", "w", 1, 10*time.Second); r.Outcome != contract.Retry || r.Error != "no stream takes the subject" {
		t.Errorf("got %+v", r)
	}
	if r := send(t, tr, "secret.x", "w", 1, 10*time.Second); r.Outcome != contract.Permanent {
		t.Errorf("got %+v", r)
	}
	great := contract.Delivery{WakeID: "w", Target: json.RawMessage(`{"subject":"wakes.a"}`), Notification: make(json.RawMessage, 4096)}
	if r := tr.Deliver(t.Context(), great); r.Outcome != contract.Permanent {
		t.Errorf("got %+v", r)
	}
}

// A server that is away is waited for, from the start and later.
func TestAServerThatIsAwayIsNoFailureForGood(t *testing.T) {
	t.Parallel()
	s := start(t, -1)
	port := s.Addr().String()
	var number int
	if _, err := fmt.Sscanf(port[len("127.0.0.1:"):], "%d", &number); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	s.WaitForShutdown()
	tr := open(t, Config{URL: fmt.Sprintf("nats://127.0.0.1:%d", number)})
	if err := tr.Health(); err == nil {
		t.Error("it is well without a server")
	}
	if r := send(t, tr, "wakes.a", "w", 1, 300*time.Millisecond); r.Outcome != contract.Retry {
		t.Errorf("got %+v", r)
	}
	again := start(t, number)
	receiver(t, again, "wakes.>")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for send(t, tr, "wakes.a", "w", 2, 2*time.Second).Outcome != contract.Accepted {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the server is back and nothing is delivered")
		}
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	tr := &Transport{cfg: Config{Subjects: []string{"a.*.c", "b.>"}}}
	for s, ok := range map[string]bool{"a.x.c": true, "a.x.y.c": false, "a.c": false, "b.x": true, "b.x.y": true, "b": false, "c": false,
		"b.*": false, "b.>": false, "": false, "b..x": false, "b. x": false, "$JS.API": false, "$SYS.x": false, "b.x\r\nPUB": false} {
		target, _ := json.Marshal(map[string]string{"subject": s})
		if err := tr.ValidateTarget(target); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
	all := &Transport{}
	for s, ok := range map[string]bool{"wakes.x": true, "$JS.API": false, "$KV.bucket.key": false, "$O.bucket.C.x": false} {
		target, _ := json.Marshal(map[string]string{"subject": s})
		if err := all.ValidateTarget(target); (err == nil) != ok {
			t.Errorf("without a list, %q: %v", s, err)
		}
	}
	for _, cfg := range []Config{{URL: "nats://127.0.0.1:1", Subjects: []string{"a b"}}, {URL: "nats://127.0.0.1:1", Credentials: "/nonexistent"}, {URL: "nats://127.0.0.1:1", NKey: "/nonexistent"},
		{URL: "nats://127.0.0.1:1", Certificate: "/nonexistent", Key: "/nonexistent"}, {URL: "http://user:hunter2@127.0.0.1:1 x"}} {
		if tr, err := New(cfg); err == nil {
			tr.Close()
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestThePluginSaysWhatItIs(t *testing.T) {
	t.Parallel()
	p := Plugin()
	if r := p.Deliver(t.Context(), contract.Delivery{}); r.Outcome != contract.Retry {
		t.Errorf("without a configuration: %+v", r)
	}
	s := start(t, -1)
	receiver(t, s, "wakes.>")
	for range 2 {
		if err := p.Configure(t.Context(), json.RawMessage(fmt.Sprintf(`{"url":%q}`, s.ClientURL()))); err != nil {
			t.Fatal(err)
		}
	}
	defer p.Close()
	if err := p.ValidateTarget(t.Context(), json.RawMessage(`{"subject":"wakes.a"}`)); err != nil {
		t.Error(err)
	}
	if r := p.Deliver(t.Context(), contract.Delivery{WakeID: "w", Target: json.RawMessage(`{"subject":"wakes.a"}`), Notification: json.RawMessage(`{}`)}); r.Outcome != contract.Accepted {
		t.Errorf("got %+v", r)
	}
	if err := p.Health(t.Context()); err != nil {
		t.Error(err)
	}
}
