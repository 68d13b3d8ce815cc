package subscriptiontest

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// median reports it beside the mean, which whatever else the machine does moves.
func median(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "median-µs")
}

// BenchmarkMakingAStream says what patterns cost those who make streams: with
// none, with ten thousand that cannot match, with ten thousand that begin
// alike, and with one that matches.
func BenchmarkMakingAStream(b *testing.B) {
	for _, c := range []struct{ name, path string }{
		{"no patterns", "quiet/a/%d"},
		{"10000 that cannot match", "quiet/a/%d"},
		{"10000 that begin alike", "crowd/%d/x"},
		{"one of 10000 that matches", "crowd/%d/main"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b)
			if c.name != "no patterns" {
				r.subscribe(spec{id: "one", pattern: "crowd/*/main"})
				for _, sql := range crowdSQL[:3] {
					r.exec(sql)
				}
				r.exec(`analyze`)
			}
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for i := range b.N {
				began := time.Now()
				r.exec(`select rouse.stream_create(1, $1, 'application/json')`, fmt.Sprintf(c.path, i))
				took = append(took, time.Since(began))
			}
			median(b, took)
		})
	}
}

// BenchmarkAppend says what it costs an append that its stream is watched.
func BenchmarkAppend(b *testing.B) {
	for _, watchers := range []int{0, 1, 10} {
		b.Run(fmt.Sprintf("%d subscriptions", watchers), func(b *testing.B) {
			r := newRig(b)
			r.make("a/1", "")
			for i := range watchers {
				r.subscribe(spec{id: fmt.Sprint("s", i), pattern: "a/*"})
			}
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range b.N {
				began := time.Now()
				r.append("a/1")
				took = append(took, time.Since(began))
			}
			median(b, took)
		})
	}
}

// BenchmarkSettling says how fast streams that exist are linked.
func BenchmarkSettling(b *testing.B) {
	r := newRig(b)
	r.exec(`insert into rouse.streams (service_id, path, content_type, is_json, tail) select 1, 'crowd/' || i || '/main', 'application/json', true, 8 from generate_series(1, 100000) i`)
	b.ResetTimer()
	for i := range b.N {
		id := fmt.Sprint("s", i)
		r.put(spec{id: id, pattern: "crowd/**"})
		for {
			if one[string](r, `select outcome from rouse.subscription_settle(1, $1, 1, '{}', 2000)`, id) == "done" {
				break
			}
		}
	}
	b.ReportMetric(float64(b.N)*100000/b.Elapsed().Seconds(), "streams/s")
}
