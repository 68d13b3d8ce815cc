package wire_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-run/rouse/gateway/e2e/wire"
)

// Forks of an entity that is woken, claimed, written to and released all the
// while: each is one moment of it between two claims, none fails, none disturbs
// the work, and none has anything of its source's to do.
func TestForksAmongWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	var wg sync.WaitGroup
	forks := make(chan wire.Answer, 32)
	for i := range 3 {
		wg.Go(func() {
			for k := range 4 {
				forks <- r.kyle.Do(t.Context(), "POST", f.ctl()+"/fork", fmt.Sprintf(`{"instance_id":"f%d-%d","waitTimeoutMs":60000}`, i, k), nil)
			}
		})
	}
	for n := range 8 {
		r.send(f, fmt.Sprint(n))
		c := r.claimed(f, r.woken(f, n+1))
		r.must(204, r.kyle, "POST", f.main(), fmt.Sprintf(`[{"headers":{"operation":"insert"},"type":"text","key":"a%d","value":1},{"headers":{"operation":"insert"},"type":"text","key":"b%d","value":1}]`, n, n), tokenHeader(c.WriteToken)...)
		r.done(f, c, r.tail(f.main()))
	}
	wg.Wait()
	close(forks)
	source, _, _ := r.kyle.All(t.Context(), f.main())
	for a := range forks {
		if a.Status != 201 {
			t.Errorf("%v: %s", a, a.Raw)
			continue
		}
		url, _ := field(a, "root.url").(string)
		all, _, _ := r.kyle.All(t.Context(), url+"/main")
		own := all[len(all)-1]
		if !strings.Contains(string(own), `"forkedFrom":"/`+f.Entity+`"`) || len(all)-1 > len(source) {
			t.Fatalf("%s: %s", url, own)
		}
		for i, m := range all[:len(all)-1] {
			if string(m) != string(source[i]) {
				t.Errorf("message %d of %s is %s, not %s", i, url, m, source[i])
			}
		}
		if last := string(all[len(all)-2]); strings.Contains(last, `"key":"a`) {
			t.Errorf("%s is cut within an append: %s", url, last)
		}
	}
	if n := r.count(`select count(*) from rouse.consumers c join rouse.entities e on e.consumer_id = c.id where e.url like $1 || '/f%' and (c.state <> 'idle' or c.epoch <> 0)`, "/"+f.Type); n != 0 {
		t.Errorf("%d forks were woken for what is their source's", n)
	}
	if got := len(r.wakes(f)); got != 8 {
		t.Errorf("%d wakes, want those of the source", got)
	}
}
