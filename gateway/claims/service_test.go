package claims_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

const (
	kyle    = "/principal/user%3Akyle"
	mallory = "/principal/user%3Amallory"
)

type rig struct {
	t    *testing.T
	db   *pgtest.DB
	conn *pgx.Conn
	st   *store.Store
	keys *claims.Keys
	ts   *claims.Tokens
	svc  *claims.Service
}

func newRig(t *testing.T) *rig {
	t.Helper()
	db := pgtest.New(t)
	st, err := store.Open(t.Context(), store.Options{DSN: db.DSN, MaxConns: 12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	r := &rig{t: t, db: db, conn: db.Conn(t), st: st}
	r.keys = ring(t, claims.NewKeys())
	r.ts = claims.NewTokens(r.keys)
	r.svc = r.service(r.ts)
	if out, _, _, err := st.EntityTypePut(t.Context(), 1, kyle, false, store.EntityType{Name: "chat"}); err != nil || out != "created" {
		t.Fatalf("type: %s %v", out, err)
	}
	if out, _, _, err := st.RunnerRegister(t.Context(), 1, kyle, false, store.Runner{ID: "mac", Owner: kyle, Label: "Mac"}); err != nil || out != "created" {
		t.Fatalf("runner: %s %v", out, err)
	}
	return r
}

// service is another gateway's service on the same database.
func (r *rig) service(ts *claims.Tokens) *claims.Service {
	svc := claims.New(context.WithoutCancel(r.t.Context()), r.st, ts, claims.Config{PublicURL: "https://rouse.example/"})
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := svc.Stop(ctx); err != nil {
			r.t.Error(err)
		}
	})
	return svc
}

type entity struct {
	url, path, name, wake string
	consumer, stream      int64
	epoch                 int64
}

// woken is an entity of kyle's with a waiting wake for runner mac.
func (r *rig) woken(url string) entity {
	r.t.Helper()
	return r.spawned(url, `{"targets":[{"type":"runner","runnerId":"mac"}]}`)
}

// spawned is an entity of kyle's with a waiting wake.
func (r *rig) spawned(url, policy string) entity {
	r.t.Helper()
	res, err := r.st.EntitySpawn(r.t.Context(), store.SpawnRequest{Service: 1, URL: url, Type: "chat", TypeRevision: 1, Principal: kyle,
		Policy:  json.RawMessage(policy),
		Created: `{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{}}`})
	if err != nil || res.Outcome != "spawned" {
		r.t.Fatalf("spawn: %s %v", res.Outcome, err)
	}
	e := entity{url: url, path: strings.TrimPrefix(url, "/") + "/main"}
	r.scan(`select c.id, c.name, s.id from rouse.consumers c join rouse.streams s on s.consumer_id = c.id where c.entity_url = $1`, []any{url}, &e.consumer, &e.name, &e.stream)
	r.wake(&e)
	return e
}

// wake appends a message and routes it.
func (r *rig) wake(e *entity) {
	r.t.Helper()
	var tail int64
	r.scan(`select rouse._stream_push($1, '{"a":1}', true)`, []any{e.stream}, &tail)
	if _, err := r.st.DispatchRoute(r.t.Context(), []store.StreamAt{{Stream: e.stream, Position: tail}}); err != nil {
		r.t.Fatal(err)
	}
	r.scan(`select epoch, coalesce(wake_id::text, '') from rouse.consumers where id = $1`, []any{e.consumer}, &e.epoch, &e.wake)
}

