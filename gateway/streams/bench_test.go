package streams_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/streamrig"
)

// BenchmarkAppendHTTP measures durable appends of 256 B over HTTP: n
// connections to n streams, a raw client, fsync on.
func BenchmarkAppendHTTP(b *testing.B) {
	in := pgtest.Server(b, pgtest.Options{})
	rig := streamrig.Start(b, in.DB.DSN, nil)
	for _, conns := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			clients := make([]*rawClient, conns)
			for i := range clients {
				path := fmt.Sprintf("/bench-%d-%d", conns, i)
				create(b, rig.URL+path)
				clients[i] = dial(b, rig.Addr, path)
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			took := make([][]time.Duration, conns)
			for i, c := range clients {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for range max(1, b.N/conns) {
						start := time.Now()
						if err := c.append(); err != nil {
							b.Error(err)
							return
						}
						took[i] = append(took[i], time.Since(start))
					}
				}()
			}
			wg.Wait()
			b.StopTimer()
			all := slices.Concat(took...)
			slices.Sort(all)
			b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
		})
	}
}

func create(b testing.TB, url string) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPut, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/plain")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusCreated && res.StatusCode != http.StatusOK {
		b.Fatalf("create answered %d", res.StatusCode)
	}
}

// rawClient spares the benchmark the cost of a full HTTP client.
type rawClient struct {
	conn    net.Conn
	r       *bufio.Reader
	request []byte
}

func dial(b testing.TB, addr, path string) *rawClient {
	b.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	body := bytes.Repeat([]byte("x"), 256)
	return &rawClient{conn: conn, r: bufio.NewReader(conn),
		request: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)}
}

func (c *rawClient) append() error {
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 204")) {
		return fmt.Errorf("answer %q", line)
	}
	for len(line) > 2 {
		if line, err = c.r.ReadSlice('\n'); err != nil {
			return err
		}
	}
	return nil
}
