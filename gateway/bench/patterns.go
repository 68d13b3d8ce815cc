package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/rouse-run/rouse/gateway/bench/wire"
)

// patternCount names how many there are.
func patternCount(n int) string {
	if n == 0 {
		return "no"
	}
	return short(n)
}

// patterns is B9: what subscriptions' patterns that cannot match cost whoever makes a stream.
func (r *rig) patterns(ctx context.Context) {
	for i := range r.Repeat {
		for _, n := range []int{0, 10_000} {
			if ctx.Err() != nil {
				return
			}
			r.say("B9 %s patterns %d/%d", patternCount(n), i+1, r.Repeat)
			if err := r.patternsOnce(ctx, n); err != nil {
				r.report.fail(fmt.Sprintf("B9 %s patterns", patternCount(n)), err)
			}
		}
	}
}

func (r *rig) patternsOnce(ctx context.Context, n int) error {
	database := fmt.Sprintf("patterns%d_%d", n, r.streams.Add(1))
	if err := r.pg.Exec(ctx, "postgres", "create database "+database); err != nil {
		return err
	}
	defer func() {
		_ = r.pg.Exec(context.WithoutCancel(ctx), "postgres", "drop database "+database+" with (force)")
	}()
	t, err := r.gateway(ctx, database)
	if err != nil {
		return err
	}
	defer t.stop()
	// Patterns of all kinds: known beginnings and ends, and wildcards before, behind and between them.
	err = r.pg.Exec(ctx, database,
		`create temp table seed as select i, nextval(pg_get_serial_sequence('rouse.consumers', 'id')) as consumer,
			case i % 4 when 0 then 'other' || i || '/*' when 1 then '**/never' || i when 2 then 'bench/*/' || i else 'bench/' || i || '/**' end as pattern
			from generate_series(1, `+strconv.Itoa(n)+`) i`,
		`insert into rouse.consumers (id, service_id, name, kind) overriding system value select consumer, 1, 's_' || consumer, 'subscription' from seed`,
		`insert into rouse.subscriptions (consumer_id, service_id, id, type, pattern, webhook_url, config_hash, owner, system, settled, scan_done, changed_at, created_at)
			select consumer, 1, 'p' || i, 'webhook', pattern, 'http://127.0.0.1:1/', '', '`+personURL+`', true, 1, true, now(), now() from seed`,
		`insert into rouse.subscription_globs (consumer_id, service_id, pattern, owner, system)
			select consumer, 1, g.pattern, '`+personURL+`', true from seed cross join lateral rouse._glob_parse(seed.pattern) g`,
		"vacuum (analyze) rouse.consumers, rouse.subscriptions, rouse.subscription_globs")
	if err != nil {
		return err
	}
	c, err := wire.Dial(ctx, t.addr, time.Now().Add(warmUp+r.Duration+30*time.Second))
	if err != nil {
		return err
	}
	defer c.Close()
	var took samples
	for began := time.Now(); time.Since(began) < warmUp+r.Duration && ctx.Err() == nil; {
		path := fmt.Sprintf("/bench/made/s%d/%d", time.Now().UnixMilli(), r.streams.Add(1))
		sent := time.Now()
		if _, err := c.Expect(wire.Request("PUT", t.addr, path, []byte{}, wire.Header{Name: "Content-Type", Value: octets}), 201); err != nil {
			return err
		}
		if time.Since(began) > warmUp {
			took.add(time.Since(sent))
		}
	}
	r.report.add("b9.made.p50", patternCount(n), took.quantile(0.5))
	return ctx.Err()
}
