package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/plugins/contract"
	authhookv1 "github.com/rouse-run/rouse/plugins/proto/rouse/authhook/v1"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestLogLinesAreWhatAGatewayReads(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	slog.New(newHandler(&out)).Warn("receiver is slow", "wake_id", "w1")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["@level"] != "warn" || line["@message"] != "receiver is slow" || line["wake_id"] != "w1" || line["@timestamp"] == nil {
		t.Errorf("got %v", line)
	}
}

func TestTheProcessEndsWithItsParent(t *testing.T) {
	t.Parallel()
	look, ended := make(chan time.Time, 2), make(chan int, 1)
	look <- time.Time{}
	watchParent(os.Getppid()+1, look, func(code int) { ended <- code })
	if code := <-ended; code == 0 {
		t.Error("it ends as if all were well")
	}
	look <- time.Time{}
	close(look)
	watchParent(os.Getppid(), look, func(int) { t.Error("it ended while its parent is there") })
}

func TestEveryDeliveryIsAnsweredAndAPanicCostsOnlyItself(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		s := &transportServer{log: silent(), t: Transport{AtMostOnce: once, Deliver: func(_ context.Context, d contract.Delivery) contract.Result {
			switch d.WakeID {
			case "panics":
				panic("secret")
			case "later":
				return contract.Result{Outcome: contract.Retry, RetryAfter: time.Microsecond, StatusCode: 429}
			case "nonsense":
				return contract.Result{Outcome: "maybe"}
			}
			return contract.Result{Outcome: contract.Done}
		}}}
		var q transportv1.DeliverBatchRequest
		for _, id := range []string{"fine", "panics", "later", "nonsense"} {
			q.Deliveries = append(q.Deliveries, &transportv1.Delivery{WakeId: id, Target: []byte(`{}`), Notification: []byte(`{}`)})
		}
		q.Deliveries = append(q.Deliveries, &transportv1.Delivery{WakeId: "rubbish", Target: []byte(`{`), Notification: []byte(`{}`)})
		got, err := s.DeliverBatch(t.Context(), &q)
		if err != nil {
			t.Fatal(err)
		}
		panicked := transportv1.Outcome_OUTCOME_RETRY
		if once {
			panicked = transportv1.Outcome_OUTCOME_UNKNOWN
		}
		want := []transportv1.Outcome{transportv1.Outcome_OUTCOME_DONE, panicked, transportv1.Outcome_OUTCOME_RETRY, transportv1.Outcome_OUTCOME_UNSPECIFIED, transportv1.Outcome_OUTCOME_PERMANENT}
		for i, r := range got.Results {
			if r.Outcome != want[i] || r.WakeId != q.Deliveries[i].WakeId {
				t.Errorf("%s: %v", q.Deliveries[i].WakeId, r)
			}
		}
		if r := got.Results[2]; r.RetryAfterMs != 1 || r.StatusCode != 429 {
			t.Errorf("a short wait has become none: %v", r)
		}
		if bytes.Contains([]byte(got.Results[1].Error), []byte("secret")) {
			t.Error("what a panic says is told to receivers' owners")
		}
	}
}

// What waits for its receiver until its time is over answers before the gateway
// gives the call up.
func TestADeliveryEndsBeforeItsCall(t *testing.T) {
	t.Parallel()
	s := &transportServer{log: silent(), t: Transport{Deliver: func(ctx context.Context, _ contract.Delivery) contract.Result {
		<-ctx.Done()
		return contract.Result{Outcome: contract.Retry, Error: "the receiver did not answer in time"}
	}}}
	for _, limit := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
		call, cancel := context.WithTimeout(t.Context(), limit)
		got, err := s.DeliverBatch(call, &transportv1.DeliverBatchRequest{Deliveries: []*transportv1.Delivery{{WakeId: "w", Target: []byte(`{}`), Notification: []byte(`{}`)}}})
		if over := call.Err(); over != nil || err != nil || got.Results[0].Error != "the receiver did not answer in time" {
			t.Errorf("within %v: %v %v, the call is over: %v", limit, got, err, over)
		}
		cancel()
	}
	endless, cancel := within(t.Context())
	defer cancel()
	if _, ok := endless.Deadline(); ok {
		t.Error("a call without an end has got one")
	}
}

func TestWhatIsNotSaidIsAccepted(t *testing.T) {
	t.Parallel()
	s := &transportServer{log: silent()}
	if r, err := s.Configure(t.Context(), &transportv1.ConfigureRequest{}); err != nil || r.Error != "" {
		t.Errorf("%v %v", r, err)
	}
	if r, err := s.ValidateTarget(t.Context(), &transportv1.ValidateTargetRequest{Target: []byte(`{}`)}); err != nil || r.Error != "" {
		t.Errorf("%v %v", r, err)
	}
	s.t.ValidateTarget = func(context.Context, json.RawMessage) error { return errors.New("") }
	if r, err := s.ValidateTarget(t.Context(), &transportv1.ValidateTargetRequest{Target: []byte(`{}`)}); err != nil || r.Error == "" {
		t.Errorf("a refusal without a text has become consent: %v %v", r, err)
	}
	s.t.Health = func(context.Context) error { panic("x") }
	if r, err := s.Health(t.Context(), &transportv1.HealthRequest{}); err != nil || r.Error == "" {
		t.Errorf("%v %v", r, err)
	}
}

// Nothing that goes wrong in a hook is an opinion.
func TestAHookThatFailsHasNoVerdict(t *testing.T) {
	t.Parallel()
	s := &authHookServer{log: silent()}
	if r, err := s.Authenticate(t.Context(), &authhookv1.AuthenticateRequest{}); err == nil {
		t.Errorf("without an implementation: %v", r)
	}
	if r, err := s.Authorize(t.Context(), &authhookv1.AuthorizeRequest{}); err == nil {
		t.Errorf("without an implementation: %v", r)
	}
	for name, f := range map[string]func() (contract.Decision, error){
		"an error": func() (contract.Decision, error) {
			return contract.Decision{Verdict: contract.Allow}, errors.New("down")
		},
		"a panic": func() (contract.Decision, error) { panic("x") },
	} {
		s.h.Authenticate = func(context.Context, contract.Request) (contract.Decision, error) { return f() }
		s.h.Authorize = func(context.Context, contract.Question) (contract.Ruling, error) {
			d, err := f()
			return contract.Ruling{Verdict: d.Verdict}, err
		}
		if r, err := s.Authenticate(t.Context(), &authhookv1.AuthenticateRequest{}); err == nil {
			t.Errorf("%s: %v", name, r)
		}
		if r, err := s.Authorize(t.Context(), &authhookv1.AuthorizeRequest{}); err == nil {
			t.Errorf("%s: %v", name, r)
		}
	}
	if verdict(contract.Verdict(7)) != authhookv1.Verdict_VERDICT_UNSPECIFIED {
		t.Error("an unknown verdict has become a known one")
	}
	s.h.Authenticate = func(_ context.Context, r contract.Request) (contract.Decision, error) {
		return contract.Decision{Verdict: contract.Allow, Principal: contract.Principal{Kind: "user", ID: r.Header.Get("X-Me")}, CacheFor: time.Second}, nil
	}
	r, err := s.Authenticate(t.Context(), &authhookv1.AuthenticateRequest{Headers: []*authhookv1.Header{{Name: "X-Me", Values: []string{"ada"}}}})
	if err != nil || r.Verdict != authhookv1.Verdict_VERDICT_ALLOW || r.Principal.Id != "ada" || r.CacheForMs != 1000 {
		t.Errorf("%v %v", r, err)
	}
}
