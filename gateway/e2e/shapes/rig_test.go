// Package shapes asks a whole gateway for shapes over HTTP: what is answered,
// refused and kept from whom, and what follows when rows, rights, gateways and
// the database change.
package shapes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests share a server that is theirs alone: a row session begins when all
// transactions of the whole server that write now have ended.
func TestShapes(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgtest.Options{Settings: map[string]string{"fsync": "off", "full_page_writes": "off"}})
	for name, test := range map[string]func(*testing.T, func() *pgtest.DB){
		"a shape is followed": followed, "every txid comes": everyTxidComes, "random changes": randomChanges, "tables and columns": tablesAndColumns, "refusals": refusals, "under serve": underServe,
		"two gateways in turn": twoGateways, "snapshots join the log": snapshotsJoin, "grants decide": grantsDecide, "each sees their own": eachTheirOwn, "pools are shared": poolsShared,
		"services are apart": servicesApart, "a run is seen": aRun, "large values come along": largeValues, "the drain": drained,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func() *pgtest.DB { return newDatabase(t, server) })
		})
	}
}

var databases atomic.Int64

// newDatabase copies the server's migrated database, to which nobody is
// connected. It goes with the server.
func newDatabase(t *testing.T, server *pgtest.Instance) *pgtest.DB {
	t.Helper()
	name := fmt.Sprintf("shapes_%d", databases.Add(1))
	admin := &pgtest.DB{Name: "postgres", DSN: server.DSN("postgres")}
	copying.Lock()
	defer copying.Unlock()
	admin.Exec(t, "create database "+name+" template "+server.DB.Name)
	return &pgtest.DB{Name: name, DSN: server.DSN(name)}
}

// copying keeps copies apart: one is a session of the database it copies.
var copying sync.Mutex

// bound is how long a test waits for what must happen.
const bound = 20 * time.Second

func gateway(t *testing.T, db *pgtest.DB, tune ...func(*config.Config)) *servertest.Instance {
	t.Helper()
	return servertest.Start(t, servertest.Options{DB: db, Configure: func(c *config.Config) {
		c.LongPollTimeout = 2 * time.Second
		for _, f := range tune {
			f(c)
		}
	}})
}

// caller speaks as a principal, with as many gateways in turn as it has.
type caller struct {
	t    *testing.T
	as   string
	urls []string
	n    int
	http *http.Client
}

func as(t *testing.T, principal string, urls ...string) *caller {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &caller{t: t, as: principal, urls: urls, http: &http.Client{Transport: tr, Timeout: bound}}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &p)
	return p.Code
}

