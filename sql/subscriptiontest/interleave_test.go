package subscriptiontest

import (
	"strings"
	"testing"
)

// The calls that meet on a subscription, its streams and its links. The last
// argument of a call that can answer busy is whether it waits.
func appendCall(path func(world) string) func(world) call {
	return func(w world) call {
		return sqlCall("append", `select outcome from (`+appendSQL+`) q`, path(w), epochStart, false)
	}
}

func opCall(name string, acks func(w world) []any) func(world) call {
	return func(w world) call {
		o := w.s.call(name, w.g)
		if acks != nil {
			o["acks"] = acks(w)
		}
		return sqlCall(name, `select (answer).outcome from rouse._claim_apply($1, $3, $2)`, opsJSON(o), epochStart, false)
	}
}

func theStream(w world) string { return w.path }
func theOther(w world) string  { return w.second }

func all(w world) []any { return []any{ack(w.path, w.tail)} }

var calls = map[string]func(world) call{
	"append":         appendCall(theStream),
	"append other":   appendCall(theOther),
	"ack":            opCall("ack", all),
	"release":        opCall("release", all),
	"release no ack": opCall("release", nil),
	"acquire": func(w world) call {
		return sqlCall("acquire", `select (answer).outcome from rouse._claim_apply($1, $3, $2)`, opsJSON(w.s.acquire("other")), epochStart, false)
	},
	"route": func(w world) call {
		return sqlCall("route", `select outcome from rouse._dispatch_route(array[$1::bigint], array[(select tail from rouse.streams where id = $1)], $2)`, w.stream, epochStart)
	},
	"lapse": func(w world) call {
		return sqlCall("lapse", `select expired::text from rouse._claim_reap(10, $1::timestamptz + interval '1 hour')`, epochStart)
	},
	"forget": func(w world) call {
		return sqlCall("forget", `select rouse.subscription_unwatch(1, $1, 'x', $2)`, w.s.id, w.path)
	},
	"name": func(w world) call {
		return sqlCall("name", `select rouse.subscription_watch(1, $1, 'x', array[$2]) || (rouse.subscription_settle(1, $1, null, null, 100)).outcome`, w.s.id, w.second)
	},
	"delete subscription": func(w world) call {
		return sqlCall("delete subscription", `select rouse.subscription_delete(1, $1, 'x')::text`, w.s.id)
	},
	"tidy": func(w world) call { return sqlCall("tidy", `select rouse.subscription_tidy(100)::text`) },
	"delete stream": func(w world) call {
		return sqlCall("delete stream", `select outcome from rouse._stream_delete(1, $1, false, $2)`, w.path, epochStart)
	},
	"make": func(w world) call {
		return sqlCall("make", `select outcome from rouse._stream_create(1, $1, 'application/json', null, null, false, '{"a": 1}', 1, null, null, null, null, 'app', null, null, $2)`, w.path+"2", epochStart)
	},
	"subscribe": func(w world) call {
		return sqlCall("subscribe", `select rouse.subscription_register(1, 'x' || $1, 'webhook', null, array[$2], null, 'https://x', null, null, 1000, '', 'x', true)
			|| (rouse.subscription_settle(1, 'x' || $1, null, null, 100)).outcome`, w.s.id, w.path)
	},
}

// TestSessionsThatMeetLoseNothing runs pairs of sessions through their
// interleavings: no mark is lost, no cursor leaves its stream, nobody waits for
// ever, and after the scan whatever is unread has been told.
func TestSessionsThatMeetLoseNothing(t *testing.T) {
	t.Parallel()
	for _, p := range [][2][]string{
		{{"append"}, {"ack"}},
		{{"append"}, {"release"}},
		{{"append"}, {"release no ack"}},
		{{"append", "append other"}, {"ack", "release"}},
		{{"append other", "append"}, {"release"}},
		{{"append", "route"}, {"release"}},
		{{"route"}, {"release"}},
		{{"append"}, {"lapse"}},
		{{"route"}, {"lapse"}},
		{{"append"}, {"forget"}},
		{{"append", "append other"}, {"forget"}},
		{{"append", "append other"}, {"name"}},
		{{"release"}, {"forget"}},
		{{"append", "append other"}, {"delete subscription", "tidy"}},
		{{"release"}, {"delete subscription"}},
		{{"route"}, {"delete subscription", "tidy"}},
		{{"acquire"}, {"delete subscription"}},
		{{"append"}, {"delete stream"}},
		{{"release"}, {"delete stream"}},
		{{"route"}, {"delete stream"}},
		{{"append"}, {"subscribe"}},
		{{"delete stream"}, {"subscribe"}},
		{{"make"}, {"release"}},
		{{"make"}, {"delete subscription", "tidy"}},
	} {
		side := func(names []string) func(world) []call {
			return func(w world) (out []call) {
				for _, n := range names {
					out = append(out, calls[n](w))
				}
				return out
			}
		}
		t.Run(strings.Join(p[0], "+")+" against "+strings.Join(p[1], "+"), func(t *testing.T) { schedules(t, side(p[0]), side(p[1])) })
	}
}
