package store_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store"
)

// BenchmarkStreamAppend measures one batcher on a server with fsync on:
// appends of 256 B over 10 000 streams, by batch size.
func BenchmarkStreamAppend(b *testing.B) {
	in := pgtest.Server(b, pgtest.Options{})
	st := open(b, in.DB.DSN)
	in.DB.Exec(b, `insert into rouse.streams (service_id, path, content_type, is_json) select 1, 's' || i, 'text/plain', false from generate_series(0, 9999) i`)
	in.DB.Exec(b, `analyze`)
	payload := bytes.Repeat([]byte("x"), 256)
	for _, size := range []int{1, 8, 32, 64, 128, 512} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			var next atomic.Int64
			items := make([]store.AppendItem, size)
			for b.Loop() {
				for i := range items {
					items[i] = store.AppendItem{Service: 1, Path: fmt.Sprintf("s%d", next.Add(7919)%10000), Type: "text/plain", Payload: payload, Count: 1}
				}
				rs, err := st.StreamAppend(b.Context(), items, false)
				if err != nil {
					b.Fatal(err)
				}
				for _, r := range rs {
					if r.Outcome != store.Appended {
						b.Fatalf("outcome %s", r.Outcome)
					}
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}
