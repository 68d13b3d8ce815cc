package tail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func all(t *testing.T, r io.Reader) ([]event, error) {
	t.Helper()
	d := newDecoder(r, 1<<20)
	var out []event
	for {
		e, err := d.next()
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

func TestDecoder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want []string
		end  error
	}{
		"lf":                {"event: data\ndata: [1]\n\n", []string{"data|[1]"}, io.EOF},
		"crlf":              {"event: data\r\ndata: [1]\r\n\r\n", []string{"data|[1]"}, io.EOF},
		"cr":                {"event: data\rdata: [1]\r\r", []string{"data|[1]"}, io.EOF},
		"mark":              {"\ufeffdata: x\n\n", []string{"|x"}, io.EOF},
		"lines join":        {"data: a\ndata: b\ndata:c\n\n", []string{"|a\nb\nc"}, io.EOF},
		"comments":          {": hi\n\ndata: a\n: mid\n\n:end\n\n", []string{"|a"}, io.EOF},
		"name without data": {"event: x\n\ndata: y\n\n", []string{"|y"}, io.EOF},
		"empty data":        {"data:\n\n", []string{"|"}, io.EOF},
		"unknown fields":    {"id: 7\nretry: 5\nfoo\ndata: a\n\n", []string{"|a"}, io.EOF},
		"cut in a line":     {"data: a\n\nevent: data\ndata: [1", []string{"|a"}, io.ErrUnexpectedEOF},
		"cut before the end": {
			"data: a\n\nevent: data\ndata: [1]\n", []string{"|a"}, io.EOF,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
				got, err := all(t, r)
				var have []string
				for _, e := range got {
					have = append(have, e.name+"|"+string(e.data))
				}
				if !slices.Equal(have, c.want) || !errors.Is(err, c.end) {
					t.Errorf("got %q, %v; want %q, %v", have, err, c.want, c.end)
				}
			}
		})
	}
}

func TestDecoderBound(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"data: " + strings.Repeat("x", 3<<20),
		strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 3000) + "\n",
	} {
		if _, err := all(t, strings.NewReader(in)); !errors.Is(err, errTooLong) {
			t.Errorf("got %v", err)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte("event: data\r\ndata: [1]\r\n\r\nevent: control\ndata: {}\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err1 := all(t, strings.NewReader(string(in)))
		bytewise, err2 := all(t, iotest.OneByteReader(strings.NewReader(string(in))))
		if fmt.Sprint(whole) != fmt.Sprint(bytewise) || !errors.Is(err1, err2) {
			t.Fatalf("depends on how bytes arrive: %v %v, %v %v", whole, err1, bytewise, err2)
		}
	})
}

// source serves scripted connections: each is a list of chunks; "hang" keeps the connection silent.
type source struct {
	mu    sync.Mutex
	conns [][]string
	asked []string
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Query().Get("offset"))
	var chunks []string
	if len(s.conns) > 0 {
		chunks, s.conns = s.conns[0], s.conns[1:]
	} else {
		chunks = []string{"hang"}
	}
	s.mu.Unlock()
	if len(chunks) > 0 && strings.HasPrefix(chunks[0], "status ") {
		var code int
		_, _ = fmt.Sscanf(chunks[0], "status %d", &code)
		w.WriteHeader(code)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	for _, c := range chunks {
		if c == "hang" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, c)
		_ = http.NewResponseController(w).Flush()
	}
}

