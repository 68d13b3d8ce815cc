package streamtest

import (
	"slices"
	"testing"
)

// watch links a subscription and an observer to a stream at its tail, as their owners do.
func (r *rig) watch(path string) {
	r.t.Helper()
	r.exec(`insert into rouse.consumers (service_id, name, kind) values (1, 'sub of ' || $1, 'subscription')`, path)
	r.exec(`insert into rouse.consumer_streams (consumer_id, stream_id, link_type, acked)
	        select c.id, s.id, 'explicit', s.tail from rouse.consumers c, rouse.streams s where c.name = 'sub of ' || $1 and s.path = $1`, path)
	r.exec(`insert into rouse.observers (service_id, stream_id, source_path, source_url, kind, subscriber_url, principal, acked)
	        select 1, s.id, s.path, '/' || s.path, 'wake', '/t/watcher', '/principal/user%3Aa', s.tail from rouse.streams s where s.path = $1`, path)
	r.exec(`update rouse.streams set watched = 3 where path = $1`, path)
}

func (r *rig) behind() []string {
	r.t.Helper()
	return one[[]string](r, `select coalesce(array_agg(x order by x), '{}') from (
		select s.path || ' link' from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.behind
		union all select s.path || ' observer' from rouse.observers o join rouse.streams s on s.id = o.stream_id where o.behind) q (x)`)
}

func (r *rig) caughtUp() {
	r.exec(`update rouse.consumer_streams set behind = false`)
	r.exec(`update rouse.observers set behind = false`)
}

func TestEveryKindOfAppendMarksThoseWhoWatchItsStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, path := range []string{"a", "b", "quiet"} {
		r.create(created{path: path, contentType: plain})
	}
	r.create(created{path: "e/main", contentType: "application/json", kind: "entity"})
	for _, path := range []string{"a", "b", "e/main"} {
		r.watch(path)
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := r.behind(); !slices.Equal(got, want) {
			t.Fatalf("after %s behind are %v, want %v", what, got, want)
		}
		r.caughtUp()
	}
	expect("nothing")
	r.appendGroups(group{path: "quiet", typ: plain, payloads: []string{"x"}}, group{path: "a", typ: plain, payloads: []string{"x", "y"}})
	expect("a group", "a link", "a observer")
	r.wantAppend(item{path: "b", typ: plain, payload: "x", producer: "p"}, "appended")
	expect("a producer's append", "b link", "b observer")
	r.wantAppend(item{path: "b", typ: plain, payload: "x", producer: "p"}, "duplicate")
	expect("a producer's repeat")
	r.exec(`select rouse._stream_push(s.id, '{"a":1}', false) from rouse.streams s where s.path = 'e/main'`)
	expect("a push", "e/main link", "e/main observer")
	r.wantAppend(item{path: "b", typ: plain, close: true}, "appended")
	expect("a close without data", "b observer") // its end is news to who observes, and nothing to read
	r.appendGroups(group{path: "b", typ: plain, payloads: []string{"x"}})
	expect("a refused append")
}

func TestAnOwnLinkIsNotMarked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "e/main", contentType: "application/json", kind: "entity"})
	r.watch("e/main")
	r.exec(`update rouse.consumer_streams set link_type = 'own'`)
	r.appendGroups(group{path: "e/main", typ: "application/json", internal: true, actionable: true, payloads: []string{"{}"}})
	if got := r.behind(); !slices.Equal(got, []string{"e/main observer"}) {
		t.Fatalf("behind are %v", got)
	}
}