func (r *rig) scan(sql string, args []any, into ...any) {
	r.t.Helper()
	if err := r.conn.QueryRow(r.t.Context(), sql, args...).Scan(into...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func (r *rig) tail(e entity) string {
	var p int64
	r.scan(`select tail from rouse.streams where id = $1`, []any{e.stream}, &p)
	return store.FormatOffset(p)
}

// snapshot is everything the mutex keeps, so that "nothing changed" can be said.
func (r *rig) snapshot() string {
	var s string
	r.scan(`select (select string_agg(c::text, E'\n' order by id) from rouse.consumers c)
		|| (select coalesce(string_agg(k::text, E'\n' order by k::text), '') from rouse.consumer_claims k)
		|| (select string_agg(n::text, E'\n' order by n::text) from rouse.wake_notifications n)
		|| (select string_agg(a::text, E'\n' order by a::text) from rouse.consumer_streams a)
		|| (select string_agg(d::text, E'\n' order by d::text) from rouse.entity_dispatch_state d)`, nil, &s)
	return s
}

func (r *rig) acquire(e entity) claims.Grant {
	r.t.Helper()
	g, err := r.svc.Acquire(r.t.Context(), claims.AcquireRequest{Service: 1, Consumer: e.name, Holder: kyle})
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

func wantCode(t *testing.T, what string, err error, code problem.Code) {
	t.Helper()
	if err == nil || problem.CodeOf(err) != code {
		t.Errorf("%s: %v, not %s", what, err, code)
	}
}

// R4: junk is 401, superseded is 409, and nothing changes.
func TestTokenMatrixOfAcquire(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e, other := r.woken("/chat/a"), r.woken("/chat/b")
	held := r.woken("/chat/held")
	g := r.acquire(held)
	claim := func(wake string, epoch int64) string { return r.svc.ClaimToken(1, epoch, wake) }
	good := claim(e.wake, e.epoch)
	foreign := tokens(t, claims.NewKeys())
	before := r.snapshot()
	base := claims.AcquireRequest{Service: 1, Wake: e.wake, Holder: kyle}
	for name, c := range map[string]struct {
		code problem.Code
		edit func(*claims.AcquireRequest)
	}{
		"junk":                {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token = "rouse_ct_junk" }},
		"a user's credential": {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token = "eyJhbGciOiJub25lIn0.e30." }},
		"cut":                 {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token = good[:len(good)-1] }},
		"of another ring": {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) {
			q.Token = foreign.Mint(claims.Token{Purpose: claims.Claim, Service: 1, Epoch: e.epoch, Wake: e.wake})
		}},
		"of another service":              {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token = r.svc.ClaimToken(2, e.epoch, e.wake) }},
		"in another service":              {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token, q.Service = good, 2 }},
		"of another wake":                 {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token = claim(other.wake, other.epoch) }},
		"of a wake that never was":        {problem.WakeCallbackNotFound, func(q *claims.AcquireRequest) { q.Token, q.Wake, q.Wire = claim(wakeA, 1), "", claims.Peer }},
		"of another epoch":                {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token = claim(e.wake, e.epoch+1) }},
		"another epoch asked for":         {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token, q.Epoch = good, e.epoch+1 }},
		"under another consumer's name":   {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token, q.Wake, q.Consumer = good, "", other.name }},
		"under another stream's path":     {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token, q.Wake, q.Path = good, "", "/"+other.path }},
		"shown by another user":           {problem.RunnerForbidden, func(q *claims.AcquireRequest) { q.Token, q.Holder = good, mallory }},
		"shown by nobody":                 {problem.RunnerForbidden, func(q *claims.AcquireRequest) { q.Token, q.Holder = good, "" }},
		"no token, another user":          {problem.RunnerForbidden, func(q *claims.AcquireRequest) { q.Holder = mallory }},
		"no token, another epoch":         {problem.InvalidRequest, func(q *claims.AcquireRequest) { q.Epoch = e.epoch + 1 }},
		"a write token":                   {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token, q.Wake = g.WriteToken, "" }},
		"a write token of this wake":      {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token, q.Wake = g.WriteToken, g.WakeID }},
		"a hold token for another wake":   {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token = g.HoldToken }},
		"a hold token for another's name": {problem.ClaimTokenInvalid, func(q *claims.AcquireRequest) { q.Token, q.Wake, q.Consumer = g.HoldToken, "", e.name }},
		"not a wake":                      {problem.WakeCallbackNotFound, func(q *claims.AcquireRequest) { q.Wake = "x" }},
		"another runner":                  {problem.NotFound, func(q *claims.AcquireRequest) { q.Runner = "toaster" }},
		"what is held":                    {problem.EpochHeld, func(q *claims.AcquireRequest) { q.Wake = g.WakeID }},
		"what is held, to a peer":         {problem.AlreadyClaimed, func(q *claims.AcquireRequest) { q.Wake, q.Wire = g.WakeID, claims.Peer }},
		"what is held, with its token":    {problem.EpochHeld, func(q *claims.AcquireRequest) { q.Wake, q.Token = g.WakeID, claim(g.WakeID, g.Epoch) }},
		"nothing":                         {problem.InvalidRequest, func(q *claims.AcquireRequest) { q.Wake = "" }},
		"no such consumer":                {problem.NotFound, func(q *claims.AcquireRequest) { q.Wake, q.Consumer = "", "e_none" }},
	} {
		q := base
		c.edit(&q)
		_, err := r.svc.Acquire(t.Context(), q)
		wantCode(t, name, err, c.code)
	}
	if after := r.snapshot(); after != before {
		t.Errorf("a refused acquire changed something:\n%s\nwas\n%s", after, before)
	}
	q := base
	q.Token = good
	if _, err := r.svc.Acquire(t.Context(), q); err != nil {
		t.Errorf("the right one: %v", err)
	}
	// Replays of the claim token never grant again (S8).
	for range 3 {
		_, err := r.svc.Acquire(t.Context(), q)
		wantCode(t, "replayed", err, problem.EpochHeld)
	}
}

func TestTokenMatrixOfTheHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e, other := r.woken("/chat/a"), r.woken("/chat/b")
	g, h := r.acquire(e), r.acquire(other)
	foreign := tokens(t, claims.NewKeys())
	for name, c := range map[string]struct {
		code problem.Code
		edit func(*claims.HoldRequest)
	}{
		"none": {problem.ClaimTokenInvalid, func(q *claims.HoldRequest) { q.Token = "" }},
		"junk": {problem.ClaimTokenInvalid, func(q *claims.HoldRequest) { q.Token = "rouse_ht_junk" }},
		"of another ring": {problem.ClaimTokenInvalid, func(q *claims.HoldRequest) {
			q.Token = foreign.Mint(claims.Token{Purpose: claims.Hold, Service: 1, Consumer: e.consumer, Epoch: g.Epoch, Wake: g.WakeID})
		}},
		"in another service":         {problem.ClaimTokenInvalid, func(q *claims.HoldRequest) { q.Service = 2 }},
		"another wake":               {problem.ClaimTokenInvalid, func(q *claims.HoldRequest) { q.Wake = h.WakeID }},
		"another consumer":           {problem.ClaimTokenInvalid, func(q *claims.HoldRequest) { q.Consumer = other.name }},
		"no such consumer":           {problem.ClaimTokenInvalid, func(q *claims.HoldRequest) { q.Consumer = "e_none" }},
		"another consumer, write":    {problem.ClaimTokenInvalid, func(q *claims.HoldRequest) { q.Token, q.Consumer = g.WriteToken, other.name }},
		"another epoch":              {problem.EpochStale, func(q *claims.HoldRequest) { q.Epoch = g.Epoch + 1 }},
		"another epoch, to a peer":   {problem.Fenced, func(q *claims.HoldRequest) { q.Epoch, q.Wire = g.Epoch+1, claims.Peer }},
		"the wake's own claim token": {problem.ClaimTokenInvalid, func(q *claims.HoldRequest) { q.Token = r.svc.ClaimToken(1, g.Epoch, g.WakeID) }},
		"minted for an epoch to come": {problem.EpochStale, func(q *claims.HoldRequest) {
			q.Token = r.ts.Mint(claims.Token{Purpose: claims.Hold, Service: 1, Consumer: e.consumer, Epoch: g.Epoch + 1, Wake: g.WakeID})
		}},
		"minted for another wake": {problem.EpochStale, func(q *claims.HoldRequest) {
			q.Token = r.ts.Mint(claims.Token{Purpose: claims.Hold, Service: 1, Consumer: e.consumer, Epoch: g.Epoch, Wake: h.WakeID})
		}},
	} {
		before := r.snapshot()
		q := claims.HoldRequest{Service: 1, Token: g.HoldToken}
		c.edit(&q)
		_, err := r.svc.Heartbeat(t.Context(), q)
		wantCode(t, "heartbeat, "+name, err, c.code)
		_, err = r.svc.Ack(t.Context(), q, []claims.Ack{{Path: e.path, Offset: r.tail(e)}})
		wantCode(t, "ack, "+name, err, c.code)
		_, err = r.svc.Release(t.Context(), q, nil, nil)
		wantCode(t, "release, "+name, err, c.code)
		if after := r.snapshot(); after != before {
			t.Errorf("%s: a refused call changed something:\n%s\nwas\n%s", name, after, before)
		}
	}
	// Hold and write token speak for the holder, on either road (R7). The claim
	// token does not: everybody who reads the wake stream has it.
	for name, q := range map[string]claims.HoldRequest{
		"hold":                 {Service: 1, Token: g.HoldToken},
		"hold, all named":      {Service: 1, Token: g.HoldToken, Consumer: e.name, Wake: g.WakeID, Epoch: g.Epoch},
		"write":                {Service: 1, Token: g.WriteToken},
		"write, by the wake":   {Service: 1, Token: g.WriteToken, Wake: g.WakeID, Wire: claims.Peer},
		"hold, by another one": {Service: 1, Token: r.ts.Mint(claims.Token{Purpose: claims.Hold, Service: 1, Consumer: e.consumer, Epoch: g.Epoch, Wake: g.WakeID})},
	} {
		if l, err := r.svc.Heartbeat(t.Context(), q); err != nil || l.Remaining <= 29*time.Second || l.Epoch != g.Epoch || l.ConsumerID != e.name {
			t.Errorf("%s: %+v %v", name, l, err)
		}
	}
	// After the end every one of them is fenced, with the same words again.
	if _, err := r.svc.Release(t.Context(), claims.HoldRequest{Service: 1, Token: g.HoldToken}, []claims.Ack{{Path: "/" + e.path, Offset: r.tail(e)}}, nil); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{g.HoldToken, g.WriteToken} {
		_, err := r.svc.Heartbeat(t.Context(), claims.HoldRequest{Service: 1, Token: token})
		wantCode(t, "heartbeat after the end", err, problem.EpochStale)
		_, err = r.svc.Heartbeat(t.Context(), claims.HoldRequest{Service: 1, Token: token, Wire: claims.Peer})
		wantCode(t, "heartbeat after the end, to a peer", err, problem.Fenced)
		again, err := r.svc.Release(t.Context(), claims.HoldRequest{Service: 1, Token: token}, nil, nil)
		if err != nil || again.NextWake || again.Epoch != g.Epoch {
			t.Errorf("release again: %+v %v", again, err)
		}
	}
	_, err := r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Token: g.HoldToken})
	wantCode(t, "the write token of a claim that ended", err, problem.EpochStale)
	_, err = r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Holder: kyle, Wake: g.WakeID, Token: r.svc.ClaimToken(1, g.Epoch, g.WakeID)})
	wantCode(t, "the claim token of a wake that is over", err, problem.EpochStale)
}

