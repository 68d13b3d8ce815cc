package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// sqlBatch is how many cycles share each call, sqlWorkers how many connections call.
	sqlBatch   = 128
	sqlWorkers = 2
)

const appendSQL = `select a.stream_id, a.tail from rouse.stream_append(
	$1, $2::text[], array_fill('application/json'::text, array[cardinality($2::text[])]), array_fill(true, array[cardinality($2::text[])]), array_fill(true, array[cardinality($2::text[])]),
	array_fill(octet_length($3::bytea)::bigint, array[cardinality($2::text[])]),
	(select array_agg(g order by g) from generate_series(1, cardinality($2::text[])) g), array_fill(octet_length($3::bytea)::bigint, array[cardinality($2::text[])]),
	array_fill($3::bytea, array[cardinality($2::text[])]), array_fill(1, array[cardinality($2::text[])]), array_fill(null::text, array[cardinality($2::text[])]),
	'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', false) a
	where a.outcome = 'appended' order by a.ord`

// sqlCycles calls the functions that a gateway calls for a wake cycle, in batches, from this process: append, route,
// acquire, ack and release. It returns cycles a second. No gateway runs meanwhile.
func (r *rig) sqlCycles(ctx context.Context, database string, entities, runners int, d time.Duration) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var count atomic.Int64
	conns := make([]*pgx.Conn, sqlWorkers)
	for k := range conns {
		c, err := pgx.Connect(ctx, r.pg.DSN(database))
		if err != nil {
			return 0, err
		}
		defer c.Close(context.WithoutCancel(ctx))
		conns[k] = c
	}
	began := time.Now()
	for k, c := range conns {
		wg.Go(func() {
			// Each connection has its own half of the entities: nobody waits for anybody's rows.
			half := entities / sqlWorkers
			for i := 0; time.Since(began) < d; i++ {
				batch := make([]int, min(sqlBatch, half))
				for j := range batch {
					batch[j] = k*half + (i*sqlBatch+j)%half
				}
				if err := sqlCycle(ctx, c, batch, runners); err != nil {
					cancel(err)
					return
				}
				count.Add(int64(len(batch)))
			}
		})
	}
	wg.Wait()
	return float64(count.Load()) / time.Since(began).Seconds(), context.Cause(ctx)
}

// claimOp is one member of a claim_apply batch.
type claimOp struct {
	Op      string   `json:"op"`
	Service int      `json:"service"`
	Path    string   `json:"path,omitempty"`
	ID      int64    `json:"id,omitempty"`
	Epoch   int64    `json:"epoch,omitempty"`
	Wake    string   `json:"wake,omitempty"`
	Holder  string   `json:"holder,omitempty"`
	Runner  string   `json:"runner,omitempty"`
	Acks    []sqlAck `json:"acks,omitempty"`
}

type sqlAck struct {
	Path     string `json:"path"`
	Position int64  `json:"position"`
}

func sqlCycle(ctx context.Context, c *pgx.Conn, batch []int, runners int) error {
	services, paths := make([]int32, len(batch)), make([]string, len(batch))
	for i, e := range batch {
		services[i], paths[i] = 1, streamName(e)
	}
	var ids, tails []int64
	rows, err := c.Query(ctx, appendSQL, services, paths, message(0, payload))
	if err != nil {
		return err
	}
	var id, tail int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &tail}, func() error { ids, tails = append(ids, id), append(tails, tail); return nil }); err != nil {
		return err
	}
	if len(ids) != len(batch) {
		return fmt.Errorf("%d of %d appends were refused", len(batch)-len(ids), len(batch))
	}
	var minted int
	if err := c.QueryRow(ctx, `select count(*) filter (where outcome = 'minted') from rouse.dispatch_route($1, $2)`, ids, tails).Scan(&minted); err != nil {
		return err
	}
	if minted != len(batch) {
		return fmt.Errorf("%d of %d wakes were minted", minted, len(batch))
	}
	ops := make([]claimOp, len(batch))
	for i, e := range batch {
		ops[i] = claimOp{Op: "acquire", Service: 1, Path: paths[i], Runner: runnerID(e % runners), Holder: personURL}
	}
	err = claimApply(ctx, c, ops, "granted", func(i int, consumer, epoch int64, wake string) {
		ops[i] = claimOp{Op: "release", Service: 1, ID: consumer, Epoch: epoch, Wake: wake, Acks: []sqlAck{{paths[i], tails[i]}}}
	})
	if err != nil {
		return err
	}
	return claimApply(ctx, c, ops, "released", func(int, int64, int64, string) {})
}

func claimApply(ctx context.Context, c *pgx.Conn, ops []claimOp, want string, got func(i int, consumer, epoch int64, wake string)) error {
	body, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	rows, err := c.Query(ctx, `select ord, (answer).outcome, (answer).consumer_id, (answer).epoch, (answer).wake_id::text from rouse.claim_apply($1, false)`, body)
	if err != nil {
		return err
	}
	var (
		ord             int
		outcome         string
		consumer, epoch int64
		wake            *string
	)
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&ord, &outcome, &consumer, &epoch, &wake}, func() error {
		if outcome != want {
			return fmt.Errorf("%s answered %s", ops[0].Op, outcome)
		}
		n++
		w := ""
		if wake != nil {
			w = *wake
		}
		got(ord-1, consumer, epoch, w)
		return nil
	})
	if err == nil && n != len(ops) {
		err = fmt.Errorf("%d of %d calls were answered", n, len(ops))
	}
	return err
}
