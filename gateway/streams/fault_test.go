package streams_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/streamrig"
	"github.com/rouse-run/rouse/gateway/soon"
)

// TestNothingAcknowledgedIsLostOrDoubled kills Postgres under load, twice.
// Idempotent producers repeat what was not answered; tails on both gateways
// reconnect. Every append is there once, in order, and every tail saw it so.
func TestNothingAcknowledgedIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{})
	rigs := []*streamrig.Rig{streamrig.Start(t, in.DB.DSN, nil), streamrig.Start(t, in.DB.DSN, nil)}
	const streams, each = 3, 250
	for s := range streams {
		do(t, "PUT", fmt.Sprintf("%s/s%d", rigs[0].URL, s), "", ct, jsonT).want(t, 201, "")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var acked, refused atomic.Int64
	var writers, tails sync.WaitGroup
	for s := range streams {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for i := 0; i < each && ctx.Err() == nil; {
				rig := rigs[rand.IntN(2)]
				a, err := try(ctx, "POST", fmt.Sprintf("%s/s%d", rig.URL, s), fmt.Sprint(i), ct, jsonT,
					"Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", strconv.Itoa(i))
				switch {
				case err == nil && (a.status == 200 || a.status == 204):
					acked.Add(1)
					i++
				case err == nil && a.status == 503:
					refused.Add(1)
				case err == nil:
					t.Errorf("append %d answers %d %s", i, a.status, a.body)
					return
				}
			}
		}()
	}
	seen := make([][]int, 2*streams)
	for k := range seen {
		tails.Add(1)
		go func() {
			defer tails.Done()
			url := fmt.Sprintf("%s/s%d?live=long-poll&offset=", rigs[k%2].URL, k/2)
			offset := "-1"
			for len(seen[k]) < each && ctx.Err() == nil {
				a, err := try(ctx, "GET", url+offset, "")
				if err != nil || a.status == 503 {
					continue
				}
				if a.status != 200 && a.status != 204 {
					t.Errorf("tail answers %d %s", a.status, a.body)
					return
				}
				var page []int
				if a.status == 200 {
					if err := json.Unmarshal([]byte(a.body), &page); err != nil {
						t.Errorf("tail: %q", a.body)
						return
					}
				}
				seen[k], offset = append(seen[k], page...), a.header.Get("Stream-Next-Offset")
			}
		}()
	}
	for _, at := range []int64{streams * each / 4, streams * each / 2} {
		soon.Until(t, "the load runs", func() bool { return acked.Load() > at || ctx.Err() != nil })
		if err := in.Restart(ctx, devpg.Crash); err != nil {
			t.Fatal(err)
		}
	}
	writers.Wait()
	tails.Wait()
	if ctx.Err() != nil {
		t.Fatalf("%d of %d appends were acknowledged in a minute", acked.Load(), streams*each)
	}
	for s := range streams {
		var stored []int
		if err := json.Unmarshal([]byte(do(t, "GET", fmt.Sprintf("%s/s%d", rigs[1].URL, s), "").want(t, 200, "").body), &stored); err != nil {
			t.Fatal(err)
		}
		inOrder(t, fmt.Sprintf("stream %d", s), stored, each)
	}
	for k, got := range seen {
		inOrder(t, fmt.Sprintf("tail %d", k), got, each)
	}
	t.Logf("%d appends acknowledged, %d refused with 503 meanwhile", acked.Load(), refused.Load())
}
