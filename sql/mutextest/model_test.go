package mutextest

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// The model: what the functions are to do, written down a second time, without
// SQL, locks or tables. TestModelAgrees compares the two after every step.

type modelClaim struct {
	status string
	next   *bool
}

type modelWake struct {
	id       string // learnt from the database; the model decides when there is one
	claim    string
	delivery string
	attempts int
	next     *time.Time
	snapshot int64
	acked    int64        // the cursor that it was made with
	open     map[int]bool // attempts without a result
}

type modelEntity struct {
	entity
	webhook bool

	status                  string
	state                   string
	paused                  bool
	closed                  bool
	epoch                   int64
	holder, claimID         string
	lease                   time.Time
	told                    time.Time
	minted                  time.Time
	look                    time.Time // refused for want of room: when that is looked at next
	acked, tail, actionable int64
	fruitless               int // claims in a row that a receiver ended without an ack that moved anything
	wakes                   map[int64]*modelWake
	claims                  map[int64]*modelClaim
}

type model struct {
	entities []*modelEntity
	capacity int
	disabled bool
	alive    time.Time // until when the runner is online
	entries  int       // of the wake stream
}

// GoString is how a failing history names it.
func (e *modelEntity) GoString() string { return e.url }

func (e *modelEntity) pending() bool { return e.actionable > e.acked }

func (e *modelEntity) wake() *modelWake { return e.wakes[e.epoch] }

func (e *modelEntity) live(now time.Time) bool { return e.state == "claimed" && e.lease.After(now) }

func (e *modelEntity) lapsed(now time.Time) bool { return e.state == "claimed" && !e.lease.After(now) }

func (m *model) mint(e *modelEntity, now time.Time) {
	e.epoch++
	w := &modelWake{claim: "unclaimed", delivery: "delivered", attempts: 1, snapshot: e.wakeOffset(), acked: e.acked, open: map[int]bool{}}
	if e.webhook {
		due := now
		if e.fruitless >= 2 {
			due = now.Add(min(time.Minute, time.Second<<min(e.fruitless-2, 6)))
		}
		w.delivery, w.attempts, w.next = "queued", 0, &due
	} else {
		m.entries++
	}
	e.wakes[e.epoch] = w
	e.state, e.told, e.minted, e.look = "waking", now, now, time.Time{}
}

// freed tells wakes, one for each of these claims that have ended together: the
// oldest that wait if the runner was full until now, and just below that those
// that were refused for want of room, whoever was told longest ago first.
func (m *model) freed(now time.Time, ended ...*modelEntity) {
	const near = 4
	ended = slices.DeleteFunc(slices.Clone(ended), func(e *modelEntity) bool { return e.webhook })
	held, freed := m.heldByRunner(nil, now), len(ended)
	if freed == 0 || m.capacity == 0 || m.disabled || held >= m.capacity || held+freed < m.capacity-near {
		return
	}
	full := held+freed >= m.capacity
	var waiting []*modelEntity
	for _, w := range m.entities {
		if !w.webhook && w.state == "waking" && (full || !w.look.IsZero()) {
			waiting = append(waiting, w)
		}
	}
	slices.SortFunc(waiting, func(a, b *modelEntity) int {
		oldest := cmp.Or(a.minted.Compare(b.minted), strings.Compare(a.name, b.name))
		if full {
			return oldest
		}
		return cmp.Or(a.told.Compare(b.told), oldest)
	})
	most := freed
	if full {
		most = min(most, m.capacity-held)
	}
	for _, w := range waiting[:min(len(waiting), most)] {
		w.wake().attempts++
		m.entries++
		if !w.look.IsZero() {
			w.told = now
		}
	}
}

func (m *model) stop(e *modelEntity, now time.Time) {
	switch e.state {
	case "claimed":
		e.claims[e.epoch].status = "failed"
		e.wake().claim, e.wake().next = "completed", nil
		e.state = "stopped"
		m.freed(now, e)
	case "waking":
		e.wake().delivery, e.wake().next = "superseded", nil
	}
	e.state, e.closed = "stopped", true
}

// end ends the live claim, and mints the next wake if the life goes on.
func (m *model) end(e *modelEntity, status string, now time.Time) (minted bool) {
	e.unhold(status)
	m.freed(now, e)
	return m.goOn(e, now)
}

// unhold is the end of a claim as far as its holder is concerned.
func (e *modelEntity) unhold(status string) {
	e.claims[e.epoch].status = status
	w := e.wake()
	w.claim, w.next = "completed", nil
	if status == "expired" {
		w.claim = "expired"
	}
	if e.webhook && status != "expired" && e.pending() && e.acked == w.acked {
		e.fruitless++
	} else {
		e.fruitless = 0
	}
	e.state, e.holder, e.claimID = "idle", "", ""
}

