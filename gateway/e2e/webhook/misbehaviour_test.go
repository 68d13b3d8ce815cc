package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// R10: a receiver that does not answer, sends elsewhere, fails, and babbles is
// told of the same wake until it answers, and what became of each attempt is
// recorded, without a word of what it said.
func TestAReceiverThatMisbehaves(t *testing.T) {
	t.Parallel()
	h := newHooked(t, servertest.Options{Configure: func(c *config.Config) { c.LeaseTTL = time.Second }})
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	var mu sync.Mutex
	var attempts, keys []string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		attempts, keys = append(attempts, r.Header.Get("Rouse-Delivery-Attempt")), append(keys, r.Header.Get("Idempotency-Key"))
		mu.Unlock()
		w.Header().Set("Retry-After", "1")
		switch n, _ := strconv.Atoi(r.Header.Get("Rouse-Delivery-Attempt")); n {
		case 1:
			<-r.Context().Done()
		case 2:
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case 3:
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"done":true,"why":"a secret of the receiver"}`)
		case 4: // a long answer that says nothing: it will call back, and does not
			_, _ = io.WriteString(w, `{"done":`+strings.Repeat(" ", 1<<20)+`true}`)
		default:
			_, _ = io.WriteString(w, `{"done":true}`)
		}
	}))
	t.Cleanup(receiver.Close)
	h.spawn("1", receiver.URL)
	h.send("1", "m-1")
	pool := h.in.DB.Pool(t)
	soon.Until(t, "it is done", func() bool {
		var done bool
		err := pool.QueryRow(t.Context(), `select coalesce(bool_and(claim_status = 'completed'), false) from rouse.wake_notifications`).Scan(&done)
		return err == nil && done
	})
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(attempts, []string{"1", "2", "3", "4", "5"}) || len(slices.Compact(slices.Clone(keys))) != 1 {
		t.Errorf("attempts %v with the keys %v", attempts, keys)
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
	var outcomes []string
	var told string
	if err := pool.QueryRow(t.Context(), `select array_agg(outcome || ' ' || coalesce(status_code, 0) order by attempt), string_agg(coalesce(error, ''), ' ') from rouse.delivery_attempts`).Scan(&outcomes, &told); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(outcomes, []string{"retry 0", "retry 307", "retry 500", "accepted 200", "done 200"}) || !strings.Contains(told, "did not answer in time") || strings.Contains(told, "secret") {
		t.Errorf("%v: %s", outcomes, told)
	}
}
