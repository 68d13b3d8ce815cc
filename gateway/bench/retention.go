package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/bench/wire"
)

const (
	// retentionRate is how many appends a second go on all the while: enough to be in the way, too few to be a load that
	// anything more would slow down.
	retentionRate    = 400
	retentionStreams = 16
	wakeEntryBytes   = 640
	// retentionRunners share the wake entries.
	retentionRunners = 8
)

// The phases of the retention run.
const (
	idle       = "idle"
	compacting = "compacting"
)

// retention is B10: appends and a tail on one gateway, alone and while old wake entries are deleted beside them. The
// ratio of the two is what counts, so both are of one run; idle is measured on either side.
func (r *rig) retention(ctx context.Context) {
	if err := r.retentionRun(ctx); err != nil {
		r.report.fail("B10 retention", err)
	}
}

func (r *rig) retentionRun(ctx context.Context) error {
	const database = "retention"
	if err := r.pg.Exec(ctx, "postgres", "create database "+database); err != nil {
		return err
	}
	t, err := r.gateway(ctx, database, "ROUSE_RETENTION_PERIOD=1s")
	if err != nil {
		return err
	}
	defer t.stop()
	if err := register(ctx, t, retentionRunners); err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, r.pg.DSN(database))
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	number := func(sql string) (n float64, err error) { return n, db.QueryRow(ctx, sql).Scan(&n) }

	r.say("B10 writing %d MiB of wake entries", r.WakeMiB)
	entries := r.WakeMiB << 20 / wakeEntryBytes
	if err := r.wakeEntries(ctx, database, entries); err != nil {
		return err
	}
	const size = "select pg_total_relation_size('rouse.messages')::float8 / 1048576"
	before, err := number(size)
	if err != nil {
		return err
	}
	paths, err := r.makeStreams(ctx, t, retentionStreams, jsonDoc)
	if err != nil {
		return err
	}
	best := map[string]float64{}
	measure := func(phase string) error {
		r.say("B10 %s", phase)
		appended, seen, err := r.besides(ctx, t, paths, 3*r.Duration)
		if err != nil {
			return err
		}
		r.report.add("b10.append.p50", phase, appended.quantile(0.5))
		p99 := appended.quantile(0.99)
		r.report.add("b10.append.p99", phase, p99)
		if least, ok := best[phase]; !ok || p99 < least {
			best[phase] = p99
		}
		r.report.add("b10.tail.p99", phase, seen.quantile(0.99))
		return nil
	}
	for range r.Repeat {
		if err := measure(idle); err != nil {
			return err
		}
	}

	// From here on the entries are old: the next look at the wake streams finds them.
	began := time.Now()
	if err := r.pg.Exec(ctx, database, `insert into rouse.stream_marks (stream_id, at, tail)
		select id, now() - interval '2 days', tail from rouse.streams where kind = 'wake' on conflict do nothing`); err != nil {
		return err
	}
	const left = "select count(*)::float8 from (select from rouse.messages m join rouse.streams s on s.id = m.stream_id and s.kind = 'wake' limit 1) x"
	for during := 0; ; during++ {
		n, err := number(left)
		if err != nil {
			return err
		}
		if n == 0 {
			if during == 0 {
				return errors.New("the entries were gone before anything was measured: give more of them")
			}
			break
		}
		if during > 200 {
			return errors.New("the entries do not go")
		}
		if err := measure(compacting); err != nil {
			return err
		}
	}
	took := time.Since(began)
	r.report.add("b10.rate", rouse, float64(entries)/took.Seconds())
	dead, err := number("select n_dead_tup::float8 from pg_stat_user_tables where relid = 'rouse.messages'::regclass")
	if err != nil {
		return err
	}
	r.report.add("b10.dead", "at the end", dead)
	for range r.Repeat {
		if err := measure(idle); err != nil {
			return err
		}
	}
	for phase, p99 := range best {
		r.report.add("b10.append.best", phase, p99)
	}

	// The room is used again once the table was vacuumed, which its settings see to.
	r.say("B10 waiting for autovacuum")
	vacuumed := time.Now()
	for dead > float64(entries)/20 && time.Since(vacuumed) < 5*time.Minute && ctx.Err() == nil {
		sleep(ctx, time.Second)
		if dead, err = number("select n_dead_tup::float8 from pg_stat_user_tables where relid = 'rouse.messages'::regclass"); err != nil {
			return err
		}
	}
	r.report.add("b10.dead", "vacuumed", dead)
	r.report.add("b10.vacuum", rouse, time.Since(vacuumed).Seconds())
	if err := r.wakeEntries(ctx, database, entries); err != nil {
		return err
	}
	after, err := number(size)
	if err != nil {
		return err
	}
	r.report.add("b10.size", "first time", before)
	r.report.add("b10.size", "written again", after)
	return nil
}

// wakeEntries appends entries to the runners' wake streams, straight in the tables.
func (r *rig) wakeEntries(ctx context.Context, database string, n int) error {
	return r.pg.Exec(ctx, database,
		"set synchronous_commit = off",
		fmt.Sprintf(`with s as (select id, tail, row_number() over (order by id) - 1 as k from rouse.streams where kind = 'wake' order by id)
			insert into rouse.messages (stream_id, position, payload)
			select s.id, s.tail + (i / %d + 1) * %d, convert_to('{"type":"wake","ts":0,"fill":"' || repeat(md5(i::text), 19) || '"}', 'UTF8')
			  from generate_series(0, %d) i join s on s.k = i %% %d`, retentionRunners, wakeEntryBytes, n-1, retentionRunners),
		`update rouse.streams s set tail = (select max(m.position) from rouse.messages m where m.stream_id = s.id) where s.kind = 'wake'`,
		"vacuum (analyze) rouse.messages", "checkpoint")
}

// besides appends to streams at a fixed rate and tails one of them.
func (r *rig) besides(ctx context.Context, t *target, paths []string, d time.Duration) (appended, seen *samples, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n := int(d.Seconds() * retentionRate)
	appended = &samples{}
	queue := make(chan int, n)
	var wg sync.WaitGroup
	for i := range paths {
		c, err := wire.Dial(ctx, t.addr, time.Now().Add(d+60*time.Second))
		if err != nil {
			return nil, nil, err
		}
		defer c.Close()
		req := wire.Request("POST", t.addr, paths[i], message(0, payload), wire.Header{Name: "Content-Type", Value: jsonDoc})
		wg.Go(func() {
			mine := make([]time.Duration, 0, n)
			defer func() { appended.add(mine...) }()
			for range queue {
				began := time.Now()
				if _, err := c.Expect(req, 200, 204); err != nil {
					cancel(err)
					return
				}
				mine = append(mine, time.Since(began))
			}
		})
	}
	wg.Go(func() {
		got, err := r.tail(ctx, t, t, readSSE, 50, d)
		if err != nil {
			cancel(err)
			return
		}
		seen = got
	})
	pace(ctx, retentionRate, n, func(i int) { queue <- i })
	close(queue)
	wg.Wait()
	return appended, seen, context.Cause(ctx)
}