// goOn is what comes after a claim's end: rest, the entity's end or the next wake.
func (m *model) goOn(e *modelEntity, now time.Time) (minted bool) {
	switch e.status {
	case "running":
		e.status = "idle"
	case "stopping":
		e.status = "stopped"
		m.stop(e, now)
		e.claims[e.epoch].next = &minted
		return false
	}
	e.claims[e.epoch].next = &minted
	if e.pending() && !e.paused {
		m.mint(e, now)
		minted = true
	}
	return minted
}

func (m *model) heldByRunner(except *modelEntity, now time.Time) (n int) {
	for _, e := range m.entities {
		if e != except && !e.webhook && e.live(now) {
			n++
		}
	}
	return n
}

type modelAcquire struct {
	epoch           int64 // of the wake that is named; 0 names none
	unknown         bool  // names a wake that never was
	byEpoch         bool  // names the epoch, not the wake
	holder, claimID string
	runner, proved  bool
}

func (m *model) acquire(e *modelEntity, a modelAcquire, now time.Time) string {
	if a.runner {
		if a.holder != kyle {
			return "not_owner"
		}
		if m.disabled {
			return "runner_disabled"
		}
	}
	named := a.epoch != 0 && e.wakes[a.epoch] != nil
	if a.byEpoch && !named {
		return "stale"
	}
	if a.unknown {
		return "wrong_wake"
	}
	if !e.webhook && e.state != "stopped" && !e.live(now) && a.holder == kyle {
		if m.disabled {
			return "runner_disabled"
		}
		if m.capacity > 0 && m.heldByRunner(e, now) >= m.capacity {
			if look := now.Add(time.Second); e.state == "waking" && (!named || a.epoch == e.epoch) && (e.look.IsZero() || e.look.After(look)) {
				e.look = look
			}
			return "runner_full"
		}
	}
	if e.live(now) {
		current := !named || a.epoch == e.epoch
		switch {
		case current && a.claimID != "" && a.claimID == e.claimID && a.holder == e.holder:
			return "repeated"
		case current:
			return "held"
		}
		return "stale"
	}
	if e.lapsed(now) {
		m.end(e, "expired", now)
	} else if e.state == "idle" && !named && !e.paused && e.pending() {
		m.mint(e, now)
	}
	switch {
	case e.state == "stopped":
		return "stopped"
	case e.paused:
		return "paused"
	case e.state == "idle" && !named:
		return "no_work"
	case e.state == "idle", named && a.epoch != e.epoch:
		return "stale"
	case e.webhook && a.runner:
		return "runner_mismatch"
	case e.webhook && !a.proved, !e.webhook && a.holder != kyle:
		return "not_owner"
	}
	m.grant(e, a.holder, a.claimID, now)
	return "granted"
}

func (m *model) grant(e *modelEntity, holder, claimID string, now time.Time) {
	e.state, e.holder, e.claimID, e.lease = "claimed", holder, claimID, now.Add(lease)
	w := e.wake()
	w.claim, w.delivery, w.next = "claimed", "delivered", nil
	e.claims[e.epoch] = &modelClaim{status: "active"}
	if e.status == "idle" {
		e.status = "running"
	}
}

func (e *modelEntity) fence(epoch int64, now time.Time) string {
	switch {
	case e.state != "claimed" || epoch != e.epoch:
		return "stale"
	case e.lapsed(now):
		return "lease_expired"
	}
	return "ok"
}

func (e *modelEntity) heartbeat(epoch int64, now time.Time) string {
	out := e.fence(epoch, now)
	if out == "ok" {
		if l := now.Add(lease); l.After(e.lease) {
			e.lease = l
		}
	}
	return out
}

func (e *modelEntity) ack(epoch, position int64, now time.Time) string {
	if out := e.fence(epoch, now); out != "ok" {
		return out
	}
	if position < e.acked || position > e.tail {
		return "invalid_offset"
	}
	e.acked = position
	return "ok"
}

func (m *model) release(e *modelEntity, epoch, position int64, failed bool, now time.Time) (out string, next *bool) {
	switch e.fence(epoch, now) {
	case "lease_expired":
		m.end(e, "expired", now)
		return "lease_expired", nil
	case "stale":
		switch k := e.claims[epoch]; {
		case k == nil:
		case k.next != nil && (k.status == "released" || k.status == "failed"):
			return "released", k.next
		case k.status == "expired":
			return "lease_expired", nil
		}
		return "stale", nil
	}
	if position >= 0 {
		if out := e.ack(epoch, position, now); out != "ok" {
			return out, nil
		}
	}
	status := "released"
	if failed {
		status = "failed"
	}
	m.end(e, status, now)
	return "released", e.claims[epoch].next
}