// A pushed wake goes to one receiver: its claim token speaks for the claim too.
func TestClaimTokenOfAPushedWake(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.spawned("/chat/hook", `{"targets":[{"type":"webhook","url":"https://hooks.example/"}]}`)
	token := r.svc.ClaimToken(1, e.epoch, e.wake)
	g, err := r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Wake: e.wake, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	q := claims.HoldRequest{Service: 1, Token: token, Wake: g.WakeID}
	if l, err := r.svc.Heartbeat(t.Context(), q); err != nil || l.Epoch != g.Epoch {
		t.Errorf("heartbeat: %+v %v", l, err)
	}
	if _, err := r.svc.Ack(t.Context(), q, []claims.Ack{{Path: e.path, Offset: r.tail(e)}}); err != nil {
		t.Errorf("ack: %v", err)
	}
	for range 2 {
		if out, err := r.svc.Release(t.Context(), q, nil, nil); err != nil || out.NextWake {
			t.Errorf("release: %+v %v", out, err)
		}
	}
	_, err = r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Wake: e.wake, Token: token})
	wantCode(t, "a wake that is over", err, problem.EpochStale)
}

// Decision 2: the holder's claim call answers its write token, the same bytes.
func TestHolderGetsItsWriteTokenAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.woken("/chat/a")
	g, err := r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Runner: "mac", Holder: kyle, Path: e.path, ClaimID: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	otherGateway := r.service(claims.NewTokens(r.keys))
	for _, svc := range []*claims.Service{r.svc, otherGateway} {
		again, err := svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Wake: g.WakeID, Token: g.HoldToken})
		if err != nil || again.WriteToken != g.WriteToken || again.HoldToken != g.HoldToken || !again.Repeated || again.Epoch != g.Epoch {
			t.Errorf("callback: %v %v", again, err)
		}
		same, err := svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Runner: "mac", Holder: kyle, Path: e.path, ClaimID: "c1"})
		if err != nil || same.WriteToken != g.WriteToken || same.HoldToken != g.HoldToken || !same.Repeated || string(same.Notification) != string(g.Notification) {
			t.Errorf("repeat: %v %v", same, err)
		}
	}
	if consumer, epoch, wake, err := r.svc.VerifyWrite(g.WriteToken); err != nil || consumer != e.consumer || epoch != g.Epoch || wake != g.WakeID {
		t.Errorf("write token: %d %d %s %v", consumer, epoch, wake, err)
	}
}

