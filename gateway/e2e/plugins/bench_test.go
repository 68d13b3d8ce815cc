package plugins

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// BenchmarkWake is the time from a message that is sent to the POST that it
// wakes a receiver with, with the webhook transport in the gateway's process and
// in one of its own; an entity gets one message at a time.
func BenchmarkWake(b *testing.B) {
	for _, apart := range []bool{false, true} {
		name := map[bool]string{false: "in-process", true: "plugin"}[apart]
		b.Run(name, func(b *testing.B) {
			arrived := make(chan time.Time, 1)
			hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				arrived <- time.Now()
				_, _ = w.Write([]byte(`{"done":true}`))
			}))
			in := servertest.Start(b, servertest.Options{PluginProcesses: apart})
			client := wire.NewHTTP(20 * time.Second)
			b.Cleanup(hook.Close)
			b.Cleanup(client.CloseIdleConnections)
			person := &wire.Client{Base: in.URL, Principal: "user:kyle", HTTP: client}
			must := func(a wire.Answer) {
				b.Helper()
				if a.Status < 200 || a.Status > 299 {
					b.Fatalf("%v: %s", a, a.Raw)
				}
			}
			must(person.Type(b.Context(), "job"))
			one := func(i int) time.Duration {
				id := fmt.Sprint(i)
				must(person.Do(b.Context(), "PUT", "/_electric/entities/job/"+id, map[string]any{
					"dispatch_policy": map[string]any{"targets": []any{map[string]any{"type": "webhook", "url": hook.URL}}}}, nil))
				began := time.Now()
				must(person.Send(b.Context(), "job", id, "m", "hello"))
				select {
				case at := <-arrived:
					return at.Sub(began)
				case <-time.After(20 * time.Second):
					b.Fatal("nothing is delivered")
					return 0
				}
			}
			for i := range 20 {
				one(i)
			}
			var took []time.Duration
			for i := 100; b.Loop(); i++ {
				took = append(took, one(i))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "p90-µs")
		})
	}
}
