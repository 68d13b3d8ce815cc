package shapes

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

func followed(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	kyle := as(t, "user:kyle", in.URL)
	kyle.chat("1", "2")
	s := kyle.shape("entities")
	s.step(false)
	s.expect("the first rows", "/chat/1 /chat/2")
	row := s.rows[`"rouse"."entities"/"default"/"/chat/1"`]
	if row["tenant_id"] != "default" || row["type"] != "chat" || row["tags"] != "{}" || row["parent"] != "NULL" || len(row) != 15 {
		t.Errorf("a row: %v", row)
	}
	// Its times are the numbers that the entity itself answers, in rows and in changes.
	times := func(url string) {
		t.Helper()
		var e struct {
			CreatedAt int64 `json:"created_at"`
			UpdatedAt int64 `json:"updated_at"`
		}
		if err := json.Unmarshal([]byte(kyle.must(200, "GET", "/_electric/entities"+url, "").body), &e); err != nil {
			t.Fatal(err)
		}
		row := s.rows[`"rouse"."entities"/"default"/"`+url+`"`]
		if e.CreatedAt < 1e12 || row["created_at"] != strconv.FormatInt(e.CreatedAt, 10) || row["updated_at"] != strconv.FormatInt(e.UpdatedAt, 10) {
			t.Errorf("%s: times %s and %s, want %+v", url, row["created_at"], row["updated_at"], e)
		}
	}
	times("/chat/1")
	a := kyle.must(201, "PUT", "/_electric/entities/chat/3", `{"tags":{"a":"b"}}`)
	s.await(a.txid(t))
	s.expect("a spawn", "/chat/1 /chat/2 /chat/3")
	if m := s.last[0]; m.Headers.Operation != "insert" || !s.last[len(s.last)-1].Headers.Last {
		t.Errorf("a spawn: %+v", s.last)
	}
	times("/chat/3")
	a = kyle.must(200, "POST", "/_electric/entities/chat/3/tags/x", `{"value":"ü\"\\\n"}`)
	s.await(a.txid(t))
	if got := s.rows[`"rouse"."entities"/"default"/"/chat/3"`]["tags"]; !strings.Contains(got, `ü\"\\\n`) {
		t.Errorf("a tag: %s", got)
	}
	times("/chat/3")
	a = kyle.must(200, "DELETE", "/_electric/entities/chat/1", "")
	s.await(a.txid(t))
	if got := s.rows[`"rouse"."entities"/"default"/"/chat/1"`]["status"]; got != "killed" {
		t.Errorf("a kill: %s", got)
	}
	if s.refetched > 1 {
		t.Errorf("fetched anew %d times", s.refetched)
	}
}

// Trap 31: whatever answers a txid is found in the shape by it, also when it
// changed nothing that one can see.
func everyTxidComes(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	kyle := as(t, "user:kyle", in.URL)
	kyle.chat("1", "2")
	s := kyle.shape("entities")
	s.step(false)
	for _, q := range [][3]string{
		{"PUT", "/_electric/entities/chat/3", `{}`},
		{"POST", "/_electric/entities/chat/1/tags/a", `{"value":"b"}`}, {"POST", "/_electric/entities/chat/1/tags/a", `{"value":"b"}`},
		{"DELETE", "/_electric/entities/chat/1/tags/a", ``}, {"DELETE", "/_electric/entities/chat/1/tags/a", ``},
		{"POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGINT"}`}, {"POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGHUP"}`},
		{"POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGUSR"}`}, {"POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGSTOP"}`},
		{"POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGCONT"}`}, {"POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGTERM"}`},
		{"DELETE", "/_electric/entities/chat/2", ``},
	} {
		a := kyle.do(q[0], q[1], q[2])
		if a.status >= 300 {
			t.Errorf("%v: %d %s", q, a.status, a.body)
			continue
		}
		txid := a.txid(t)
		s.last = nil
		for deadline := time.Now().Add(5 * time.Second); !s.carries(txid); {
			if time.Now().After(deadline) {
				t.Errorf("%v: its txid does not come", q)
				break
			}
			s.step(true)
		}
	}
}

func (s *shape) carries(txid uint32) bool {
	return slices.ContainsFunc(s.last, func(m message) bool { return slices.Contains(m.Headers.Txids, txid) })
}
