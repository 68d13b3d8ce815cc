package intake

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/soon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers each body with its length, or with the refusal.
func serve(t *testing.T, rd Reader) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, release, err := rd.Read(w, r)
		defer release()
		if err != nil {
			problem.Write(w, "", err)
			return
		}
		fmt.Fprintf(w, "%d", len(body))
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

type request struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// begin sends a request's headers; length -1 means chunks.
func begin(t *testing.T, addr string, length int) request {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	q := request{t, c, bufio.NewReader(c)}
	if length < 0 {
		q.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
	} else {
		q.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", length))
	}
	return q
}

func (q request) send(s string) {
	q.t.Helper()
	if _, err := io.WriteString(q.Conn, s); err != nil {
		q.t.Fatal(err)
	}
}

func (q request) answer() (int, string) {
	q.t.Helper()
	res, err := http.ReadResponse(q.in, nil)
	if err != nil {
		q.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		q.t.Fatal(err)
	}
	if res.StatusCode >= 400 && !res.Close {
		q.t.Error("the connection goes on after a refusal")
	}
	return res.StatusCode, string(body)
}

func TestBodiesOfEveryLength(t *testing.T) {
	t.Parallel()
	const most = 300 << 10
	budget := NewBudget(1 << 20)
	addr := serve(t, Reader{Budget: budget, MaxBytes: most})
	for _, n := range []int{0, 1, firstStep - 1, firstStep, firstStep + 1, 4*firstStep - 1, 4 * firstStep, 4*firstStep + 1, readStep + 1, most - 1, most} {
		want := fmt.Sprint(n)
		q := begin(t, addr, n)
		q.send(strings.Repeat("x", n))
		if status, body := q.answer(); status != 200 || body != want {
			t.Errorf("length %d: %d %s", n, status, body)
		}
		q = begin(t, addr, -1)
		if n > 0 {
			q.send(fmt.Sprintf("%x\r\n%s\r\n", n, strings.Repeat("x", n)))
		}
		q.send("0\r\n\r\n")
		if status, body := q.answer(); status != 200 || body != want {
			t.Errorf("length %d in chunks: %d %s", n, status, body)
		}
	}
	if status, body := begin(t, addr, most+1).answer(); status != 413 {
		t.Errorf("announced too large: %d %s", status, body)
	}
	q := begin(t, addr, -1)
	q.send(fmt.Sprintf("%x\r\n%s\r\n", most+1, strings.Repeat("x", most+1)))
	if status, body := q.answer(); status != 413 {
		t.Errorf("too large in chunks: %d %s", status, body)
	}
	q = begin(t, addr, 10)
	q.send("x")
	if err := q.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if status, body := q.answer(); status != 400 {
		t.Errorf("ended early: %d %s", status, body)
	}
	soon.Until(t, "nothing is held", func() bool { return budget.Held() == 0 })
}

// A body that is announced and does not come holds one step.
func TestAnAnnouncedBodyHoldsLittle(t *testing.T) {
	t.Parallel()
	budget := NewBudget(64 << 20)
	addr := serve(t, Reader{Budget: budget})
	q := begin(t, addr, 16<<20)
	soon.Until(t, "it is being read", func() bool { return budget.Held() == firstStep })
	q.send(strings.Repeat("x", firstStep))
	soon.Until(t, "it grows with what has come", func() bool { return budget.Held() == 4*firstStep })
	q.Close()
	soon.Until(t, "it is given up", func() bool { return budget.Held() == 0 })
}

