package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/bench/proc"
)

// seed makes n entities, as many spawns would have, straight in the tables: entity i belongs to runner i modulo runners.
// One statement a table, without foreign key checks, since a million spawns would take longer than the measurement.
func (r *rig) seed(ctx context.Context, database string, n, runners int) error {
	created := `{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{"entity_type":"` + entityType + `","args":{}}}`
	return r.pg.Exec(ctx, database,
		// The log of these statements is nobody's work: a gateway that had to follow it first would be measured catching up.
		"select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()",
		"set session_replication_role = replica",
		"set synchronous_commit = off",
		fmt.Sprintf(`create temp table seed as
			select i, '/%s/e' || i as url, nextval(pg_get_serial_sequence('rouse.streams', 'id')) as stream, nextval(pg_get_serial_sequence('rouse.consumers', 'id')) as consumer
			  from generate_series(0, %d) i`, entityType, n-1),
		fmt.Sprintf(`insert into rouse.streams (id, service_id, path, kind, owner, content_type, is_json, tail, consumer_id) overriding system value
			select stream, 1, substr(url, 2) || '/main', 'entity', '%s', 'application/json', true, %d, consumer from seed`, personURL, len(created)),
		fmt.Sprintf(`insert into rouse.messages (stream_id, position, payload, stamps) select stream, %d, convert_to('%s', 'UTF8'), array[12] from seed`, len(created), created),
		`insert into rouse.consumers (id, service_id, name, kind, entity_url) overriding system value
			select consumer, 1, 'e_' || left(encode(sha256(convert_to('1/' || url, 'UTF8')), 'hex'), 32), 'entity', url from seed`,
		fmt.Sprintf(`insert into rouse.consumer_streams (consumer_id, stream_id, acked) select consumer, stream, %d from seed`, len(created)),
		fmt.Sprintf(`insert into rouse.entities (service_id, url, type, dispatch_policy, created_by, type_revision, consumer_id)
			select 1, url, '%s', jsonb_build_object('targets', jsonb_build_array(jsonb_build_object('type', 'runner', 'runnerId', 'r' || i %% %d))), '%s', 1, consumer from seed`,
			entityType, runners, personURL),
		`insert into rouse.entity_dispatch_state (service_id, entity_url) select 1, url from seed`,
		"vacuum (analyze) rouse.streams, rouse.messages, rouse.consumers, rouse.consumer_streams, rouse.entities, rouse.entity_dispatch_state",
		"checkpoint")
}