// F16: rows that somebody else holds delay nobody but their own.
func TestHeldRowsDelayNobodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lock string
		code problem.Code // of an ack beyond the tail, which has to look at the row
	}{
		"consumer": {`select from rouse.consumers where entity_url = '/chat/a' for update`, problem.InvalidOffset},
		"stream":   {`select from rouse.streams where path = 'chat/a/main' for no key update`, problem.InvalidOffset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a, b := r.woken("/chat/a"), r.woken("/chat/b")
			ga, gb := r.acquire(a), r.acquire(b)
			tail, beyond := r.tail(a), store.FormatOffset(1<<40)
			tx, err := r.db.Conn(t).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), c.lock); err != nil {
				t.Fatal(err)
			}
			if name == "stream" { // what is below the tail needs no look at the row; behind a call that waits for it, it would wait for that one's consumer
				if _, err := r.svc.Ack(t.Context(), claims.HoldRequest{Service: 1, Token: ga.HoldToken}, []claims.Ack{{Path: a.path, Offset: tail}}); err != nil {
					t.Error(err)
				}
			}
			done := make(chan error, 1)
			go func() {
				_, err := r.svc.Ack(t.Context(), claims.HoldRequest{Service: 1, Token: ga.HoldToken}, []claims.Ack{{Path: a.path, Offset: beyond}})
				done <- err
			}()
			// Its neighbours go on, in batches with other calls of the held one.
			for range 20 {
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						if _, err := r.svc.Ack(t.Context(), claims.HoldRequest{Service: 1, Token: gb.HoldToken}, []claims.Ack{{Path: b.path, Offset: store.FormatOffset(0)}}); problem.CodeOf(err) != problem.InvalidOffset {
							t.Errorf("ack: %v", err)
						}
						if _, err := r.svc.Heartbeat(t.Context(), claims.HoldRequest{Service: 1, Token: gb.HoldToken}); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			}
			select {
			case err := <-done:
				t.Fatalf("the call did not wait: %v", err)
			default:
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantCode(t, "the call that waited", <-done, c.code)
		})
	}
}

