package shapes

import (
	"strings"
	"testing"

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
	if row["tenant_id"] != "default" || row["type"] != "chat" || row["tags"] != "{}" || row["parent"] != "NULL" || !strings.HasSuffix(row["created_at"], "+00") || len(row) != 15 {
		t.Errorf("a row: %v", row)
	}
	a := kyle.must(201, "PUT", "/_electric/entities/chat/3", `{"tags":{"a":"b"}}`)
	s.await(a.txid(t))
	s.expect("a spawn", "/chat/1 /chat/2 /chat/3")
	if m := s.last[0]; m.Headers.Operation != "insert" || !s.last[len(s.last)-1].Headers.Last {
		t.Errorf("a spawn: %+v", s.last)
	}
	a = kyle.must(200, "POST", "/_electric/entities/chat/3/tags/x", `{"value":"ü\"\\\n"}`)
	s.await(a.txid(t))
	if got := s.rows[`"rouse"."entities"/"default"/"/chat/3"`]["tags"]; !strings.Contains(got, `ü\"\\\n`) {
		t.Errorf("a tag: %s", got)
	}
	a = kyle.must(200, "DELETE", "/_electric/entities/chat/1", "")
	s.await(a.txid(t))
	if got := s.rows[`"rouse"."entities"/"default"/"/chat/1"`]["status"]; got != "killed" {
		t.Errorf("a kill: %s", got)
	}
	if s.refetched > 1 {
		t.Errorf("fetched anew %d times", s.refetched)
	}
}