func (c *caller) do(method, path, body string, header ...string) answer {
	c.t.Helper()
	a, err := c.try(c.t.Context(), method, path, body, header...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func (c *caller) try(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	base := c.urls[c.n%len(c.urls)]
	c.n++
	req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if c.as != "" {
		req.Header.Set("Electric-Principal", c.as)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(raw)}, err
}

func (c *caller) must(status int, method, path, body string, header ...string) answer {
	c.t.Helper()
	a := c.do(method, path, body, header...)
	if a.status != status {
		c.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.status, status, a.body)
	}
	return a
}

// txid of an answer.
func (a answer) txid(t *testing.T) uint32 {
	t.Helper()
	var v struct{ Txid uint32 }
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.Txid == 0 {
		t.Fatalf("no txid: %v %s", err, a.body)
	}
	return v.Txid
}

// message as a client reads it.
type message struct {
	Key      string
	Value    map[string]*string
	OldValue map[string]*string `json:"old_value"`
	Headers  struct {
		Operation, Control string
		Relation           []string
		Txids              []uint32
		LSN                string `json:"lsn"`
		Last               bool
	}
}

// shape is what a client keeps: it follows the protocol as clients do.
type shape struct {
	*caller
	query          url.Values
	handle, offset string
	rows           map[string]map[string]string
	refetched      int
	last           []message
	cursor         int64
}

func (c *caller) shape(table string, pairs ...string) *shape {
	q := url.Values{"table": {table}}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return &shape{caller: c, query: q, offset: "-1"}
}

const endpoint = "/_electric/electric/v1/shape"

func (s *shape) path(live bool) string {
	q := url.Values{}
	for k, v := range s.query {
		q[k] = v
	}
	q.Set("offset", s.offset)
	if s.handle != "" {
		q.Set("handle", s.handle)
	}
	if live {
		q.Set("live", "true")
		q.Set("cursor", strconv.FormatInt(s.cursor, 10))
	}
	return endpoint + "?" + q.Encode()
}

// step makes one request and applies its answer.
func (s *shape) step(live bool) []message {
	s.t.Helper()
	a := s.do("GET", s.path(live), "")
	if a.status == http.StatusConflict {
		if h := a.header.Get("Electric-Handle"); h == "" || h == s.handle || !strings.Contains(a.body, `"must-refetch"`) {
			s.t.Fatalf("a refusal without another handle: %v %s", a.header, a.body)
		}
		s.handle, s.offset, s.rows, s.refetched = a.header.Get("Electric-Handle"), "-1", nil, s.refetched+1
		return nil
	}
	if a.status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", s.path(live), a.status, a.body)
	}
	for _, name := range []string{"Electric-Handle", "Electric-Offset", "Electric-Schema"} {
		if a.header.Get(name) == "" {
			s.t.Fatalf("%s is missing: %v", name, a.header)
		}
	}
	// Trap 23: a live answer has a cursor, which never stands still. Another that
	// had one would be taken for a cached answer by a client that begins again.
	cursor, err := strconv.ParseInt(a.header.Get("Electric-Cursor"), 10, 64)
	if live != (err == nil) || live && cursor <= s.cursor {
		s.t.Fatalf("live %v: the cursor after %d is %q", live, s.cursor, a.header.Get("Electric-Cursor"))
	}
	if live {
		s.cursor = cursor
	}
	if _, ok := a.header["Electric-Up-To-Date"]; !ok {
		s.t.Fatalf("not up to date: %v", a.header)
	}
	var ms []message
	if err := json.Unmarshal([]byte(a.body), &ms); err != nil {
		s.t.Fatalf("%v: %s", err, a.body)
	}
	if n := len(ms); n == 0 || ms[n-1].Headers.Control != "up-to-date" {
		s.t.Fatalf("a batch that does not end: %s", a.body)
	}
	s.handle, s.offset = a.header.Get("Electric-Handle"), a.header.Get("Electric-Offset")
	s.apply(ms)
	s.last = ms[:len(ms)-1]
	return s.last
}

func (s *shape) apply(ms []message) {
	s.t.Helper()
	if s.rows == nil {
		s.rows = map[string]map[string]string{}
	}
	for _, m := range ms {
		switch m.Headers.Operation {
		case "insert":
			if s.rows[m.Key] != nil {
				s.t.Fatalf("%s is inserted twice", m.Key)
			}
			fallthrough
		case "update":
			row := s.rows[m.Key]
			if row == nil {
				row = map[string]string{}
			}
			for k, v := range m.Value {
				if row[k] = "NULL"; v != nil {
					row[k] = *v
				}
			}
			s.rows[m.Key] = row
		case "delete":
			delete(s.rows, m.Key)
		}
	}
}

// until follows the shape live until ok.
func (s *shape) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(bound); !ok(); {
		if time.Now().After(deadline) {
			s.t.Fatalf("never: %s; rows %v", what, s.rows)
		}
		s.step(s.offset != "-1")
	}
}

// await follows the shape until a change carries the transaction, or the shape
// has been fetched anew since, which shows it.
func (s *shape) await(txid uint32) {
	s.t.Helper()
	refetched := s.refetched
	if s.offset == "-1" {
		refetched-- // the rows that come show it
	}
	s.until(fmt.Sprintf("transaction %d in the shape", txid), func() bool {
		return s.refetched > refetched && s.offset != "-1" || s.carries(txid)
	})
}

// keys are the last parts of the rows' keys, sorted.
func (s *shape) keys() string {
	var out []string
	for k := range s.rows {
		_, key, _ := strings.Cut(k, `/"default"/`)
		out = append(out, strings.Trim(key, `"`))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (s *shape) expect(what, keys string) {
	s.t.Helper()
	if got := s.keys(); got != keys {
		s.t.Fatalf("%s: %q, want %q", what, got, keys)
	}
}

// chat registers a type that everybody may spawn and spawns entities of it.
func (c *caller) chat(names ...string) {
	c.t.Helper()
	c.must(201, "POST", "/_electric/entity-types", `{"name":"chat","description":"A chat."}`)
	c.spawn(names...)
}

func (c *caller) spawn(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.must(201, "PUT", "/_electric/entities/chat/"+name, `{}`)
	}
}
