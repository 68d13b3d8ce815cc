package pluginhost

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
)

// benchHost has the same transport twice: as a process, and in this one.
func benchHost(b *testing.B) *Host {
	b.Helper()
	hook := ownSpec("hook")
	h, err := New(context.WithoutCancel(b.Context()), Config{Registry: prometheus.NewRegistry(), Builtins: map[string]func() sdk.Transport{"fixture": func() sdk.Transport { return fixtureTransport(false) }},
		Amend: func(s *Set) error {
			s.Transports = map[string]Spec{"plugin": ownSpec("transport"), "inside": {Builtin: "fixture", InProcess: true}}
			s.AuthHooks = map[string]Spec{"corp": hook}
			return nil
		}})
	if err != nil {
		b.Fatal(err)
	}
	if err := h.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Stop(context.WithoutCancel(b.Context())) })
	return h
}

// percentiles runs f again and again and reports how long it took.
func percentiles(b *testing.B, f func(i int)) {
	b.Helper()
	took := make([]time.Duration, 0, b.N)
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		f(i)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkDelivery: the way to a plugin and back costs the difference of the
// two; the delivery itself is nothing here.
func BenchmarkDelivery(b *testing.B) {
	h := benchHost(b)
	d := contract.Delivery{Service: "default", Attempt: 1, Target: json.RawMessage(`{"type":"fixture","do":"accept"}`), Notification: json.RawMessage(`{"epoch":1}`)}
	for _, name := range []string{"inside", "plugin"} {
		b.Run(name, func(b *testing.B) {
			tr := h.Transport(name)
			percentiles(b, func(i int) {
				d.WakeID = fmt.Sprint(i)
				if r := tr.Deliver(b.Context(), d); r.Outcome != contract.Accepted {
					b.Fatalf("%+v", r)
				}
			})
		})
		b.Run(name+"-16-at-once", func(b *testing.B) {
			tr := h.Transport(name)
			var n atomic.Int64
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					d := d
					d.WakeID = fmt.Sprint(n.Add(1))
					if r := tr.Deliver(b.Context(), d); r.Outcome != contract.Accepted {
						b.Fatalf("%+v", r)
					}
				}
			})
		})
	}
}

// BenchmarkAuthHook: a question that no cache answers.
func BenchmarkAuthHook(b *testing.B) {
	h := benchHost(b)
	a, err := h.AuthHook("corp")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("authenticate", func(b *testing.B) {
		percentiles(b, func(int) {
			if d, err := a.Authenticate(b.Context(), credentials("allow")); err != nil || d.Verdict != contract.Allow {
				b.Fatalf("%+v %v", d, err)
			}
		})
	})
	b.Run("authorize", func(b *testing.B) {
		percentiles(b, func(int) {
			if d, err := a.Authorize(b.Context(), contract.Question{Principal: contract.Principal{Kind: "user", ID: "ada"}, Verb: "read"}); err != nil || d.Verdict != contract.Allow {
				b.Fatalf("%+v %v", d, err)
			}
		})
	})
}

// BenchmarkPost is what a delivery costs anyway: one local POST.
func BenchmarkPost(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer s.Close()
	percentiles(b, func(int) {
		res, err := http.Post(s.URL, "application/json", nil)
		if err != nil {
			b.Fatal(err)
		}
		_ = res.Body.Close()
	})
}
