package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/gateway/pace"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

func dueWake(id string, loan time.Duration) store.DueDelivery {
	return store.DueDelivery{Service: 1, ServiceName: "default", WakeID: id, ConsumerName: "e_1", Epoch: 7, Attempt: 2, Lease: loan,
		Target: json.RawMessage(`{"type":"webhook","url":"https://hooks.example"}`), Notification: json.RawMessage(`{"wakeId":"` + id + `","epoch":7,"triggerEvent":"message_received"}`)}
}

// What a notification holds reaches the receiver as it is stored, and a
// subscription's wakes are answered where the subscription lives.
func TestPayloads(t *testing.T) {
	t.Parallel()
	d := newDelivery(&fakeDB{}, fakeNotifier{}, nil, slog.New(slog.DiscardHandler), nil)
	w := dueWake("w1", time.Minute)
	w.Notification = json.RawMessage(`{"wakeId":"w1","entity":{"spawnArgs":{"n":12345678901234567890,"s":"<&>"}}}`)
	raw, err := d.payload(w, dispatchTarget{Type: "webhook", SubscriptionID: "chosen", Mount: "/elsewhere"})
	if err != nil || !strings.Contains(string(raw), "12345678901234567890") {
		t.Errorf("%s %v", raw, err)
	}
	for _, c := range []struct{ consumer, mount, subscription, callback string }{
		{"e_1", "", "chosen", "https://rouse.example/default/w1"},
		// An entity's target is what its owner wrote.
		{"e_1", "/elsewhere", "chosen", "https://rouse.example/default/w1"},
		{"s_1", "", "chosen", "https://rouse.example/default/chosen"},
		{"s_1", "/v1/stream", "chosen", "https://rouse.example/v1/stream/default/chosen"},
	} {
		w.ConsumerName = c.consumer
		raw, err := d.payload(w, dispatchTarget{Type: "webhook", SubscriptionID: c.subscription, Mount: c.mount})
		var got struct {
			CallbackURL    string `json:"callback_url"`
			SubscriptionID string `json:"subscription_id"`
		}
		if err != nil || json.Unmarshal(raw, &got) != nil || got.CallbackURL != c.callback || got.SubscriptionID != "chosen" {
			t.Errorf("%+v: %+v %v", c, got, err)
		}
	}
}

// once lends the wakes at the first call.
func once(wakes ...store.DueDelivery) func(int, int) ([]store.DueDelivery, error) {
	return func(n, _ int) ([]store.DueDelivery, error) {
		if n == 1 {
			return wakes, nil
		}
		return nil, nil
	}
}

func TestDeliveryIsWholeAndRecorded(t *testing.T) {
	t.Parallel()
	for _, outcome := range []contract.Outcome{contract.Accepted, contract.Done, contract.Retry, contract.Permanent, contract.Unknown} {
		var got contract.Delivery
		db := &fakeDB{take: once(dueWake("w1", time.Minute))}
		d := running(t, Config{}, Deps{DB: db, Transports: []contract.Transport{fakeTransport{func(_ context.Context, x contract.Delivery) contract.Result {
			got = x
			return contract.Result{Outcome: outcome}
		}}}})
		d.Delivery().Wakes(t.Context(), []string{"w1"})
		soon.Until(t, "the result", func() bool { return db.count(func() int { return len(db.results) }) == 1 })
		if db.results[0] != string(outcome) {
			t.Errorf("recorded %s, not %s", db.results[0], outcome)
		}
		if got.WakeID != "w1" || got.Attempt != 2 || got.Service != "default" {
			t.Errorf("delivered %s %d %s", got.WakeID, got.Attempt, got.Service)
		}
		var m map[string]any
		if err := json.Unmarshal(got.Notification, &m); err != nil {
			t.Fatal(err)
		}
		for k, want := range map[string]any{"wakeId": "w1", "wake_id": "w1", "generation": 7.0, "epoch": 7.0, "subscription_id": "e_1", "claimToken": "rouse_ct_test",
			"callback_token": "rouse_ct_test", "callback_url": "https://rouse.example/default/w1", "triggerEvent": "inbox"} {
			if m[k] != want {
				t.Errorf("%s: %v, not %v", k, m[k], want)
			}
		}
	}
}

