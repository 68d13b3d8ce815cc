package mutextest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// lent is one row of delivery_lend.
type lent struct {
	Wake, Receiver string
	Attempt        int
	More           bool
}

func (r *rig) lend(limit, each int, room map[string]int) []lent {
	r.t.Helper()
	if room == nil {
		room = map[string]int{}
	}
	text, err := json.Marshal(room)
	if err != nil {
		r.t.Fatal(err)
	}
	rows, err := r.c.Query(r.ctx(), `select wake_id::text, receiver, attempt, more from rouse._delivery_lend($1, $2, $3::jsonb, $4)`, limit, each, string(text), r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	var out []lent
	for rows.Next() {
		var l lent
		if err := rows.Scan(&l.Wake, &l.Receiver, &l.Attempt, &l.More); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, l)
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// hooked is an entity with a due wake for a url.
func (r *rig) hooked(name, url string) {
	r.t.Helper()
	e := r.entity("/chat/"+name, fmt.Sprintf(`{"targets":[{"type":"webhook","url":%q}]}`, url))
	r.push(e)
	if got := r.route(e); got != "minted" {
		r.t.Fatalf("route: %s", got)
	}
}

func receiversOf(list []lent) (out []string) {
	for _, l := range list {
		out = append(out, l.Receiver)
	}
	slices.Sort(out)
	return out
}

// A receiver is its host and port, however the rest of its URLs looks.
func TestWhatAReceiverIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i, url := range []string{"https://Hooks.Example/a", "https://hooks.example/b?x=https://other", "https://hooks.example?q", "https://hooks.example#f",
		"http://127.0.0.1:9000/x", "http://[::1]:9000", "https://hooks.example:8443/a"} {
		r.hooked(fmt.Sprint(i), url)
	}
	want := []string{"127.0.0.1:9000", "[::1]:9000", "hooks.example", "hooks.example", "hooks.example", "hooks.example", "hooks.example:8443"}
	if got := receiversOf(r.lend(100, 10, nil)); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	r.hold()
}

// Each receiver gets what it has room for; one without room holds up nobody
// behind it, and what it does not get stays as it was.
func TestRoomOfReceivers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 6 {
		r.hooked(fmt.Sprint("dead-", i), "https://dead.example/wake")
	}
	r.after(time.Millisecond)
	for i := range 3 {
		r.hooked(fmt.Sprint("well-", i), "https://well.example/wake")
	}
	if got := receiversOf(r.lend(100, 2, map[string]int{"dead.example": 0})); !slices.Equal(got, []string{"well.example", "well.example"}) {
		t.Errorf("%v", got)
	}
	equal(t, "attempts so far", one[int](r, `select count(*) from rouse.delivery_attempts`), 2)
	// A page full of the dead one's: there may be others behind them.
	first := r.lend(4, 2, map[string]int{"well.example": 5})
	if got := receiversOf(first); !slices.Equal(got, []string{"dead.example", "dead.example"}) || !first[0].More {
		t.Errorf("%+v", first)
	}
	if got := receiversOf(r.lend(4, 2, map[string]int{"dead.example": 0})); !slices.Equal(got, []string{"well.example"}) {
		t.Errorf("%v", got)
	}
	equal(t, "nothing else", len(r.lend(100, 0, map[string]int{"other.example": 3})), 0)
	rest := r.lend(100, 0, map[string]int{"dead.example": 3})
	equal(t, "the dead one's", len(rest), 3)
	equal(t, "first attempts", rest[0].Attempt, 1)
	equal(t, "no more is due for those with room", rest[0].More, false)
	equal(t, "one is left", len(r.take(100)), 1)
	// A loan that ends is another attempt.
	r.after(lease)
	equal(t, "all are due again", len(r.lend(100, 100, nil)), 9)
	equal(t, "attempts", one[int](r, `select max(attempts) from rouse.wake_notifications`), 2)
	r.hold()
}

func TestRedeliver(t *testing.T) {
	t.Parallel()
	r, e, d := pushed(t)
	redeliver := func() string {
		return one[string](r, `select rouse._wake_redeliver(1, $1::uuid, $2, $3)`, d.Wake, kyle, r.now)
	}
	equal(t, "another service", one[string](r, `select rouse.wake_redeliver(2, $1::uuid, $2)`, d.Wake, kyle), "not_found")
	equal(t, "nobody's", one[string](r, `select rouse.wake_redeliver(1, $1::uuid, $2)`, strange, kyle), "not_found")
	// Refused for good, and sent again.
	equal(t, "refused", r.result(d, "permanent", 0), "failed")
	equal(t, "nothing is due", len(r.take(10)), 0)
	r.after(time.Hour)
	equal(t, "redelivered", redeliver(), "redelivered")
	again := r.take(10)
	if len(again) != 1 || again[0].Wake != d.Wake || again[0].Epoch != d.Epoch || again[0].Attempt != 2 {
		t.Fatalf("%+v", again)
	}
	// While a retry is due later, and while a loan is out: the same wake, now.
	equal(t, "retry", r.result(again[0], "retry", time.Hour), "retry")
	equal(t, "before its time", redeliver(), "redelivered")
	third := r.take(10)
	equal(t, "third", third[0].Attempt, 3)
	equal(t, "lent", redeliver(), "redelivered")
	fourth := r.take(10)
	equal(t, "fourth", fourth[0].Attempt, 4)
	// The earlier attempt's answer, when it comes, decides nothing.
	equal(t, "the third's answer", r.result(third[0], "retry", time.Hour), "repeated")
	a := r.want("granted", e.acquire().with("trusted", true))
	equal(t, "while it is held", redeliver(), "claimed")
	r.want("released", e.call("release", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
	equal(t, "afterwards", redeliver(), "resolved")
	equal(t, "nothing is due at the end", len(r.take(10)), 0)
	equal(t, "noted", one[int](r, `select count(*) from rouse.audit_log where action = 'wake.redeliver' and principal = $1`, kyle), 3)
	r.hold()
}

// A receiver that is dead for weeks leaves its last attempts, not all of them.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.hooked("1", "https://dead.example/")
	for n := 1; n <= 45; n++ {
		got := r.lend(10, 10, nil)
		if len(got) != 1 || got[0].Attempt != n {
			t.Fatalf("attempt %d: %+v", n, got)
		}
		// Each is told of at the latest a minute after the one before.
		equal(t, "result", r.result(due{Wake: got[0].Wake, Attempt: n}, "retry", 0), "retry")
		wait := min(time.Minute, time.Second<<min(n-1, 10))
		when(t, "next", one[*time.Time](r, `select next_attempt_at from rouse.wake_notifications`), r.now.Add(wait))
		r.after(wait)
	}
	equal(t, "kept", one[int](r, `select count(*) from rouse.delivery_attempts`), 20)
	equal(t, "the oldest", one[int](r, `select min(attempt) from rouse.delivery_attempts`), 26)
	r.hold()
}