// Large bodies of one kind have a share of the budget. One that has begun is given
// all it needs, or waits holding little, so that they never wait for each other.
func TestLargeBodiesTakeTurnsInTheirShare(t *testing.T) {
	t.Parallel()
	const whole, size = 64 << 10, 400 << 10
	budget, share := NewBudget(64<<20), NewBudget(2*size)
	addr := serve(t, Reader{Budget: budget, Share: share, Whole: whole, MaxBytes: size, Wait: 20 * time.Second})
	first := begin(t, addr, size)
	first.send(strings.Repeat("x", whole+1))
	soon.Until(t, "it has all it needs", func() bool { return share.Held() == size && budget.Held() == size })
	second := begin(t, addr, size)
	second.send(strings.Repeat("x", whole+1))
	third := begin(t, addr, -1)
	third.send(fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("x", size)) + "0\r\n\r\n")
	soon.Until(t, "the others wait", func() bool { return share.Held() == size+2*whole && budget.Held() == share.Held() })
	first.send(strings.Repeat("x", size-whole-1))
	if status, body := first.answer(); status != 200 || body != fmt.Sprint(size) {
		t.Errorf("the first: %d %s", status, body)
	}
	second.send(strings.Repeat("x", size-whole-1))
	for name, q := range map[string]request{"the second": second, "the third": third} {
		if status, body := q.answer(); status != 200 || body != fmt.Sprint(size) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	soon.Until(t, "nothing is held", func() bool { return budget.Held() == 0 && share.Held() == 0 })
	// Where the whole is taken, nothing of the share stays with who was refused.
	if !budget.tryAcquire(32 << 20) {
		t.Fatal("there is no room")
	}
	share = NewBudget(256 << 20)
	addr = serve(t, Reader{Budget: budget, Share: share, Whole: whole, MaxBytes: 32 << 20, Wait: time.Millisecond})
	q := begin(t, addr, 30<<20)
	q.send(strings.Repeat("x", whole+1))
	if status, body := q.answer(); status != 503 {
		t.Errorf("beyond the budget: %d %s", status, body)
	}
	soon.Until(t, "what it held is given back", func() bool { return budget.Held() == 32<<20 && share.Held() == 0 })
}

// What is slow may take its time while nobody waits for its share, and is cut off when somebody does.
func TestASlowBodyKeepsNobodyFromTheShare(t *testing.T) {
	t.Parallel()
	const whole, size = 64 << 10, 4 << 20
	budget, share := NewBudget(64<<20), NewBudget(size+size/2)
	addr := serve(t, Reader{Budget: budget, Share: share, Whole: whole, MaxBytes: size, Stall: 400 * time.Millisecond, MinRate: 1, Rush: 1 << 40, Wait: 20 * time.Second})
	slow := begin(t, addr, size)
	slow.send(strings.Repeat("x", whole+1))
	soon.Until(t, "it has all it needs", func() bool { return share.Held() == size })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond) // never a stall
		defer tick.Stop()
		for range (size - whole - 1) / readStep * 8 {
			select {
			case <-tick.C:
				_, _ = io.WriteString(slow.Conn, strings.Repeat("x", readStep/8))
			case <-stop:
				return
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	late := time.Now().Add(600 * time.Millisecond)
	soon.Until(t, "nobody minds", func() bool { return time.Now().After(late) && share.Held() == size })
	quick := begin(t, addr, size)
	quick.send(strings.Repeat("x", size))
	if status, body := quick.answer(); status != 200 || body != fmt.Sprint(size) {
		t.Errorf("who waits: %d %s", status, body)
	}
	if status, _ := slow.answer(); status != 408 {
		t.Errorf("who is slow: %d", status)
	}
}

// One client waits for its own part, and keeps nothing of the share from others meanwhile.
func TestAClientWaitsForItsOwnPart(t *testing.T) {
	t.Parallel()
	const whole, size = 64 << 10, 400 << 10
	budget, share, own := NewBudget(64<<20), NewBudget(4<<20), NewBudget(size+size/2)
	rd := Reader{Budget: budget, Share: share, Whole: whole, MaxBytes: size, Wait: 20 * time.Second}
	others := serve(t, rd)
	rd.Own = own
	addr := serve(t, rd)
	first := begin(t, addr, size)
	first.send(strings.Repeat("x", whole+1))
	soon.Until(t, "it has all it needs", func() bool { return own.Held() == size })
	second := begin(t, addr, size)
	second.send(strings.Repeat("x", whole+1))
	soon.Until(t, "another one of the client waits", func() bool { return own.wanted() && !share.wanted() })
	if held := share.Held(); held != size+whole {
		t.Errorf("%d bytes of the share are held", held)
	}
	other := begin(t, others, size)
	other.send(strings.Repeat("x", size))
	if status, body := other.answer(); status != 200 {
		t.Errorf("another client: %d %s", status, body)
	}
	for _, q := range []request{first, second} {
		q.send(strings.Repeat("x", size-whole-1))
		if status, body := q.answer(); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	}
	soon.Until(t, "nothing is held", func() bool { return budget.Held() == 0 && share.Held() == 0 && own.Held() == 0 })
}

func TestSlowBodiesAreCutOff(t *testing.T) {
	t.Parallel()
	budget := NewBudget(64 << 20)
	addr := serve(t, Reader{Budget: budget, Stall: 200 * time.Millisecond, MinRate: 1 << 20})
	for name, come := range map[string]int{"nothing comes": 0, "it stalls": 100, "it stalls behind much": 8 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := begin(t, addr, 8<<20+1)
			q.send(strings.Repeat("x", come))
			began := time.Now()
			if status, body := q.answer(); status != 408 || time.Since(began) > 5*time.Second {
				t.Errorf("%d after %v: %s", status, time.Since(began), body)
			}
		})
	}
	t.Run("it trickles", func(t *testing.T) {
		t.Parallel()
		q := begin(t, addr, 8<<20)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(10 * time.Millisecond) // never a stall
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_, _ = io.WriteString(q.Conn, "x")
				case <-stop:
					return
				}
			}
		}()
		if status, body := q.answer(); status != 408 {
			t.Errorf("%d: %s", status, body)
		}
		close(stop)
		<-done
	})
}

