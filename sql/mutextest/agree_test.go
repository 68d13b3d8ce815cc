package mutextest

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"
)

// machine drives the functions and the model with the same steps.
type machine struct {
	r      *rig
	m      model
	runner string
	urls   []string
	done   map[string]int // how often each outcome was met
}

func (x *machine) same(t *rapid.T) {
	var got string
	if err := x.r.c.QueryRow(x.r.ctx(), digestSQL, x.urls, epochStart, "runners/"+x.runner+"/wake").Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := x.m.text(); got != want {
		t.Fatalf("at %v the database says\n%sand the model\n%s", x.r.now.Sub(epochStart), got, want)
	}
	why, err := broken(x.r.ctx(), x.r.c)
	if err != nil {
		t.Fatal(err)
	}
	if why != "" {
		t.Fatal(why)
	}
}

func (x *machine) agree(t *rapid.T, what, got, want string) {
	x.done[what+" "+want]++
	if got != want {
		t.Fatalf("%s: the database says %q, the model %q", what, got, want)
	}
}

// learn reads the ids of wakes that the model knows to exist.
func (x *machine) learn(t *rapid.T) {
	for _, e := range x.m.entities {
		if w := e.wake(); w != nil && w.id == "" {
			if err := x.r.c.QueryRow(x.r.ctx(), `select wake_id::text from rouse.wake_notifications where service_id = 1 and consumer_id = $1 and epoch = $2`,
				e.name, e.epoch).Scan(&w.id); err != nil {
				t.Fatalf("the model has wake %d of %s, the database not: %v", e.epoch, e.url, err)
			}
		}
	}
}

func (x *machine) any(t *rapid.T) *modelEntity {
	return rapid.SampledFrom(x.m.entities).Draw(t, "entity")
}

// epoch draws the current epoch most of the time, else another one of the past.
func (x *machine) epoch(t *rapid.T, e *modelEntity) int64 {
	if e.epoch == 0 {
		t.Skip("no wake yet")
	}
	if e.epoch > 1 && rarely(t, "old") {
		return rapid.Int64Range(1, e.epoch-1).Draw(t, "epoch")
	}
	return e.epoch
}

func (x *machine) position(t *rapid.T, e *modelEntity) int64 {
	switch rapid.IntRange(0, 9).Draw(t, "where") {
	case 9:
		return e.acked - 1
	case 8:
		return e.tail + 1
	case 7:
		return e.acked
	case 6, 5:
		return rapid.Int64Range(e.acked, e.tail).Draw(t, "position")
	}
	return e.tail
}

// rarely is true about once in five: rapid prefers small numbers.
func rarely(t *rapid.T, what string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 3 }

const message = `{"headers":{"operation":"insert"},"type":"inbox","value":{}}`