func follow(t *testing.T, conns [][]string, edit func(*Config), fn func(context.Context, Batch) error) ([]string, error) {
	t.Helper()
	src := &source{conns: conns}
	srv := httptest.NewServer(src)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cfg := Config{
		JSON: true, Offset: "-1", Backoff: call.Backoff{Min: time.Millisecond, Max: 5 * time.Millisecond},
		Open: func(ctx context.Context, offset, cursor string) (*http.Response, error) {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/s?live=sse&offset="+offset+"&cursor="+cursor, nil)
			return srv.Client().Do(req)
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	err := Follow(ctx, cfg, fn)
	srv.CloseClientConnections()
	return src.asked, err
}

func data(s string) string { return "event: data\ndata: " + s + "\n\n" }
func ctl(next string, more string) string {
	return "event: control\ndata: {\"streamNextOffset\":\"" + next + "\"" + more + "}\n\n"
}

func TestFollowResumesWhereItWasCut(t *testing.T) {
	t.Parallel()
	var got []string
	asked, err := follow(t, [][]string{
		{data("[1,2]"), ctl("a", "")},
		{data("[3]")},                                  // cut between data and control
		{data("[3]"), ctl("b", ""), "event: data\nda"}, // cut in an event
		{"status 503"},
		{data("[4]"), data("[5]"), ctl("c", ""), ctl("c", `,"streamClosed":true`)},
	}, nil, func(_ context.Context, b Batch) error {
		for _, m := range b.Messages {
			got = append(got, string(m))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"1", "2", "3", "4", "5"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if want := []string{"-1", "a", "a", "b", "b"}; !slices.Equal(asked, want) {
		t.Errorf("asked %v", asked)
	}
}

func TestFollowReplacesASilentConnection(t *testing.T) {
	t.Parallel()
	var lost []error
	_, err := follow(t, [][]string{
		{ctl("a", ""), "hang"},
		{": alive\n\n", "hang"},
		{ctl("b", `,"streamClosed":true`)},
	}, func(c *Config) {
		c.Idle = 50 * time.Millisecond
		c.OnLost = func(err error, _ time.Duration) { lost = append(lost, err) }
	}, func(context.Context, Batch) error { return nil })
	if err != nil || len(lost) != 2 || !errors.Is(lost[0], errIdle) || !errors.Is(lost[1], errIdle) {
		t.Errorf("err %v, lost %v", err, lost)
	}
}

func TestFollowReplacesAnOldConnection(t *testing.T) {
	t.Parallel()
	var lost []error
	_, err := follow(t, [][]string{{ctl("a", ""), "hang"}, {ctl("b", `,"streamClosed":true`)}}, func(c *Config) {
		c.MaxAge = 50 * time.Millisecond
		c.OnLost = func(err error, _ time.Duration) { lost = append(lost, err) }
	}, func(context.Context, Batch) error { return nil })
	if err != nil || len(lost) != 1 || !errors.Is(lost[0], errAged) {
		t.Errorf("err %v, lost %v", err, lost)
	}
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, Batch) error { return nil }
	if _, err := follow(t, [][]string{{"status 404"}}, nil, nothing); call.Status(err) != 404 {
		t.Errorf("a refusal: %v", err)
	}
	mine := errors.New("mine")
	if _, err := follow(t, [][]string{{ctl("a", "")}}, nil, func(context.Context, Batch) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("the reader's error: %v", err)
	}
	big := data("[\"" + strings.Repeat("x", 4096) + "\"]")
	if _, err := follow(t, [][]string{{big}}, func(c *Config) { c.MaxEvent = 1024 }, nothing); !errors.Is(err, errTooLong) {
		t.Errorf("too long: %v", err)
	}
}

func TestFollowSlowReaderIsNotASilentGateway(t *testing.T) {
	t.Parallel()
	n := 0
	asked, err := follow(t, [][]string{{ctl("a", ""), ctl("b", `,"streamClosed":true`)}}, func(c *Config) {
		c.Idle = 30 * time.Millisecond
	}, func(ctx context.Context, _ Batch) error {
		n++
		return call.Sleep(ctx, 60*time.Millisecond)
	})
	if err != nil || n != 2 || len(asked) != 1 {
		t.Errorf("err %v, batches %d, connections %v", err, n, asked)
	}
}

func TestFollowRawStreams(t *testing.T) {
	t.Parallel()
	var got string
	_, err := follow(t, [][]string{{data("[not json"), data("more"), ctl("a", `,"streamClosed":true`)}}, func(c *Config) { c.JSON = false },
		func(_ context.Context, b Batch) error { got += string(b.Data); return nil })
	if err != nil || got != "[not jsonmore" {
		t.Errorf("%q %v", got, err)
	}
}
