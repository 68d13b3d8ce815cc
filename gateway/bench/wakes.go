package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/bench/wire"
)

// entityType is the type of every entity of the bench, and person owns them and their runners.
const (
	entityType = "bench"
	person     = "user:bench"
	personURL  = "/principal/user%3Abench"
)

var asPerson = wire.Header{Name: "Electric-Principal", Value: person}

func runnerID(i int) string   { return "r" + strconv.Itoa(i) }
func entityURL(i int) string  { return "/" + entityType + "/e" + strconv.Itoa(i) }
func sendPath(i int) string   { return "/_electric/entities" + entityURL(i) + "/send" }
func streamName(i int) string { return entityURL(i)[1:] + "/main" }

// entityOf is the number of the entity whose main stream has this name, -1 if it is none of the bench's.
func entityOf(stream string) int {
	s, ok := strings.CutPrefix(strings.TrimPrefix(stream, "/"), entityType+"/e")
	if !ok {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSuffix(s, "/main"))
	if err != nil {
		return -1
	}
	return n
}

// register makes the type and the runners.
func register(ctx context.Context, t *target, runners int) error {
	c, err := wire.Dial(ctx, t.addr, time.Now().Add(time.Minute))
	if err != nil {
		return err
	}
	defer c.Close()
	body := []byte(`{"name":"` + entityType + `","description":"what the bench wakes"}`)
	if _, err := c.Expect(wire.Request("POST", t.addr, "/_electric/entity-types", body, asPerson), 201); err != nil {
		return err
	}
	for i := range runners {
		body := []byte(`{"id":"` + runnerID(i) + `","label":"bench"}`)
		if _, err := c.Expect(wire.Request("POST", t.addr, "/_electric/runners", body, asPerson), 201); err != nil {
			return err
		}
	}
	return nil
}

// spawn makes n entities; entity i belongs to runner i modulo runners.
func spawn(ctx context.Context, t *target, n, runners int) error {
	c, err := wire.Dial(ctx, t.addr, time.Now().Add(2*time.Minute))
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range n {
		body := []byte(`{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"` + runnerID(i%runners) + `"}]}}`)
		if _, err := c.Expect(wire.Request("PUT", t.addr, "/_electric/entities"+entityURL(i), body, asPerson), 201); err != nil {
			return err
		}
	}
	return nil
}

// wake is the part of a wake stream's entry, and of a claim's answer, that a runner needs.
type wake struct {
	Type       string `json:"type"`
	Stream     string `json:"stream"`
	Generation int64  `json:"generation"`
	WakeID     string `json:"wakeId"`
	Epoch      int64  `json:"epoch"`
	ClaimToken string `json:"claimToken"`
	Streams    []struct {
		Path   string `json:"path"`
		Offset string `json:"offset"`
	} `json:"streams"`
}

// watchWakes tails a runner's wake stream and calls got for each wake, until ctx ends.
func watchWakes(ctx context.Context, t *target, runner int, until time.Time, ready func(), got func(entity int, w wake)) error {
	e, err := wire.Subscribe(ctx, t.addr, until, "/runners/"+runnerID(runner)+"/wake?offset=now&live=sse", asPerson)
	ready()
	if err != nil {
		return err
	}
	defer e.Close()
	defer context.AfterFunc(ctx, func() { _ = e.Close() })()
	for {
		kind, data, err := e.Next()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wake stream of %s: %w", runnerID(runner), err)
		}
		if string(kind) != "data" {
			continue
		}
		var wakes []wake
		if err := json.Unmarshal(data, &wakes); err != nil {
			return fmt.Errorf("wake stream of %s: %w in %.200s", runnerID(runner), err, data)
		}
		for _, w := range wakes {
			if n := entityOf(w.Stream); n >= 0 && w.Type == "wake" {
				got(n, w)
			}
		}
	}
}

// claim takes the lease of a wake through the runner's claim route, as the ecosystem's pull-wake runner does.
func claim(c *wire.Conn, t *target, runner int, w wake) (wake, error) {
	body := fmt.Appendf(nil, `{"stream":%q,"generation":%d,"wakeId":%q}`, w.Stream, w.Generation, w.WakeID)
	r, err := c.Expect(wire.Request("POST", t.addr, "/_electric/runners/"+runnerID(runner)+"/claim", body, asPerson), 200)
	if err != nil {
		return wake{}, err
	}
	var got wake
	if err := json.Unmarshal(r.Body, &got); err != nil {
		return wake{}, err
	}
	if got.ClaimToken == "" || len(got.Streams) == 0 {
		return wake{}, fmt.Errorf("a claim answered %.200s", r.Body)
	}
	return got, nil
}