func (x *machine) actions() map[string]func(*rapid.T) {
	r, m := x.r, &x.m
	return map[string]func(*rapid.T){
		"": func(t *rapid.T) { x.learn(t); x.same(t) },
		"push": func(t *rapid.T) {
			e := x.any(t)
			got := r.push(e.entity)
			if e.closed != (got == 0) {
				t.Fatalf("push to a closed (%t) stream: %d", e.closed, got)
			}
			if !e.closed {
				e.tail += int64(len(message))
				e.actionable = e.tail
			}
		},
		"push and route": func(t *rapid.T) {
			e := x.any(t)
			if e.closed {
				t.Skip("closed")
			}
			r.push(e.entity)
			e.tail += int64(len(message))
			e.actionable = e.tail
			x.agree(t, "route", r.route(e.entity), m.route(e, r.now))
		},
		"route": func(t *rapid.T) {
			e := x.any(t)
			x.agree(t, "route", r.route(e.entity), m.route(e, r.now))
		},
		"scan": func(t *rapid.T) {
			r.exec(`select rouse._dispatch_route(array_agg(stream_id), array_agg("position"), $1) from rouse.dispatch_scan(0, 1000)`, r.now)
			for _, e := range m.entities {
				if e.state == "idle" && !e.paused && e.pending() {
					m.route(e, r.now)
				}
			}
		},
		"time passes": func(t *rapid.T) {
			r.after(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, lease / 2, lease - time.Millisecond, lease, wakeTTL + time.Second, time.Hour}).Draw(t, "d"))
		},
		"acquire": func(t *rapid.T) {
			e := x.any(t)
			a := modelAcquire{
				holder:  rapid.SampledFrom([]string{kyle, kyle, kyle, mallory}).Draw(t, "holder"),
				claimID: rapid.SampledFrom([]string{"", "c1", "c2"}).Draw(t, "claim"),
				runner:  !e.webhook && rapid.Bool().Draw(t, "runner") || rarely(t, "odd runner"),
				proved:  e.webhook != rarely(t, "odd proof"),
			}
			o := op{"op": "acquire", "id": e.consumer, "holder": a.holder, "proved": a.proved}
			if a.claimID != "" {
				o["claim_id"] = a.claimID
			}
			if a.runner {
				o["runner"] = x.runner
			}
			switch rapid.IntRange(0, 9).Draw(t, "names") {
			case 9:
				a.unknown = true
				o["wake"] = strange
			case 8:
				a.byEpoch, a.epoch = true, e.epoch+1
				o["epoch"] = a.epoch
			case 7, 6:
				if e.epoch > 0 {
					a.byEpoch, a.epoch = true, x.epoch(t, e)
					o["epoch"] = a.epoch
				}
			case 5, 4, 3:
				if e.epoch > 0 {
					a.epoch = x.epoch(t, e)
					o["wake"] = e.wakes[a.epoch].id
				}
			}
			before := e.epoch
			got := r.apply(o)
			x.agree(t, "acquire", got.Outcome, m.acquire(e, a, r.now))
			if got.Outcome == "granted" || got.Outcome == "repeated" || got.Outcome == "held" {
				if got.Epoch != e.epoch || got.LeaseMS != e.lease.Sub(r.now).Milliseconds() || got.Epoch < before {
					t.Fatalf("answer %+v for epoch %d, lease %v", got, e.epoch, e.lease.Sub(r.now))
				}
			}
		},
		"work": func(t *rapid.T) { // what a good holder does: take, act, let time pass
			e := x.any(t)
			a := modelAcquire{holder: kyle, claimID: "c1", proved: true}
			o := op{"op": "acquire", "id": e.consumer, "holder": kyle, "claim_id": "c1", "proved": true}
			x.agree(t, "acquire", r.apply(o).Outcome, m.acquire(e, a, r.now))
			x.learn(t)
			if e.state != "claimed" {
				t.Skip("not granted")
			}
			r.after(rapid.SampledFrom([]time.Duration{time.Second, lease / 2, lease}).Draw(t, "d"))
			id := e.wake().id
			switch rapid.IntRange(0, 2).Draw(t, "act") {
			case 0:
				want := e.heartbeat(e.epoch, r.now)
				x.agree(t, "heartbeat", r.apply(e.call("heartbeat", e.epoch, id)).Outcome, want)
			case 1:
				o := e.call("release", e.epoch, id).with("acks", e.acks(e.tail))
				want, _ := m.release(e, e.epoch, e.tail, false, r.now)
				x.agree(t, "release", r.apply(o).Outcome, want)
			case 2:
				o := e.call("ack", e.epoch, id).with("acks", e.acks(e.tail))
				x.agree(t, "ack", r.apply(o).Outcome, e.ack(e.epoch, e.tail, r.now))
			}
		},
		"deliver": func(t *rapid.T) {
			e := x.m.entities[2]
			if !e.closed {
				r.push(e.entity)
				e.tail += int64(len(message))
				e.actionable = e.tail
			}
			x.agree(t, "route", r.route(e.entity), m.route(e, r.now))
			for _, d := range r.take(100) {
				if got := e.take(r.now); got != d.Attempt {
					t.Fatalf("attempt %d is taken, not %d", d.Attempt, got)
				}
				outcome := rapid.SampledFrom([]string{"done", "retry", "accepted", "unknown", "permanent"}).Draw(t, "outcome")
				x.agree(t, "result", r.result(d, outcome, 0), m.result(e, e.epoch, d.Attempt, outcome, 0, r.now))
			}
		},
		"heartbeat": func(t *rapid.T) {
			e := x.any(t)
			epoch := x.epoch(t, e)
			x.agree(t, "heartbeat", r.apply(e.call("heartbeat", epoch, e.wakes[epoch].id)).Outcome, e.heartbeat(epoch, r.now))
		},
		"ack": func(t *rapid.T) {
			e := x.any(t)
			epoch, position := x.epoch(t, e), x.position(t, e)
			x.agree(t, "ack", r.apply(e.call("ack", epoch, e.wakes[epoch].id).with("acks", e.acks(position))).Outcome, e.ack(epoch, position, r.now))
		},
		"release": func(t *rapid.T) {
			e := x.any(t)
			epoch, position, failed := x.epoch(t, e), x.position(t, e), rarely(t, "failed")
			o := e.call("release", epoch, e.wakes[epoch].id)
			if rarely(t, "no acks") {
				position = -1
			} else {
				o["acks"] = e.acks(position)
				position = max(position, 0)
			}
			if failed {
				o["error"] = "it failed"
			}
			got := r.apply(o)
			want, next := m.release(e, epoch, position, failed, r.now)
			x.agree(t, "release", got.Outcome, want)
			if fmt.Sprint(val(got.NextWake)) != fmt.Sprint(val(next)) {
				t.Fatalf("next wake: %v, not %v", val(got.NextWake), val(next))
			}
		},
		"batch": func(t *rapid.T) { // as if one by one, in any company
			if m.capacity > 0 {
				t.Skip("calls of different consumers are in no order: one's release may be too late for another's grant")
			}
			var ops []op
			var wants []func() string
			for range rapid.IntRange(2, 8).Draw(t, "size") {
				e := x.any(t)
				kind := rapid.SampledFrom([]string{"acquire", "acquire", "heartbeat", "ack", "release", "release"}).Draw(t, "op")
				if kind == "acquire" || e.epoch == 0 {
					a := modelAcquire{holder: rapid.SampledFrom([]string{kyle, kyle, mallory}).Draw(t, "holder"), proved: true,
						claimID: rapid.SampledFrom([]string{"", "c1", "c2"}).Draw(t, "claim")}
					o := op{"op": "acquire", "id": e.consumer, "holder": a.holder, "proved": true}
					if a.claimID != "" {
						o["claim_id"] = a.claimID
					}
					ops = append(ops, o)
					wants = append(wants, func() string { return "acquire " + m.acquire(e, a, r.now) })
					continue
				}
				epoch, position := x.epoch(t, e), x.position(t, e)
				o := e.call(kind, epoch, e.wakes[epoch].id)
				if kind != "heartbeat" {
					o["acks"] = e.acks(position)
				}
				ops = append(ops, o)
				wants = append(wants, func() string {
					switch kind {
					case "heartbeat":
						return kind + " " + e.heartbeat(epoch, r.now)
					case "ack":
						return kind + " " + e.ack(epoch, position, r.now)
					}
					out, next := m.release(e, epoch, max(position, 0), false, r.now)
					return fmt.Sprint(kind, " ", out, " ", val(next))
				})
			}
			rows, err := r.c.Query(r.ctx(), `select `+answerColumns+` from (select ord, answer as a from rouse._claim_apply($1, $2, $3)) t order by ord`,
				opsJSON(ops...), rapid.Bool().Draw(t, "wait"), r.now)
			if err != nil {
				t.Fatal(err)
			}
			got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (answer, error) { return scanAnswer(row) })
			if err != nil || len(got) != len(ops) {
				t.Fatalf("%d of %d answers: %v", len(got), len(ops), err)
			}
			for i, want := range wants {
				name := fmt.Sprint(ops[i]["op"])
				said := name + " " + got[i].Outcome
				if name == "release" {
					said = fmt.Sprint(said, " ", val(got[i].NextWake))
				}
				x.agree(t, "batch", said, want())
			}
		},
		"write": func(t *rapid.T) {
			e := x.any(t)
			epoch := x.epoch(t, e)
			want := e.write(epoch, r.now)
			x.agree(t, "write", r.write(e.entity, answer{Epoch: epoch, Wake: e.wakes[epoch].id}), want)
			if want == "appended" {
				e.tail += int64(len(`{"a":1}`))
			}
		},
		"reap": func(t *rapid.T) {
			x.agree(t, "reap", fmt.Sprint(r.reap()), fmt.Sprint(m.reap(r.now)))
		},
		"beat": func(t *rapid.T) {
			liveness := rapid.SampledFrom([]time.Duration{5 * time.Second, time.Minute}).Draw(t, "liveness")
			x.agree(t, "beat", fmt.Sprint(r.beat(x.runner, liveness)), fmt.Sprint(m.beat(liveness, r.now)))
		},
		"administer": func(t *rapid.T) {
			m.disabled = rarely(t, "disabled")
			m.capacity = rapid.IntRange(0, 2).Draw(t, "capacity")
			r.exec(`update rouse.runners set admin_status = case when $2 then 'disabled' else 'enabled' end, capacity = nullif($3, 0) where id = $1`,
				x.runner, m.disabled, m.capacity)
		},
		"signal": func(t *rapid.T) {
			e := x.any(t)
			sig := rapid.SampledFrom([]string{"SIGSTOP", "SIGCONT", "SIGSTOP", "SIGCONT", "SIGINT", "SIGTERM", "SIGKILL"}).Draw(t, "signal")
			if (sig == "SIGTERM" || sig == "SIGKILL") && !rarely(t, "for good") {
				t.Skip("spared")
			}
			var got, status string
			if err := r.c.QueryRow(r.ctx(), `select g.outcome, g.new_state from rouse.entities e join rouse.consumers c on c.id = e.consumer_id,
				rouse._entity_signal(e, c, $2, $3, $4, 'k', null, null, $5) g where e.service_id = 1 and e.url = $1`,
				e.url, e.stream, kyle, sig, r.now).Scan(&got, &status); err != nil {
				t.Fatal(err)
			}
			want, to := m.signal(e, sig, r.tail(e.entity)-e.tail, r.now)
			x.agree(t, sig, got+" "+status, want+" "+to)
		},
		"take": func(t *rapid.T) {
			got := map[string]int{}
			for _, d := range r.take(100) {
				got[d.Consumer] = d.Attempt
			}
			for _, e := range m.entities {
				if want := e.take(r.now); got[e.name] != want {
					t.Fatalf("attempt %d of %s is taken, not %d", got[e.name], e.url, want)
				}
			}
		},
		"result": func(t *rapid.T) {
			e := x.any(t)
			epoch := x.epoch(t, e)
			w := e.wakes[epoch]
			if w.attempts == 0 {
				t.Skip("never sent")
			}
			attempt := rapid.IntRange(1, w.attempts).Draw(t, "attempt")
			outcome := rapid.SampledFrom([]string{"accepted", "done", "retry", "permanent", "unknown"}).Draw(t, "outcome")
			retry := rapid.SampledFrom([]time.Duration{0, 0, 3 * time.Minute}).Draw(t, "retry")
			x.agree(t, "result", r.result(due{Wake: w.id, Attempt: attempt}, outcome, retry), m.result(e, epoch, attempt, outcome, retry, r.now))
		},
	}
}

