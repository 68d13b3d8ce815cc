package control

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// BenchmarkSend is 64 clients that send to 64 entities over HTTP.
func BenchmarkSend(b *testing.B) {
	r := newRig(b, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	for i := range 64 {
		r.must(201, kyle, "PUT", fmt.Sprintf("/_electric/entities/chat/%d", i), "")
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	body := `{"payload":{"text":"` + strings.Repeat("x", 200) + `"}}`
	var next atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		url := fmt.Sprintf("%s/_electric/entities/chat/%d/send", r.url, next.Add(1)%64)
		for pb.Next() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Electric-Principal", kyle)
			resp, err := c.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 {
				b.Errorf("status %d", resp.StatusCode)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sends/s")
}

// BenchmarkSpawn is 64 clients that spawn entities over HTTP.
func BenchmarkSpawn(b *testing.B) {
	r := newRig(b, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	var next atomic.Int64
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if a := r.as(kyle, "PUT", fmt.Sprintf("/_electric/entities/chat/%d", next.Add(1)), `{"initialMessage":1}`); a.status != 201 {
				b.Errorf("status %d", a.status)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "spawns/s")
}
