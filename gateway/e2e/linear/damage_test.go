package linear

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// line is a history of calls one after another, or all at once.
func line(atOnce bool, pairs ...[2]any) (h []porcupine.Operation) {
	for i, p := range pairs {
		o := porcupine.Operation{ClientId: i, Input: p[0], Output: p[1], Call: int64(10 * i), Return: int64(10*i + 5)}
		if atOnce {
			o.Call, o.Return = 0, 1000
		}
		h = append(h, o)
	}
	return h
}

// TestModelsSeeDamage: a model that accepts everything proves nothing.
func TestModelsSeeDamage(t *testing.T) {
	t.Parallel()
	mx := func(op string, epoch int64, out string, got int64) [2]any {
		return [2]any{mutexCall{consumer: "c", op: op, epoch: epoch}, mutexAnswer{outcome: out, epoch: got}}
	}
	lg := func(value string, ok bool, position int64, read string) [2]any {
		return [2]any{logCall{stream: "s", value: value, bytes: 1}, logAnswer{ok: ok, position: position, read: read}}
	}
	grant := mx("acquire", 0, "granted", 1)
	for _, c := range []struct {
		name  string
		model porcupine.Model
		h     []porcupine.Operation
		want  porcupine.CheckResult
	}{
		{"a good life", mutexModel(), line(false, grant, mx("acquire", 0, "held", 0), mx("append", 1, "ok", 0), mx("release", 1, "ok", 0), mx("release", 1, "ok", 0), mx("append", 1, "stale", 0), mx("acquire", 0, "granted", 2)), porcupine.Ok},
		{"an expiry", mutexModel(), line(false, grant, mx("acquire", 0, "granted", 2), mx("heartbeat", 1, "stale", 0)), porcupine.Ok},
		{"one epoch granted twice", mutexModel(), line(true, grant, grant), porcupine.Illegal},
		{"an epoch is skipped", mutexModel(), line(false, grant, mx("acquire", 0, "granted", 3)), porcupine.Illegal},
		{"an epoch goes back", mutexModel(), line(false, grant, mx("acquire", 0, "granted", 2), mx("acquire", 0, "granted", 1)), porcupine.Illegal},
		{"a fenced append", mutexModel(), line(false, grant, mx("acquire", 0, "granted", 2), mx("append", 1, "ok", 0)), porcupine.Illegal},
		{"an append after the release", mutexModel(), line(false, grant, mx("release", 1, "ok", 0), mx("append", 1, "ok", 0)), porcupine.Illegal},
		{"a lapsed lease comes back", mutexModel(), line(false, grant, mx("append", 1, "stale", 0), mx("heartbeat", 1, "ok", 0)), porcupine.Illegal},
		{"held by nobody", mutexModel(), line(false, mx("acquire", 0, "held", 0)), porcupine.Illegal},
		{"a release of a lapsed lease", mutexModel(), line(false, grant, mx("acquire", 0, "granted", 2), mx("release", 1, "ok", 0)), porcupine.Illegal},
		{"a good log", logModel(), line(false, lg("a", true, 1, ""), lg("b", true, 2, ""), lg("", true, 2, "a b ")), porcupine.Ok},
		{"a position twice", logModel(), line(true, lg("a", true, 1, ""), lg("b", true, 1, "")), porcupine.Illegal},
		{"a lost append", logModel(), line(false, lg("a", true, 1, ""), lg("", true, 0, "")), porcupine.Illegal},
		{"an append twice", logModel(), line(false, lg("a", true, 1, ""), lg("", true, 2, "a a ")), porcupine.Illegal},
		{"out of order", logModel(), line(false, lg("a", true, 1, ""), lg("b", true, 2, ""), lg("", true, 2, "b a ")), porcupine.Illegal},
		{"a stale read", logModel(), line(false, lg("a", true, 1, ""), lg("b", true, 2, ""), lg("", true, 1, "a ")), porcupine.Illegal},
	} {
		if got := porcupine.CheckOperationsTimeout(c.model, c.h, checkTimeout); got != c.want {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
}