// The log tells of a commit before others see it: the wake is looked for again
// at once, not at the next tick, and not for ever when another gateway has it.
func TestAWakeThatIsNotVisibleYetIsLookedForAgain(t *testing.T) {
	t.Parallel()
	delivered := make(chan string, 1)
	db := &fakeDB{take: func(n, _ int) ([]store.DueDelivery, error) {
		if n == 3 {
			return []store.DueDelivery{dueWake("w", time.Minute)}, nil
		}
		return nil, nil
	}}
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	d := newDelivery(db, fakeNotifier{}, []contract.Transport{fakeTransport{func(_ context.Context, x contract.Delivery) contract.Result {
		delivered <- x.WakeID
		return contract.Result{Outcome: contract.Accepted}
	}}}, slog.New(slog.DiscardHandler), m)
	d.poll = time.Hour
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.run(ctx) }()
	defer func() { stop(); <-ended }()
	looks := func() int { return db.count(func() int { return db.taken }) }
	d.Wakes(t.Context(), []string{"w"})
	select {
	case <-delivered:
	case <-time.After(20 * time.Second):
		t.Fatalf("after %d looks it is not delivered", looks())
	}
	d.Wakes(t.Context(), []string{"another gateway's"})
	// Three and seven; the end of the delivery is one more, or falls together with
	// another.
	soon.Until(t, "the last look", func() bool { return looks() >= 10 })
	before := looks()
	pace.Rest(t.Context(), 4*lastLook)
	if after := looks(); after > before+2 {
		t.Errorf("it looks on: %d, %d", before, after)
	}
}

func TestDeliveriesThatCannotBe(t *testing.T) {
	t.Parallel()
	never := fakeTransport{func(context.Context, contract.Delivery) contract.Result {
		t.Error("delivered")
		return contract.Result{}
	}}
	for name, c := range map[string]struct {
		edit func(*store.DueDelivery)
		want contract.Outcome
	}{
		"unknown transport":   {func(d *store.DueDelivery) { d.Target = json.RawMessage(`{"type":"pigeon"}`) }, contract.Retry},
		"no type":             {func(d *store.DueDelivery) { d.Target = json.RawMessage(`{}`) }, contract.Retry},
		"broken target":       {func(d *store.DueDelivery) { d.Target = json.RawMessage(`[`) }, contract.Permanent},
		"broken notification": {func(d *store.DueDelivery) { d.Notification = json.RawMessage(`7`) }, contract.Permanent},
	} {
		w := dueWake("w", time.Minute)
		c.edit(&w)
		db := &fakeDB{take: once(w)}
		d := running(t, Config{}, Deps{DB: db, Transports: []contract.Transport{never}})
		d.Delivery().Gap(t.Context(), "start")
		soon.Until(t, name, func() bool { return db.count(func() int { return len(db.results) }) == 1 })
		if db.results[0] != string(c.want) {
			t.Errorf("%s: %s", name, db.results[0])
		}
	}
}

func TestResultsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	db := &fakeDB{take: once(dueWake("w", time.Minute)), result: func(n int, _ store.DueDelivery, _ string) (string, error) {
		if n < 3 {
			return "", errDown
		}
		return "delivered", nil
	}}
	var sent atomic.Int32
	d := running(t, Config{}, Deps{DB: db, Transports: []contract.Transport{fakeTransport{func(context.Context, contract.Delivery) contract.Result {
		sent.Add(1)
		return contract.Result{Outcome: contract.Accepted}
	}}}})
	d.Delivery().Wakes(t.Context(), nil)
	soon.Until(t, "the result is recorded", func() bool { return db.count(func() int { return len(db.results) }) == 3 })
	if sent.Load() != 1 {
		t.Errorf("sent %d times", sent.Load())
	}
}

func TestTakingOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	db := &fakeDB{take: func(n, _ int) ([]store.DueDelivery, error) {
		switch n {
		case 1:
			return nil, errDown
		case 2:
			return []store.DueDelivery{dueWake("w", time.Minute)}, nil
		}
		return nil, nil
	}}
	d := running(t, Config{}, Deps{DB: db, Transports: []contract.Transport{fakeTransport{func(context.Context, contract.Delivery) contract.Result {
		return contract.Result{Outcome: contract.Accepted}
	}}}})
	d.Delivery().Wakes(t.Context(), nil)
	soon.Until(t, "it is delivered at a later tick", func() bool { return db.count(func() int { return len(db.results) }) == 1 })
}