// A refusal is answered although the rest of its body never comes.
func TestARefusalWaitsForNoBody(t *testing.T) {
	t.Parallel()
	full := NewBudget(1 << 20)
	if full.tryAcquire(1<<20 - firstStep/2) {
		t.Fatal("what is large takes the share of what is small")
	}
	full.free = 0
	addr := serve(t, Reader{Budget: full, MaxBytes: 1000, Stall: 200 * time.Millisecond, Wait: time.Millisecond})
	for length, want := range map[int]int{1001: 413, 100: 503, -1: 503} {
		q := begin(t, addr, length)
		began := time.Now()
		if status, body := q.answer(); status != want || time.Since(began) > 5*time.Second {
			t.Errorf("length %d: %d after %v: %s", length, status, time.Since(began), body)
		}
	}
}

// What is large waits without keeping out what is small.
func TestLargeBodiesKeepNoSmallOnesOut(t *testing.T) {
	t.Parallel()
	budget := NewBudget(1 << 20)
	addr := serve(t, Reader{Budget: budget, MaxBytes: 512 << 10, Wait: 300 * time.Millisecond})
	big := func() request {
		q := begin(t, addr, 512<<10)
		q.send(strings.Repeat("x", 512<<10-1))
		return q
	}
	first := big()
	soon.Until(t, "the first has its memory", func() bool { return budget.Held() == 512<<10 })
	second := make(chan int)
	go func() {
		status, _ := big().answer()
		second <- status
	}()
	soon.Until(t, "the second waits for more", func() bool {
		budget.mu.Lock()
		defer budget.mu.Unlock()
		return budget.waiters.Len() == 1
	})
	for range 3 {
		q := begin(t, addr, 100)
		q.send(strings.Repeat("x", 100))
		if status, body := q.answer(); status != 200 {
			t.Errorf("a small one: %d %s", status, body)
		}
	}
	if status := <-second; status != 503 {
		t.Errorf("the second: %d", status)
	}
	first.send("x")
	if status, body := first.answer(); status != 200 {
		t.Errorf("the first: %d %s", status, body)
	}
}

// Whoever waits gets memory when there is some, and it all comes back.
func TestTheBudgetAddsUp(t *testing.T) {
	t.Parallel()
	const total = 1 << 20
	b := NewBudget(total)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 200 {
				n := int64(1 + rand.IntN(total/4))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
				if b.acquire(ctx, n) == nil {
					if held := b.Held(); held > total || held < n {
						t.Errorf("%d bytes are held", held)
					}
					b.release(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if b.Held() != 0 || b.waiters.Len() != 0 {
		t.Errorf("%d bytes are held, %d wait", b.Held(), b.waiters.Len())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.acquire(ctx, total*2); err == nil || b.Held() != 0 || b.waiters.Len() != 0 {
		t.Errorf("more than there is: %v", err)
	}
}
