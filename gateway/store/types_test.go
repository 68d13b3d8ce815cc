package store

import (
	"encoding/json"
	"errors"
	"testing"
)

const system = "/principal/system%3Adev-local"

func TestTypeUpsertCountsRevisionsAndBelongsToItsRegistrar(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	first, err := s.EntityTypeGet(t.Context(), 1, "chat")
	if err != nil || first.Revision != 1 || first.CreationSchema != nil || first.InboxSchemas != nil || first.Owner != kyle {
		t.Fatalf("%+v, %v", first, err)
	}
	outcome, txid, second, err := s.EntityTypePut(t.Context(), 1, kyle, false, EntityType{Name: "chat", Description: "two", InboxSchemas: json.RawMessage(`{}`)})
	if err != nil || outcome != "updated" || txid == 0 || second.Revision != 2 || !second.CreatedAt.Equal(first.CreatedAt) ||
		!second.UpdatedAt.After(first.UpdatedAt) || string(second.InboxSchemas) != "{}" {
		t.Fatalf("%s %+v, %v", outcome, second, err)
	}
	if outcome, _, _, _ := s.EntityTypePut(t.Context(), 1, mallory, false, EntityType{Name: "chat"}); outcome != "forbidden" {
		t.Errorf("somebody else: %s", outcome)
	}
	if outcome, _, third, _ := s.EntityTypePut(t.Context(), 1, system, true, EntityType{Name: "chat"}); outcome != "updated" || third.Owner != kyle {
		t.Errorf("system: %s, owner %s", outcome, third.Owner)
	}
	if n := count(t, db, `select count(*) from rouse.audit_log where resource = '/entity-types/chat' and action = 'entity_type.put'`); n != 3 {
		t.Errorf("%d audit rows", n)
	}
	if rows, err := s.AuditList(t.Context(), 1, "/entity-types/chat", 0, 2); err != nil || len(rows) != 2 || rows[0].Principal != system || string(rows[0].Detail) != `{"revision": 3}` {
		t.Errorf("audit %+v, %v", rows, err)
	}
}

func TestPatchOnlyAdds(t *testing.T) {
	t.Parallel()
	s, _ := controlStore(t)
	patch := func(name, principal string, inbox, state string) (string, string, EntityType) {
		t.Helper()
		raw := func(x string) json.RawMessage {
			if x == "" {
				return nil
			}
			return json.RawMessage(x)
		}
		outcome, key, et, err := s.EntityTypePatchSchemas(t.Context(), 1, name, principal, false, raw(inbox), raw(state))
		if err != nil {
			t.Fatal(err)
		}
		return outcome, key, et
	}
	if o, _, et := patch("chat", kyle, `{"a":{"type":"string"}}`, ""); o != "updated" || et.Revision != 2 || et.StateSchemas != nil || string(et.InboxSchemas) != `{"a": {"type": "string"}}` {
		t.Errorf("%s %+v", o, et)
	}
	if o, _, et := patch("chat", kyle, `{"b":true}`, `{"s":{}}`); o != "updated" || et.Revision != 3 || string(et.InboxSchemas) != `{"a": {"type": "string"}, "b": true}` {
		t.Errorf("%s %+v", o, et)
	}
	if o, key, _ := patch("chat", kyle, `{"c":{},"b":{}}`, ""); o != "key_exists" || key != "b" {
		t.Errorf("%s %s", o, key)
	}
	if o, key, _ := patch("chat", kyle, "", `{"s":{}}`); o != "key_exists" || key != "s" {
		t.Errorf("%s %s", o, key)
	}
	if et, _ := s.EntityTypeGet(t.Context(), 1, "chat"); et.Revision != 3 {
		t.Errorf("a refused patch changed the type: revision %d", et.Revision)
	}
	if o, _, _ := patch("none", kyle, `{}`, ""); o != "not_found" {
		t.Error(o)
	}
	if o, _, _ := patch("chat", mallory, `{"z":{}}`, ""); o != "forbidden" {
		t.Error(o)
	}
}

func TestDeletingATypeLeavesItsEntities(t *testing.T) {
	t.Parallel()
	s, _ := controlStore(t)
	mustSpawn(t, s, spawnRequest("/chat/1"))
	if o, _, _ := s.EntityTypeDelete(t.Context(), 1, "chat", mallory, false); o != "forbidden" {
		t.Error(o)
	}
	if o, _, _ := s.EntityTypeDelete(t.Context(), 1, "none", kyle, false); o != "not_found" {
		t.Error(o)
	}
	if o, txid, _ := s.EntityTypeDelete(t.Context(), 1, "chat", kyle, false); o != "deleted" || txid == 0 {
		t.Error(o)
	}
	if _, err := s.EntityTypeGet(t.Context(), 1, "chat"); !errors.Is(err, ErrNoRow) {
		t.Error(err)
	}
	if _, err := s.EntityGet(t.Context(), 1, "/chat/1"); err != nil {
		t.Error(err)
	}
	if list, err := s.EntityTypeList(t.Context(), 1, ""); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// What a send is told: the schemas fixed at spawn win, the type may add more.
func TestGateMergesSchemasAndTellsTheTwo404sApart(t *testing.T) {
	t.Parallel()
	s, _ := controlStore(t)
	if _, _, _, err := s.EntityTypePut(t.Context(), 1, kyle, false, EntityType{Name: "typed", InboxSchemas: json.RawMessage(`{"a":{"type":"string"}}`)}); err != nil {
		t.Fatal(err)
	}
	r := spawnRequest("/typed/1")
	r.Type = "typed"
	mustSpawn(t, s, r)
	mustSpawn(t, s, spawnRequest("/chat/1"))
	if _, _, _, err := s.EntityTypePatchSchemas(t.Context(), 1, "typed", kyle, false, json.RawMessage(`{"b":{}}`), nil); err != nil {
		t.Fatal(err)
	}
	got, err := s.EntityGate(t.Context(), []GateRequest{{1, "/typed/1", "typed", ""}, {1, "/chat/1", "chat", mallory}, {1, "/chat/2", "chat", kyle}, {1, "/none/1", "none", kyle}, {2, "/chat/1", "chat", ""}})
	if err != nil || len(got) != 5 {
		t.Fatalf("%v, %v", got, err)
	}
	if g := got[0]; !g.Found || g.Status != "idle" || !g.Allowed || g.SchemaRevision != 2 || string(g.InboxSchemas) != `{"a": {"type": "string"}, "b": {}}` {
		t.Errorf("%+v", g)
	}
	if g := got[1]; !g.Found || g.Allowed || g.InboxSchemas != nil {
		t.Errorf("%+v", g)
	}
	if got[2].Found || !got[2].TypeExists || got[3].Found || got[3].TypeExists || got[4].Found || got[4].TypeExists {
		t.Errorf("%+v", got[2:])
	}
}