// done acks what the wake was about and gives the lease back.
func done(c *wire.Conn, t *target, g wake) error {
	body := fmt.Appendf(nil, `{"epoch":%d,"acks":[{"path":%q,"offset":%q}],"done":true}`, g.Epoch, g.Streams[0].Path, g.Streams[0].Offset)
	_, err := c.Expect(wire.Request("POST", t.addr, "/_electric/wake-callbacks/"+g.WakeID, body,
		wire.Header{Name: "Electric-Claim-Token", Value: g.ClaimToken}, asPerson), 200)
	return err
}

func sendRequest(t *target, entity int) []byte {
	return wire.Request("POST", t.addr, sendPath(entity), []byte(`{"payload":{"text":"`+strings.Repeat("x", payload)+`"}}`), asPerson)
}

// claimers is how many connections of the latency measurement claim and finish wakes.
const claimers = 16

// wakeLatency sends messages at a rate to entities in turn and returns how long it took from the send to the claimed
// lease.
func (r *rig) wakeLatency(ctx context.Context, t *target, runners, entities, rate int, d time.Duration) (*samples, error) {
	until := time.Now().Add(d + 40*time.Second)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n := int(d.Seconds() * float64(rate))
	l := newLedger(entities)
	type job struct {
		entity int
		w      wake
	}
	jobs := make(chan job, n+1)
	var watchers, workers sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(runners)
	for i := range runners {
		watchers.Go(func() {
			if err := watchWakes(ctx, t, i, until, sync.OnceFunc(ready.Done), func(entity int, w wake) { jobs <- job{entity, w} }); err != nil {
				cancel(err)
			}
		})
	}
	ready.Wait()
	out := &samples{}
	var finished atomic.Int64
	all := make(chan struct{})
	for range claimers {
		c, err := wire.Dial(ctx, t.addr, until)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case j := <-jobs:
					g, err := claim(c, t, j.entity%runners, j.w)
					if err != nil {
						cancel(err)
						return
					}
					if age, ok := l.age(j.entity); ok {
						out.add(age)
					}
					if err := done(c, t, g); err != nil {
						cancel(err)
						return
					}
					if finished.Add(1) == int64(n) {
						close(all)
					}
				}
			}
		})
	}
	queue := make(chan int, n)
	for range writers {
		c, err := wire.Dial(ctx, t.addr, until)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		workers.Go(func() {
			for i := range queue {
				l.send(i)
				if _, err := c.Expect(sendRequest(t, i), 200); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	// Entities far from each other, each at most once in a few seconds.
	pace(ctx, rate, n, func(i int) { queue <- i * 7919 % entities })
	close(queue)
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	select {
	case <-all:
	case <-late.C:
		cancel(fmt.Errorf("%d of %d messages woke nobody in 20 s", int64(n)-finished.Load(), n))
	case <-ctx.Done():
	}
	err := context.Cause(ctx)
	cancel(nil)
	watchers.Wait()
	workers.Wait()
	return out, err
}

var errNoWake = errors.New("a message woke nobody in 10 s")

// cycles lets each runner work inFlight entities of its own at once, each in a loop: send, be woken through the wake
// stream, claim, ack and release. The latency is that from send to claimed.
func (r *rig) cycles(ctx context.Context, t *target, runners, inFlight, entities int, d time.Duration) (load, error) {
	until := time.Now().Add(warmUp + d + 40*time.Second)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := load{latency: &samples{}}
	var measuring, stopping atomic.Bool
	var count atomic.Int64
	var watchers, workers, ready sync.WaitGroup
	ready.Add(runners)
	// Entity i of runner k is k + runners × stride × i: spread over all there are.
	stride := max(1, entities/runners/inFlight)
	mail := make([][]chan wake, runners)
	for k := range runners {
		mail[k] = make([]chan wake, inFlight)
		for i := range mail[k] {
			mail[k][i] = make(chan wake, 4)
		}
		watchers.Go(func() {
			err := watchWakes(ctx, t, k, until, sync.OnceFunc(ready.Done), func(entity int, w wake) {
				if i := (entity - k) / runners / stride; i < inFlight {
					select {
					case mail[k][i] <- w:
					default: // a second delivery that nobody waits for
					}
				}
			})
			if err != nil {
				cancel(err)
			}
		})
	}
	ready.Wait()
	for k := range runners {
		for i := range inFlight {
			c, err := wire.Dial(ctx, t.addr, until)
			if err != nil {
				return out, err
			}
			defer c.Close()
			entity := k + runners*stride*i
			workers.Go(func() {
				mine, err := cycleLoop(ctx, c, t, k, sendRequest(t, entity), mail[k][i], &measuring, &stopping)
				count.Add(int64(len(mine)))
				out.latency.add(mine...)
				if err != nil {
					cancel(err)
				}
			})
		}
	}
	per := out.watch(ctx, t, d, &measuring)
	stopping.Store(true)
	workers.Wait()
	err := context.Cause(ctx)
	cancel(nil)
	watchers.Wait()
	if err != nil {
		return out, err
	}
	if count.Load() == 0 {
		return out, fmt.Errorf("no cycle ended in %v", d)
	}
	per(count.Load())
	return out, nil
}

// cycleLoop works one entity until it is told to stop, and returns the latencies from send to claim of the cycles that
// ended while measuring.
func cycleLoop(ctx context.Context, c *wire.Conn, t *target, runner int, send []byte, mail <-chan wake, measuring, stopping *atomic.Bool) ([]time.Duration, error) {
	var mine []time.Duration
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	for ctx.Err() == nil && !stopping.Load() {
		began := time.Now()
		if _, err := c.Expect(send, 200); err != nil {
			return mine, err
		}
		patience.Reset(10 * time.Second)
		select {
		case w := <-mail:
			g, err := claim(c, t, runner, w)
			if err != nil {
				return mine, err
			}
			claimed := time.Since(began)
			if err := done(c, t, g); err != nil {
				return mine, err
			}
			if measuring.Load() {
				mine = append(mine, claimed)
			}
		case <-patience.C:
			return mine, errNoWake
		case <-ctx.Done():
		}
	}
	return mine, nil
}

const wakeEntities = 1000

// wakes is B5 over HTTP.
func (r *rig) wakes(ctx context.Context) {
	for i := range r.Repeat {
		r.say("B5 rouse %d/%d", i+1, r.Repeat)
		if err := r.wakesOnce(ctx, fmt.Sprintf("wakes%d", i)); err != nil {
			r.report.fail("B5 rouse", err)
		}
	}
}

func (r *rig) wakesOnce(ctx context.Context, database string) error {
	if err := r.pg.Exec(ctx, "postgres", "create database "+database); err != nil {
		return err
	}
	t, err := r.gateway(ctx, database)
	if err != nil {
		return err
	}
	defer t.stop()
	if err := register(ctx, t, r.Runners); err != nil {
		return err
	}
	if err := spawn(ctx, t, wakeEntities, r.Runners); err != nil {
		return err
	}
	got, err := r.wakeLatency(ctx, t, r.Runners, wakeEntities, 100, 2*r.Duration)
	if err != nil {
		return err
	}
	r.report.add("b5.claimed.p50", rouse, got.quantile(0.5))
	r.report.add("b5.claimed.p99", rouse, got.quantile(0.99))
	load, err := r.cycles(ctx, t, r.Runners, r.InFlight, wakeEntities, 2*r.Duration)
	if err != nil {
		return err
	}
	r.report.add("b5.cycles", rouse, load.rate)
	r.report.add("b5.cycles.p50", rouse, load.latency.quantile(0.5))
	r.report.add("b5.cycles.p99", rouse, load.latency.quantile(0.99))
	r.report.add("b5.cycles.gateway", rouse, load.gateway)
	r.report.add("b5.cycles.postgres", rouse, load.postgres)
	r.report.add("b5.cycles.generator", rouse, load.generator)
	t.stop()

	rate, err := r.sqlCycles(ctx, database, wakeEntities, r.Runners, r.Duration)
	if err != nil {
		return fmt.Errorf("in SQL batches: %w", err)
	}
	r.report.add("b5.sql", rouse, rate)
	if r.NoPeers {
		return nil
	}
	if rate, err = r.riverJobs(ctx, "river_"+database, r.Duration); err != nil {
		return fmt.Errorf("River: %w", err)
	}
	r.report.add("b5.sql", river, rate)
	return nil
}
