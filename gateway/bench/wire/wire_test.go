package wire

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serve answers each request on each connection with the next of the raw answers.
func serve(t *testing.T, answers ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				for _, a := range answers {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					_ = req.Body.Close()
					if _, err := c.Write([]byte(a)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func dialTest(t *testing.T, addr string) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), addr, time.Now().Add(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAnswersAreReadWholeAndOneAfterTheOther(t *testing.T) {
	t.Parallel()
	addr := serve(t,
		"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nStream-Next-Offset: 0_7\r\nstream-up-to-date: true\r\nStream-Cursor: 12\r\n\r\nhello",
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
		"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope")
	c := dialTest(t, addr)
	req := Request("GET", addr, "/x", nil)
	r, err := c.Do(req)
	if err != nil || r.Status != 200 || string(r.Body) != "hello" || string(r.NextOffset) != "0_7" || string(r.Cursor) != "12" || !r.UpToDate || r.Size != 5 {
		t.Errorf("a plain answer: %+v %v", r, err)
	}
	if r, err = c.Do(req); err != nil || r.Status != 204 || len(r.Body) != 0 || r.UpToDate {
		t.Errorf("an answer without a body: %+v %v", r, err)
	}
	if r, err = c.Do(req); err != nil || string(r.Body) != "abc0123456789" || r.Size != 13 {
		t.Errorf("a chunked answer: %+v %v", r, err)
	}
	if _, err = c.Expect(req, 200, 204); err == nil || !strings.Contains(err.Error(), "404: nope") {
		t.Errorf("an unexpected status: %v", err)
	}
}

func TestDiscardedBodiesAreCounted(t *testing.T) {
	t.Parallel()
	addr := serve(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	c := dialTest(t, addr)
	c.Discard = true
	for _, want := range []int64{5, 2} {
		if r, err := c.Do(Request("POST", addr, "/x", []byte("body"))); err != nil || r.Size != want || r.Body != nil {
			t.Errorf("%+v %v, want a size of %d", r, err, want)
		}
	}
}

func TestWhatIsNoAnswerIsAnError(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"rubbish\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nno header\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"} {
		addr := serve(t, a)
		if r, err := dialTest(t, addr).Do(Request("GET", addr, "/", nil)); err == nil {
			t.Errorf("%q gave %+v", a, r)
		}
	}
}

func TestEventsKeepTheirLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*eventBuffer)
	events := ":\n\nevent: data\ndata:[1,\ndata: 2]\n\nevent: control\ndata:{\"streamNextOffset\":\"1\"}\n\nevent: data\ndata:" + long + "\n\n"
	chunks := ""
	for part := range strings.SplitAfterSeq(events, "\n") {
		if part != "" {
			chunks += "0" + hex(len(part)) + "\r\n" + part + "\r\n"
		}
	}
	addr := serve(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks+"0\r\n\r\n")
	e, err := Subscribe(context.Background(), addr, time.Now().Add(10*time.Second), "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, want := range [][2]string{{"data", "[1,\n2]"}, {"control", `{"streamNextOffset":"1"}`}, {"data", long}} {
		kind, data, err := e.Next()
		if err != nil || string(kind) != want[0] || string(data) != want[1] {
			t.Errorf("got %s %.40q %v, want %s %.40q", kind, data, err, want[0], want[1])
		}
	}
	if _, _, err := e.Next(); err == nil {
		t.Error("there is something behind the end")
	}
}

func hex(n int) string {
	const digits = "0123456789abcdef"
	s := ""
	for ; n > 0; n /= 16 {
		s = string(digits[n%16]) + s
	}
	return s
}