// F16: a mutex row that stays locked costs its own callers a bounded wait and a
// coded answer that says try again.
func TestRowLockedForLong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.woken("/chat/a")
	g := r.acquire(e)
	tx, err := r.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from rouse.consumers for update`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = r.svc.Heartbeat(t.Context(), claims.HoldRequest{Service: 1, Token: g.HoldToken})
	took := time.Since(began)
	if info := problem.CodeOf(err).Info(); info.Status != 503 && info.Status != 504 || !info.Retryable {
		t.Errorf("%v", err)
	}
	if took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	t.Logf("answered after %v: %v", took.Round(time.Millisecond), problem.CodeOf(err))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.svc.Heartbeat(t.Context(), claims.HoldRequest{Service: 1, Token: g.HoldToken}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A call whose own data the database refuses fails alone.
func TestPoisonedCallFailsAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.woken("/chat/a")
	g := r.acquire(e)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if i%4 == 0 {
				_, err := r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Consumer: fmt.Sprintf("a\x00b%d", i), Holder: kyle})
				if err == nil || problem.CodeOf(err) == problem.DatabaseUnavailable {
					t.Errorf("poisoned: %v", err)
				}
				return
			}
			if _, err := r.svc.Heartbeat(t.Context(), claims.HoldRequest{Service: 1, Token: g.HoldToken}); err != nil {
				t.Errorf("neighbour: %v", err)
			}
		})
	}
	wg.Wait()
}

func TestBadAcks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.woken("/chat/a")
	g := r.acquire(e)
	hold := claims.HoldRequest{Service: 1, Token: g.HoldToken}
	for _, offset := range []string{"", "-1", "now", "abc", "0000000000000000_00000000000000zz", strings.Repeat("9", 400), "0000000000000001_0000000000000001", "\x00"} {
		_, err := r.svc.Ack(t.Context(), hold, []claims.Ack{{Path: e.path, Offset: offset}})
		if code := problem.CodeOf(err); code != problem.InvalidRequest && code != problem.InvalidOffset {
			t.Errorf("offset %q: %v", offset, err)
		}
	}
	if _, err := r.svc.Ack(t.Context(), hold, make([]claims.Ack, 101)); problem.CodeOf(err) != problem.InvalidRequest {
		t.Errorf("too many: %v", err)
	}
	_, err := r.svc.Ack(t.Context(), hold, []claims.Ack{{Path: "/no/such/stream", Offset: r.tail(e)}})
	wantCode(t, "foreign stream", err, problem.InvalidRequest)
	_, err = r.svc.Ack(t.Context(), hold, []claims.Ack{{Path: e.path, Offset: store.FormatOffset(1 << 40)}})
	wantCode(t, "beyond the tail", err, problem.InvalidOffset)
	failure := strings.Repeat("é", 2000)
	if _, err := r.svc.Release(t.Context(), hold, nil, &failure); err != nil {
		t.Errorf("a long failure: %v", err)
	}
}

func TestStoppedAndNoWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Runner: "mac", Holder: kyle})
	if !errors.Is(err, claims.ErrNoWork) {
		t.Errorf("no work: %v", err)
	}
	e := r.woken("/chat/a")
	if _, err := r.conn.Exec(t.Context(), `select rouse.entity_signal(1, $1, $2, 'SIGKILL', 'k', null, null)`, e.url, kyle); err != nil {
		t.Fatal(err)
	}
	_, err = r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Wake: e.wake, Holder: kyle})
	if !errors.Is(err, claims.ErrStopped) {
		t.Errorf("stopped: %v", err)
	}
}

// What is served carries the callback and a claim token that works; what is
// stored carries neither.
func TestDecoratedWake(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.woken("/chat/a")
	var entry []byte
	r.scan(`select m.payload from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = 'runners/mac/wake'`, nil, &entry)
	if strings.Contains(string(entry), "rouse_") || strings.Contains(string(entry), "callback") {
		t.Errorf("the stored entry: %s", entry)
	}
	var m map[string]any
	if err := json.Unmarshal(r.svc.DecorateWake(1, "team & co", entry), &m); err != nil {
		t.Fatal(err)
	}
	if m["callback"] != "https://rouse.example/_electric/wake-callbacks/"+e.wake+"?service=team+%26+co" {
		t.Errorf("callback %v", m["callback"])
	}
	token, _ := m["claimToken"].(string)
	if _, err := r.svc.Acquire(t.Context(), claims.AcquireRequest{Service: 1, Wake: e.wake, Token: token, Holder: kyle}); err != nil {
		t.Errorf("the token that was served: %v", err)
	}
	for _, odd := range []string{``, `null`, `[]`, `{"type":"note"}`, `{"type":"wake"}`, `{"type":"wake","wakeId":"x","epoch":1}`, `{"type":"wake","wakeId":7}`, `not json`} {
		if got := r.svc.DecorateWake(1, "default", []byte(odd)); string(got) != odd {
			t.Errorf("%q became %q", odd, got)
		}
	}
}