func (e *modelEntity) write(epoch int64, now time.Time) string {
	switch {
	case e.state == "claimed" && epoch == e.epoch && e.live(now):
		if e.closed {
			return "closed"
		}
		return "appended"
	case e.state == "claimed" && epoch == e.epoch:
		return "lease_expired"
	}
	return "token_stale"
}

// again is when an unclaimed wake is told again.
func (e *modelEntity) again() time.Time {
	if !e.look.IsZero() {
		return e.look
	}
	return e.told.Add(wakeTTL << min(max(e.wake().attempts-3, 0), 5))
}

func (m *model) reap(now time.Time) (x reaped) {
	// What has lapsed ends together, before anything is told.
	var ended []*modelEntity
	for _, e := range m.entities {
		if e.lapsed(now) {
			e.unhold("expired")
			ended = append(ended, e)
		}
	}
	waiting := slices.DeleteFunc(slices.Clone(m.entities), func(e *modelEntity) bool { return slices.Contains(ended, e) })
	m.freed(now, ended...)
	for _, e := range ended {
		m.goOn(e, now)
		x.Expired++
	}
	for _, e := range waiting {
		switch {
		case e.state == "waking" && !e.webhook && !e.again().After(now):
			room := m.capacity == 0 || m.heldByRunner(e, now) < m.capacity
			able := m.alive.After(now) && !m.disabled
			if !e.look.IsZero() && !(able && room) {
				e.look = now.Add(wakeTTL)
				continue
			}
			e.told, e.look = now, time.Time{}
			if able {
				e.wake().attempts++
				m.entries++
				x.Redelivered++
			}
		}
	}
	return x
}

func (m *model) beat(liveness time.Duration, now time.Time) (told int) {
	was := m.alive
	m.alive = now.Add(liveness)
	if was.After(now) {
		return 0
	}
	for _, e := range m.entities {
		if !e.webhook && e.state == "waking" {
			e.wake().attempts++
			e.wake().delivery = "delivered"
			m.entries++
			told++
		}
	}
	return told
}

func (m *model) route(e *modelEntity, now time.Time) string {
	switch {
	case !e.pending() || e.state == "stopped" || e.paused:
		return "idle"
	case e.state == "idle":
		m.mint(e, now)
		return "minted"
	}
	if w := e.wake(); e.webhook && e.state == "waking" && w.delivery == "failed" {
		w.delivery, w.next = "queued", &now
	}
	return "coalesced"
}

func (m *model) pause(e *modelEntity, on bool, now time.Time) {
	if e.state == "stopped" || e.paused == on {
		return
	}
	if on && e.state == "waking" {
		e.wake().delivery, e.wake().next = "superseded", nil
		e.state = "idle"
	}
	e.paused = on
	if !on && e.state == "idle" && e.pending() {
		m.mint(e, now)
	}
}

// signal takes size, how many bytes its row in the stream has.
func (m *model) signal(e *modelEntity, sig string, size int64, now time.Time) (out, status string) {
	if e.status == "stopped" || e.status == "killed" {
		return "terminal", e.status
	}
	was, to := e.status, e.status
	switch {
	case sig == "SIGKILL":
		to = "killed"
	case sig == "SIGTERM" && (was == "running" || was == "stopping" || e.live(now)):
		to = "stopping"
	case sig == "SIGTERM":
		to = "stopped"
	case sig == "SIGSTOP" && (was == "idle" || was == "running"):
		to = "paused"
	case sig == "SIGCONT" && was == "paused" && e.live(now):
		to = "running"
	case sig == "SIGCONT" && was == "paused":
		to = "idle"
	}
	e.status = to
	ends := to == "stopped" || to == "killed"
	e.tail += size
	if !ends {
		e.actionable = e.tail
	}
	switch {
	case ends:
		m.stop(e, now)
	case to == "paused":
		m.pause(e, true, now)
	case was == "paused":
		m.pause(e, false, now)
	}
	return "signalled", to
}

// wakeOffset is the offset that a wake made now names: the end of the newest message
// that asks for work, not of what a holder that went without acking wrote behind it.
func (e *modelEntity) wakeOffset() int64 {
	if e.actionable > e.acked {
		return e.actionable
	}
	return e.tail
}

func (e *modelEntity) take(now time.Time) (attempt int) {
	w := e.wake()
	if w == nil || w.next == nil || w.next.After(now) {
		return 0
	}
	w.attempts++
	w.open[w.attempts] = true
	until := now.Add(lease)
	w.next = &until
	return w.attempts
}

