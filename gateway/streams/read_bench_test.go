package streams_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/streamrig"
	"github.com/rouse-run/rouse/gateway/streams"
)

// BenchmarkCatchUp measures four readers of one 64 MiB stream, with the page
// cache and without.
func BenchmarkCatchUp(b *testing.B) {
	in := pgtest.Server(b, pgtest.Options{})
	const total = 64 << 20
	for _, size := range []int{64 << 10, 256} {
		path := fmt.Sprintf("m%d", size)
		in.DB.Exec(b, `insert into rouse.streams (service_id, path, content_type, is_json, tail) values (1, $1, 'application/octet-stream', false, $2)`, path, total)
		in.DB.Exec(b, `insert into rouse.messages (stream_id, position, payload)
			select s.id, i * $2::bigint, decode(rpad(md5(i::text), $2::int * 2, md5(i::text)), 'hex') from rouse.streams s, generate_series(1, $3::bigint / $2) i where s.path = $1`, path, size, total)
		for name, cache := range map[string]int64{"cached": 512 << 20, "uncached": 1} {
			rig := streamrig.Start(b, in.DB.DSN, func(c *streams.Config) { c.CacheBytes = cache })
			b.Run(fmt.Sprintf("message=%d/%s", size, name), func(b *testing.B) {
				b.SetBytes(total)
				for b.Loop() {
					var wg sync.WaitGroup
					for range 4 {
						wg.Add(1)
						go func() {
							defer wg.Done()
							if n := catchUp(b, rig.URL+"/"+path); n != total {
								b.Errorf("read %d bytes", n)
							}
						}()
					}
					wg.Wait()
				}
				b.ReportMetric(4*total/1e6*float64(b.N)/b.Elapsed().Seconds(), "MB/s-in-all")
			})
		}
	}
}

func catchUp(b testing.TB, url string) (n int64) {
	offset := "-1"
	for {
		req, err := http.NewRequestWithContext(b.Context(), "GET", url+"?offset="+offset, nil)
		if err != nil {
			b.Error(err)
			return n
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Error(err)
			return n
		}
		m, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 {
			b.Errorf("status %d, %v", res.StatusCode, err)
			return n
		}
		n, offset = n+m, res.Header.Get("Stream-Next-Offset")
		if res.Header.Get("Stream-Up-To-Date") == "true" {
			return n
		}
	}
}

// BenchmarkAppendToSSE measures the time from sending an append to its event on
// a reader's connection, at about a hundred a second.
func BenchmarkAppendToSSE(b *testing.B) {
	in := pgtest.Server(b, pgtest.Options{})
	one, two := streamrig.Start(b, in.DB.DSN, nil), streamrig.Start(b, in.DB.DSN, nil)
	for name, to := range map[string]*streamrig.Rig{"same gateway": one, "other gateway": two} {
		b.Run(name, func(b *testing.B) {
			path := fmt.Sprintf("/l-%p-%d", to, b.N)
			create(b, one.URL+path)
			r := follow(b, to.URL+path+"?offset=-1&live=sse")
			r.want("control")
			c := dial(b, one.Addr, path)
			var took []time.Duration
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for b.Loop() {
				<-tick.C
				start := time.Now()
				if err := c.append(); err != nil {
					b.Fatal(err)
				}
				r.want("data")
				took = append(took, time.Since(start))
				r.want("control")
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