// Receivers that do not answer use up the slots meant for such, no more; what
// is due for them waits in the database.
func TestSlotsAreBounded(t *testing.T) {
	t.Parallel()
	const all = 800
	release := make(chan struct{})
	var mu sync.Mutex
	now, most, lent := 0, 0, 0
	db := &fakeDB{lend: func(limit, each int, _ map[string]int) ([]store.DueDelivery, bool) {
		mu.Lock()
		defer mu.Unlock()
		var out []store.DueDelivery
		for ; each > 0 && lent < all && len(out) < limit; lent++ {
			w := dueWake(fmt.Sprint(lent), time.Minute)
			w.Receiver = w.WakeID
			out = append(out, w)
		}
		return out, len(out) == limit
	}}
	d := running(t, Config{}, Deps{DB: db, Transports: []contract.Transport{fakeTransport{func(context.Context, contract.Delivery) contract.Result {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		<-release
		mu.Lock()
		now--
		mu.Unlock()
		return contract.Result{Outcome: contract.Accepted}
	}}}})
	d.Delivery().Wakes(t.Context(), nil)
	soon.Until(t, "all slots for receivers that nothing is known of are in use", func() bool { mu.Lock(); defer mu.Unlock(); return now >= troubledSlots })
	mu.Lock()
	if lent > troubledSlots+deliveryPage {
		t.Errorf("%d are lent", lent)
	}
	mu.Unlock()
	close(release)
	soon.Until(t, "all are delivered", func() bool { return db.count(func() int { return len(db.results) }) == all })
	if most > troubledSlots+deliveryPage {
		t.Errorf("%d at once", most)
	}
}

// A transport gets no longer than its loan, since then the wake is due again.
func TestLoanBoundsTheTransport(t *testing.T) {
	t.Parallel()
	db := &fakeDB{take: once(dueWake("w", 200*time.Millisecond))}
	var left time.Duration
	d := running(t, Config{}, Deps{DB: db, Transports: []contract.Transport{fakeTransport{func(ctx context.Context, _ contract.Delivery) contract.Result {
		deadline, ok := ctx.Deadline()
		if !ok {
			t.Error("no deadline")
		}
		left = time.Until(deadline)
		<-ctx.Done()
		return contract.Result{Outcome: contract.Retry}
	}}}})
	d.Delivery().Wakes(t.Context(), nil)
	soon.Until(t, "the deadline", func() bool { return db.count(func() int { return len(db.results) }) == 1 })
	if left >= 200*time.Millisecond {
		t.Errorf("%v for a loan of 200 ms", left)
	}
}

// Stop waits for a delivery under way, and records its answer.
func TestStopRecordsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	db := &fakeDB{take: once(dueWake("w", time.Minute))}
	started, answer := make(chan struct{}), make(chan struct{})
	d, err := New(Config{ReapGrace: time.Hour, ScanPeriod: time.Hour, ScanPeriodDown: time.Hour}, Deps{DB: db, Notify: fakeNotifier{}, Transports: []contract.Transport{fakeTransport{func(context.Context, contract.Delivery) contract.Result {
		close(started)
		<-answer
		return contract.Result{Outcome: contract.Done}
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	d.Delivery().Wakes(t.Context(), nil)
	<-started
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.Stop(short); err == nil {
		t.Error("did not wait")
	}
	close(answer)
	if err := d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if len(db.results) != 1 || db.results[0] != "done" {
		t.Errorf("recorded %v", db.results)
	}
}

// onceTransport must not send a wake twice.
type onceTransport struct {
	fakeTransport
	err error
}

func (o onceTransport) AtMostOnce(context.Context) (bool, error) { return o.err == nil, o.err }

func TestWhatMayHaveArrivedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	fake := fakeTransport{func(context.Context, contract.Delivery) contract.Result {
		return contract.Result{Outcome: contract.Accepted}
	}}
	d := &Delivery{db: &fakeDB{}}
	for _, c := range []struct {
		wake    string
		attempt int
		t       contract.Transport
		want    contract.Outcome
	}{
		{"uncertain", 1, onceTransport{fakeTransport: fake}, ""},
		{"uncertain", 2, onceTransport{fakeTransport: fake}, contract.Unknown},
		{"certain", 2, onceTransport{fakeTransport: fake}, ""},
		{"certain", 2, onceTransport{fakeTransport: fake, err: context.DeadlineExceeded}, contract.Retry},
		{"uncertain", 2, fake, ""},
	} {
		r, settled := d.repeated(t.Context(), c.t, store.DueDelivery{WakeID: c.wake, Attempt: c.attempt})
		if settled != (c.want != "") || r.Outcome != c.want {
			t.Errorf("%s, attempt %d: %+v %v, want %q", c.wake, c.attempt, r, settled, c.want)
		}
	}
}