// scan is how long the recovery scan takes when nothing is pending: the price of being certain. Milliseconds, the median
// of several.
func (r *rig) scan(ctx context.Context, database string) (float64, error) {
	c, err := pgx.Connect(ctx, r.pg.DSN(database))
	if err != nil {
		return 0, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	var all []float64
	for range 11 {
		var n int
		began := time.Now()
		if err := c.QueryRow(ctx, "select count(*) from rouse.dispatch_scan(0, 500)").Scan(&n); err != nil {
			return 0, err
		}
		all = append(all, float64(time.Since(began).Microseconds())/1000)
		if n != 0 {
			return 0, fmt.Errorf("%d entities are pending when all should be idle", n)
		}
	}
	return median(all), nil
}

// scale is B6: the same measurements on databases of different sizes. The smallest is what the others are compared with.
func (r *rig) scale(ctx context.Context) {
	for _, n := range r.Entities {
		if ctx.Err() != nil {
			return
		}
		if err := r.scaleOne(ctx, n); err != nil {
			r.report.fail(fmt.Sprintf("B6 %s entities", short(n)), err)
		}
	}
}

func (r *rig) scaleOne(ctx context.Context, n int) error {
	database := "scale" + strconv.Itoa(n)
	subject := short(n)
	r.say("B6 making %s entities", subject)
	if err := r.pg.Exec(ctx, "postgres", "create database "+database); err != nil {
		return err
	}
	// Room for the next one: a million entities take a few gigabytes.
	if !r.Keep {
		defer func() {
			_ = r.pg.Exec(context.WithoutCancel(ctx), "postgres", "drop database "+database+" with (force)")
		}()
	}
	t, err := r.gateway(ctx, database)
	if err != nil {
		return err
	}
	err = register(ctx, t, r.Runners)
	t.stop()
	if err != nil {
		return err
	}
	if err := r.seed(ctx, database, n, r.Runners); err != nil {
		return err
	}
	for i := range r.Repeat {
		r.say("B6 %s entities %d/%d", subject, i+1, r.Repeat)
		if err := r.scaleOnce(ctx, database, subject, n); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) scaleOnce(ctx context.Context, database, subject string, n int) error {
	t, err := r.gateway(ctx, database)
	if err != nil {
		return err
	}
	defer t.stop()
	ms, err := r.scan(ctx, database)
	if err != nil {
		return err
	}
	r.report.add("b6.scan", subject, ms)
	paths, err := r.makeStreams(ctx, t, r.Connections, octets)
	if err != nil {
		return err
	}
	load, err := closedLoop(ctx, t, paths, r.Connections, octets, r.Duration)
	if err != nil {
		return err
	}
	r.report.add("b6.appends", subject, load.rate)
	got, err := r.wakeLatency(ctx, t, r.Runners, n, 100, 2*r.Duration)
	if err != nil {
		return err
	}
	r.report.add("b6.claimed.p50", subject, got.quantile(0.5))
	cyc, err := r.cycles(ctx, t, r.Runners, r.InFlight, n, r.Duration)
	if err != nil {
		return err
	}
	r.report.add("b6.cycles", subject, cyc.rate)
	r.report.add("b6.rss", subject, float64(proc.RSS(t.proc.PID()))/(1<<20))
	return nil
}

func short(n int) string {
	switch {
	case n%1_000_000 == 0:
		return strconv.Itoa(n/1_000_000) + "M"
	case n%1000 == 0:
		return strconv.Itoa(n/1000) + "k"
	}
	return strconv.Itoa(n)
}

// startUp is B7.
func (r *rig) startUp(ctx context.Context) {
	// The first gateway brings the database up to date, which is not what is measured.
	t, err := r.gateway(ctx, "postgres")
	if err != nil {
		r.report.fail("B7 serve", err)
		return
	}
	t.stop()
	for i := range r.Repeat {
		r.say("B7 rouse %d/%d", i+1, r.Repeat)
		began := time.Now()
		t, err := r.gateway(ctx, "postgres")
		if err != nil {
			r.report.fail("B7 serve", err)
			return
		}
		took := time.Since(began)
		t.stop()
		r.report.add("b7.serve", rouse, float64(took.Milliseconds()))
		ms, err := r.dev(ctx)
		if err != nil {
			r.report.fail("B7 dev", err)
			return
		}
		r.report.add("b7.dev", rouse, ms)
	}
}

// dev measures `rouse dev` in an empty folder, until it is ready, in milliseconds.
func (r *rig) dev(ctx context.Context) (float64, error) {
	dir, err := os.MkdirTemp(r.dir, "dev-")
	if err != nil {
		return 0, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	port, err := r.port()
	if err != nil {
		return 0, err
	}
	addr := "127.0.0.1:" + strconv.Itoa(port)
	began := time.Now()
	p, err := proc.Start("rouse dev", proc.Options{Log: r.log("dev")}, r.Binary, "dev", "--data-dir", filepath.Join(dir, "data"), "--listen", addr)
	if err != nil {
		return 0, err
	}
	t := &target{subject: rouse, addr: addr, proc: p}
	if err := r.ready(ctx, t, "/readyz"); err != nil {
		return 0, err
	}
	took := time.Since(began)
	t.stop()
	return float64(took.Milliseconds()), nil
}
