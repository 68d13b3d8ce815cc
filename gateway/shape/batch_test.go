package shape

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/feed"
)

// Who is far behind gets what they missed in parts: memory is bounded, and only
// the last part says that it is the present.
func TestWhoIsFarBehindGetsParts(t *testing.T) {
	t.Parallel()
	r := newRig(t, many{rows: 1}, true, nil)
	res, _, err := r.get(t, "table=users&offset=-1")
	if err != nil {
		t.Fatal(err)
	}
	handle, offset := res.Header.Get("Electric-Handle"), res.Header.Get("Electric-Offset")
	const n = 25
	for i := range n {
		tx := userTx(uint32(100+i), feed.LSN(1000+i), 1<<20)
		tx.Changes[0].New[2] = value(strings.Repeat("y", 1<<20))
		r.ring.Commit(tx)
	}
	for _, live := range []string{"", "&live=true"} {
		at, seen, parts := offset, 0, 0
		for seen < n {
			res, body, err := r.get(t, "table=users&handle="+handle+"&offset="+at+live)
			if err != nil || res.StatusCode != http.StatusOK || len(body) > maxBatch+1<<20 {
				t.Fatalf("%v %+v, %d bytes", err, res, len(body))
			}
			var ms []struct {
				Headers struct{ Operation, Control string }
			}
			if err := json.Unmarshal([]byte(body), &ms); err != nil {
				t.Fatal(err)
			}
			present := ms[len(ms)-1].Headers.Control == "up-to-date"
			if present {
				ms = ms[:len(ms)-1]
			}
			seen, parts, at = seen+len(ms), parts+1, res.Header.Get("Electric-Offset")
			if _, ok := res.Header["Electric-Up-To-Date"]; ok != present || present != (seen == n) {
				t.Errorf("part %d: %d of %d, header %v, present %v", parts, seen, n, ok, present)
			}
		}
		if seen != n || parts < 5 {
			t.Errorf("%d changes in %d parts", seen, parts)
		}
	}
}

func TestEventsComeInParts(t *testing.T) {
	t.Parallel()
	part := string(events(batch{messages: [][]byte{[]byte(`{"a":1}`)}, more: true}, 7))
	last := string(events(batch{messages: [][]byte{[]byte(`{"a":1}`)}}, 7))
	if part != "data: {\"a\":1}\n\n" || last != part+"data: "+string(upToDate(nil, 7))+"\n\n" {
		t.Errorf("%q, %q", part, last)
	}
}