func (m *model) result(e *modelEntity, epoch int64, attempt int, outcome string, retry time.Duration, now time.Time) string {
	w := e.wakes[epoch]
	if !w.open[attempt] {
		return "repeated"
	}
	delete(w.open, attempt)
	if epoch != e.epoch || (e.state != "waking" && e.state != "claimed") {
		return "resolved"
	}
	if outcome == "done" {
		if e.state == "waking" {
			m.grant(e, "transport:webhook", "", now)
		}
		out, _ := m.release(e, epoch, max(w.snapshot, e.acked), false, now)
		return out
	}
	switch {
	case e.state == "claimed":
		return "claimed"
	case attempt < w.attempts && outcome != "permanent":
		return "repeated"
	case outcome == "permanent":
		w.delivery, w.next = "failed", nil
		return "failed"
	case outcome == "unknown":
		w.delivery, w.next = "failed", nil
		return "unknown"
	}
	var next time.Time
	if outcome == "accepted" {
		w.delivery = "delivered"
		next = now.Add(lease)
		w.next = &next
		return "delivered"
	}
	next = now.Add(min(time.Minute, time.Second<<min(attempt-1, 10)))
	if retry > 0 {
		next = now.Add(retry)
	}
	w.next = &next
	return "retry"
}

// text is the model's state as digestSQL prints the database's.
func (m *model) text() string {
	var b strings.Builder
	ms := func(t time.Time) int64 { return t.Sub(epochStart).Milliseconds() }
	for _, e := range m.entities {
		fmt.Fprintf(&b, "%s %s/%s epoch=%d paused=%t closed=%t acked=%d tail=%d actionable=%d", e.url, e.state, e.status, e.epoch, e.paused, e.closed, e.acked, e.tail, e.actionable)
		if e.state == "claimed" {
			fmt.Fprintf(&b, " lease=%d holder=%s", ms(e.lease), e.holder)
		}
		b.WriteString(" wakes=")
		for i := int64(1); i <= e.epoch; i++ {
			w := e.wakes[i]
			fmt.Fprintf(&b, "%d:%s:%s:%d:", i, w.claim, w.delivery, w.attempts)
			if w.next != nil {
				fmt.Fprint(&b, ms(*w.next))
			}
			b.WriteByte(';')
		}
		b.WriteString(" claims=")
		var epochs []int64
		for i := range e.claims {
			epochs = append(epochs, i)
		}
		sort.Slice(epochs, func(i, j int) bool { return epochs[i] < epochs[j] })
		for _, i := range epochs {
			next := ""
			if n := e.claims[i].next; n != nil {
				next = fmt.Sprint(*n)
			}
			fmt.Fprintf(&b, "%d:%s:%s;", i, e.claims[i].status, next)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "entries=%d\n", m.entries)
	return b.String()
}

// digestSQL prints the entities $1 and the wake stream $3 as model.text does;
// $2 is epochStart.
const digestSQL = `select string_agg(
	format('%s %s/%s epoch=%s paused=%s closed=%s acked=%s tail=%s actionable=%s%s wakes=%s claims=%s',
		e.url, c.state, e.status, c.epoch, c.paused::text, (s.closed_at is not null)::text, k.acked, s.tail, s.actionable,
		case when c.state = 'claimed' then format(' lease=%s holder=%s', (extract(epoch from c.lease_expires_at - $2) * 1000)::bigint, c.holder) end,
		(select string_agg(format('%s:%s:%s:%s:%s;', n.epoch, n.claim_status, n.delivery_status, n.attempts,
				(extract(epoch from n.next_attempt_at - $2) * 1000)::bigint), '' order by n.epoch)
		   from rouse.wake_notifications n where n.service_id = 1 and n.consumer_id = c.name),
		(select string_agg(format('%s:%s:%s;', q.epoch, q.status, q.next_wake::text), '' order by q.epoch)
		   from rouse.consumer_claims q where q.service_id = 1 and q.consumer_id = c.name)) || E'\n', '' order by e.url)
	|| format(E'entries=%s\n', (select count(*) from rouse.messages m join rouse.streams w on w.id = m.stream_id where w.path = $3))
	from unnest($1::text[]) u (url) join rouse.entities e on e.service_id = 1 and e.url = u.url
	join rouse.consumers c on c.id = e.consumer_id
	join rouse.streams s on s.consumer_id = c.id and s.kind = 'entity'
	join rouse.consumer_streams k on k.consumer_id = c.id and k.stream_id = s.id`
