package streams_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/box"

	"github.com/rouse-run/rouse/gateway/streams"
)

// opener holds a runner's private key.
type opener struct{ public, private *[32]byte }

func newOpener(t *testing.T) opener {
	t.Helper()
	public, private, err := box.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return opener{public, private}
}

// opens reads a page of sealed entries; false if one is sealed to somebody else,
// or not at all.
func (r opener) opens(t *testing.T, page string) (entries []string, ok bool) {
	t.Helper()
	var sealed []struct {
		Type   string `json:"type"`
		Sealed []byte `json:"sealed"`
	}
	if err := json.Unmarshal([]byte(page), &sealed); err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	for _, e := range sealed {
		plain, opened := box.OpenAnonymous(nil, e.Sealed, r.public, r.private)
		if !opened {
			return nil, false
		}
		entries = append(entries, strings.TrimRight(string(plain), " "))
	}
	return entries, true
}

// Whichever way a wake stream is read, its entries are sealed to the key that its
// runner has at that moment, and the wake's own token with them.
func TestAWakeStreamIsSealedToItsRunnersKey(t *testing.T) {
	t.Parallel()
	rig, db := start(t, func(c *streams.Config) {
		c.Auth = people{}
		c.PageBytes = 64
		c.WakeDecorator = func(_ int32, _ string, entry []byte) []byte {
			return append([]byte(`{"claimToken":"t0ken",`), entry[1:]...)
		}
	})
	guarded(t, db)
	db.Exec(t, `insert into rouse.runners (service_id, id, owner_principal, label, wake_stream) values (1, 'r', 'kyle', 'R', '/runners/r/wake')`)
	wakes := rig.URL + "/runners/r/wake"
	put := func(n string) {
		t.Helper()
		db.Exec(t, `with m as (select id, tail, convert_to('{"type":"wake","spawnArgs":"pl4in","n":' || $1 || '}', 'UTF8') as p from rouse.streams where path = 'runners/r/wake' for update),
			w as (insert into rouse.messages (stream_id, position, payload) select id, tail + octet_length(p), p from m)
			update rouse.streams s set tail = m.tail + octet_length(m.p) from m where s.id = m.id`, n)
		db.Exec(t, `select rouse._notice(id, tail, 0) from rouse.streams where path = 'runners/r/wake'`)
	}
	for _, n := range []string{"1", "2", "3"} {
		put(n)
	}
	first, second := newOpener(t), newOpener(t)
	use := func(r opener) { db.Exec(t, `update rouse.runners set wake_key = $1`, r.public[:]) }
	clear := func(what, body string) {
		t.Helper()
		for _, word := range []string{"t0ken", "pl4in", "claimToken", "spawnArgs"} {
			if strings.Contains(body, word) {
				t.Errorf("%s shows %q: %s", what, word, body)
			}
		}
	}
	a := do(t, "GET", wakes, "", "Electric-Principal", "kyle").want(t, 200, "")
	if !strings.Contains(a.body, `"claimToken":"t0ken"`) {
		t.Fatalf("without a key: %s", a.body)
	}
	plainTag := a.header.Get("Etag")

	use(first)
	ways := map[string]string{"catch-up": wakes, "catch-up from an offset": wakes + "?offset=-1", "the mount": rig.URL + "/v1/stream/runners/r/wake",
		"long-poll": wakes + "?offset=-1&live=long-poll", "another spelling": rig.URL + "/runners%2Fr%2Fwake"}
	for what, url := range ways {
		a := do(t, "GET", url, "", "Electric-Principal", "kyle").want(t, 200, "")
		clear(what, a.body)
		got, ok := first.opens(t, a.body)
		if !ok || !strings.Contains(got[0], `"claimToken":"t0ken"`) || !strings.Contains(got[0], `"n":1`) {
			t.Errorf("%s opens to %v: %s", what, got, a.body)
		}
		if a.header.Get("Etag") == plainTag || !strings.Contains(a.header.Get("Cache-Control"), "no-cache") || !strings.Contains(a.header.Get("Cache-Control"), "private") {
			t.Errorf("%s may come from a cache: %v", what, a.header)
		}
	}
	if a := do(t, "GET", wakes, "", "Electric-Principal", "kyle", "If-None-Match", plainTag).want(t, 200, ""); a.header.Get("Etag") == "" {
		t.Error("no tag")
	} else {
		do(t, "GET", wakes, "", "Electric-Principal", "kyle", "If-None-Match", a.header.Get("Etag")).want(t, 304, "")
		use(second)
		fresh := do(t, "GET", wakes, "", "Electric-Principal", "kyle", "If-None-Match", a.header.Get("Etag")).want(t, 200, "")
		if _, ok := second.opens(t, fresh.body); !ok {
			t.Errorf("the second key does not open %s", fresh.body)
		}
	}
	clear("HEAD", do(t, "HEAD", wakes, "", "Electric-Principal", "kyle").want(t, 200, "").body)
	clear("a fork", do(t, "PUT", rig.URL+"/copy", "", ct, jsonT, "Stream-Forked-From", "/runners/r/wake", "Electric-Principal", "kyle").body)
	if a := do(t, "GET", rig.URL+"/copy", "", "Electric-Principal", "kyle"); a.status == 200 {
		t.Errorf("a wake stream can be forked: %s", a.body)
	}

	// A live reader gets each page sealed to the key of that moment.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	use(first)
	req, err := http.NewRequestWithContext(ctx, "GET", wakes+"?offset=-1&live=sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Electric-Principal", "kyle")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	next := func(r opener, n string) {
		t.Helper()
		for lines.Scan() {
			clear("SSE", lines.Text())
			page, ok := strings.CutPrefix(lines.Text(), "data:[")
			if !ok {
				continue
			}
			got, opened := r.opens(t, "["+page)
			if !opened {
				t.Fatalf("entry %s is not sealed to the key in force: %s", n, page)
			}
			if strings.Contains(got[len(got)-1], `"n":`+n) {
				return
			}
		}
		t.Fatalf("entry %s does not come: %v", n, lines.Err())
	}
	next(first, "3")
	put("4")
	next(first, "4")
	use(second)
	put("5")
	next(second, "5")
}