// TestModelAgrees runs random histories of three entities against the functions
// and the model, and compares everything after each step.
func TestModelAgrees(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	t.Logf("seed %s: ROUSE_SEED=%[1]s repeats this run", flag.Lookup("rapid.seed").Value)
	n, steps, met := 0, 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		n++
		r.now = epochStart
		r.exec(`delete from rouse.consumer_streams`)
		r.exec(`update rouse.consumers set state = 'stopped', wake_id = null, lease_expires_at = null, due_at = null, paused = false where state <> 'stopped'`)
		r.exec(`truncate rouse.wake_notifications, rouse.consumer_claims, rouse.entity_dispatch_state, rouse.entities, rouse.delivery_attempts`)
		r.exec(`update rouse.streams set pending = false where pending`)
		x := &machine{r: r, runner: fmt.Sprintf("mac%d", n), done: met}
		r.runner(x.runner, 0)
		for i, policy := range []string{toRunner(x.runner), toRunner(x.runner), toWebhook} {
			url := fmt.Sprintf("/chat/%06d/%d", n, i)
			e := &modelEntity{entity: r.entity(url, policy), webhook: policy == toWebhook, status: "idle", state: "idle",
				wakes: map[int64]*modelWake{}, claims: map[int64]*modelClaim{}}
			e.tail = r.tail(e.entity)
			e.acked = e.tail
			x.m.entities = append(x.m.entities, e)
			x.urls = append(x.urls, url)
		}
		acts := x.actions()
		for name, f := range acts {
			if name != "" {
				acts[name] = func(t *rapid.T) { steps++; f(t) }
			}
		}
		t.Repeat(acts)
	})
	t.Logf("%d histories, %d steps, outcomes met: %v", n, steps, met)
	// A run that meets only refusals proves little.
	for name, want := range map[string]struct {
		least int
		of    []string
	}{
		"grants":     {10, []string{"acquire granted"}},
		"conflicts":  {5, []string{"acquire held", "acquire repeated"}},
		"fences":     {10, []string{"acquire stale", "heartbeat stale", "ack stale", "release stale", "write token_stale"}},
		"lapses":     {3, []string{"heartbeat lease_expired", "ack lease_expired", "release lease_expired", "write lease_expired"}},
		"signs":      {10, []string{"heartbeat ok", "ack ok", "write appended"}},
		"releases":   {5, []string{"release released"}},
		"wakes":      {10, []string{"route minted"}},
		"merged":     {10, []string{"route coalesced"}},
		"deliveries": {5, []string{"result released", "result retry", "result delivered", "result failed"}},
	} {
		n := 0
		for _, outcome := range want.of {
			n += met[outcome]
		}
		if n < want.least {
			t.Errorf("%s were met %d times only", name, n)
		}
	}
}
