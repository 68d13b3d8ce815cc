package streamtest

import (
	"fmt"
	"testing"
)

// TestWhatIsBelowAForkPoint: what is asked of a fork up to a position that its
// source holds ends there: no read backwards finds later messages again, and no
// trim takes more off the count than it takes away.
func TestWhatIsBelowAForkPoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	src := r.create(created{path: "src", contentType: plain})
	for i := range 6 {
		r.wantAppend(item{path: "src", typ: plain, payload: fmt.Sprint(i)}, "appended")
	}
	f := r.create(created{path: "f", contentType: plain, fork: "src"})
	r.wantAppend(item{path: "f", typ: plain, payload: "6"}, "appended")
	r.create(created{path: "g", contentType: plain, fork: "f", forkAt: ptr(int64(4))})
	r.wantAppend(item{path: "g", typ: plain, payload: "!"}, "appended")

	for path, want := range map[string]map[int64]string{
		"f": {7: "6543210", 6: "543210", 5: "43210", 2: "10", 0: ""},
		"g": {5: "!3210", 4: "3210", 3: "210", 1: "0"},
	} {
		for at, text := range want {
			if got := one[string](r, `select coalesce(string_agg(convert_from(b.payload, 'UTF8'), '' order by b.position desc), '')
				from rouse.observe_back((select id from rouse.streams where path = $1), $2, 1000) b`, path, at); got != text {
				t.Errorf("%s backwards from %d reads %q, not %q", path, at, got, text)
			}
		}
	}
	if got := one[string](r, `select coalesce(string_agg(c.stream_id || ' ' || c.lo || '-' || c.hi, ', '), '') from rouse._stream_chain($1, 3) c`, f.id); got != fmt.Sprintf("%d 0-3", src.id) {
		t.Errorf("f up to 3 is made of %s", got)
	}

	r.exec(`select rouse.retention_put(1, 'f', null, null, 5, false, 'user:kyle')`)
	count := func(want int64, why string) {
		t.Helper()
		if got := one[int64](r, `select rouse._retention_count($1, 5)`, f.id); got != want {
			t.Errorf("%s it is to be trimmed to %d, not %d", why, got, want)
		}
	}
	count(2, "of seven messages five are kept;")
	if got := one[string](r, `select outcome from rouse._stream_trim($1, 1, false, false, clock_timestamp())`, f.id); got != "trimmed" {
		t.Fatal(got)
	}
	count(2, "when one has gone for another reason")
}
