package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("the database is away")

// fakeDB answers what its functions say, and keeps what it was asked.
type fakeDB struct {
	mu      sync.Mutex
	routed  [][]store.StreamAt
	scans   []int64
	reaps   int
	purges  int
	taken   int
	results []string

	route func(n int, at []store.StreamAt) ([]store.Routed, error)
	scan  func(n int, after int64, limit int) ([]store.StreamAt, error)
	reap  func(n int) (int, int, int, error)

	subscriptions func(after int64, limit int) ([]store.StreamAt, int64, error)
	take          func(n, limit int) ([]store.DueDelivery, error)
	lend          func(limit, each int, room map[string]int) ([]store.DueDelivery, bool) // instead of take
	result        func(n int, d store.DueDelivery, outcome string) (string, error)
}

func (f *fakeDB) DispatchRoute(_ context.Context, at []store.StreamAt) ([]store.Routed, error) {
	f.mu.Lock()
	f.routed = append(f.routed, append([]store.StreamAt(nil), at...))
	n := len(f.routed)
	f.mu.Unlock()
	if f.route != nil {
		return f.route(n, at)
	}
	return outcomes("minted", at), nil
}

func outcomes(outcome string, at []store.StreamAt) []store.Routed {
	out := make([]store.Routed, len(at))
	for i, a := range at {
		out[i] = store.Routed{Stream: a.Stream, Outcome: outcome}
	}
	return out
}

func (f *fakeDB) DispatchScan(_ context.Context, after int64, limit int) ([]store.StreamAt, error) {
	f.mu.Lock()
	f.scans = append(f.scans, after)
	n := len(f.scans)
	f.mu.Unlock()
	if f.scan != nil {
		return f.scan(n, after, limit)
	}
	return nil, nil
}

func (f *fakeDB) SubscriptionScan(_ context.Context, after int64, limit int) ([]store.StreamAt, int64, error) {
	if f.subscriptions != nil {
		return f.subscriptions(after, limit)
	}
	return nil, 0, nil
}

func (f *fakeDB) SubscriptionTidy(context.Context, int32) (bool, error) { return false, nil }

func (f *fakeDB) ClaimReap(context.Context, int) (int, int, int, error) {
	f.mu.Lock()
	f.reaps++
	n := f.reaps
	f.mu.Unlock()
	if f.reap != nil {
		return f.reap(n)
	}
	return 0, 0, 0, nil
}

func (f *fakeDB) StreamPurge(context.Context, int32) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purges++
	return f.purges < 5, nil
}

func (f *fakeDB) DeliveryLend(_ context.Context, limit, each int, room map[string]int) ([]store.DueDelivery, bool, error) {
	f.mu.Lock()
	f.taken++
	n := f.taken
	f.mu.Unlock()
	if f.lend != nil {
		due, more := f.lend(limit, each, room)
		return due, more, nil
	}
	if f.take != nil {
		due, err := f.take(n, limit)
		return due, len(due) == limit, err
	}
	return nil, false, nil
}

func (f *fakeDB) DeliveryUncertain(_ context.Context, d store.DueDelivery) (bool, error) {
	return d.WakeID == "uncertain", nil
}

func (f *fakeDB) DeliveryResult(_ context.Context, d store.DueDelivery, outcome string, _ time.Duration, _ int, _ string) (string, error) {
	f.mu.Lock()
	f.results = append(f.results, outcome)
	n := len(f.results)
	f.mu.Unlock()
	if f.result != nil {
		return f.result(n, d, outcome)
	}
	return outcome, nil
}

func (f *fakeDB) count(of func() int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return of()
}

// fakeNotifier fills in what the claims room would.
type fakeNotifier struct{}

func (fakeNotifier) ClaimToken(int32, int64, string) string { return "rouse_ct_test" }
func (fakeNotifier) Callback(service, wake string) string {
	return "https://rouse.example/" + service + "/" + wake
}
func (fakeNotifier) SubscriptionCallback(service, mount, subscription string) string {
	return "https://rouse.example" + mount + "/" + service + "/" + subscription
}
func (f fakeNotifier) Notify(service string, n json.RawMessage, token string) (json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(n, &m); err != nil {
		return nil, err
	}
	m["claimToken"] = json.RawMessage(`"` + token + `"`)
	m["callback"] = json.RawMessage(`"` + f.Callback(service, "x") + `"`)
	return json.Marshal(m)
}

// fakeTransport hands deliveries to a function.
type fakeTransport struct {
	deliver func(ctx context.Context, d contract.Delivery) contract.Result
}

func (fakeTransport) Type() string                                          { return "webhook" }
func (fakeTransport) ValidateTarget(context.Context, json.RawMessage) error { return nil }
func (t fakeTransport) Deliver(ctx context.Context, d contract.Delivery) contract.Result {
	return t.deliver(ctx, d)
}

// running starts dispatch and stops it with the test. Periods that are not set
// never come.
func running(t *testing.T, cfg Config, deps Deps) *Dispatch {
	t.Helper()
	for _, p := range []*time.Duration{&cfg.ScanPeriod, &cfg.ScanPeriodDown, &cfg.ReapPeriod, &cfg.ReapGrace, &cfg.JanitorPeriod} {
		if *p == 0 {
			*p = time.Hour
		}
	}
	if deps.Notify == nil {
		deps.Notify = fakeNotifier{}
	}
	d, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := d.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return d
}
