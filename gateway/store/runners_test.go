package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
)

func TestRunnerBelongsToItsFirstRegistrar(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	got := make([]string, 20)
	var wg sync.WaitGroup
	for i := range got {
		owner := fmt.Sprintf("/principal/user%%3A%d", i)
		wg.Go(func() {
			outcome, _, _, err := s.RunnerRegister(t.Context(), 1, owner, false, Runner{ID: "mac", Owner: owner, Label: "L"})
			got[i] = fmt.Sprint(outcome, err)
		})
	}
	wg.Wait()
	n := map[string]int{}
	for _, o := range got {
		n[o]++
	}
	if n["created<nil>"] != 1 || n["forbidden<nil>"] != 19 {
		t.Fatalf("%v", n)
	}
	r, err := s.RunnerGet(t.Context(), 1, "mac")
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, `select count(*) from rouse.streams where path = 'runners/mac/wake' and kind = 'wake' and owner = $1 and is_json`, r.Owner); n != 1 {
		t.Fatal("the wake stream is not the registrar's")
	}
}

func TestRunnerUpdateKeepsWhatIsNotSaid(t *testing.T) {
	t.Parallel()
	s, _ := controlStore(t)
	three := int32(3)
	full := Runner{ID: "m", Owner: kyle, Label: "A", Kind: "ci", AdminStatus: "disabled", SandboxProfiles: json.RawMessage(`[{"name":"p","label":"P"}]`), Capacity: &three}
	if o, _, _, err := s.RunnerRegister(t.Context(), 1, kyle, false, full); err != nil || o != "created" {
		t.Fatal(o, err)
	}
	o, _, r, err := s.RunnerRegister(t.Context(), 1, kyle, false, Runner{ID: "m", Owner: kyle, Label: "B"})
	if err != nil || o != "updated" || r.Label != "B" || r.Kind != "ci" || r.AdminStatus != "disabled" || *r.Capacity != 3 || r.WakeStream != "/runners/m/wake" {
		t.Fatalf("%s %+v %v", o, r, err)
	}
	_, _, again, _ := s.RunnerRegister(t.Context(), 1, kyle, false, Runner{ID: "m", Owner: kyle, Label: "B"})
	if !again.UpdatedAt.Equal(r.UpdatedAt) {
		t.Error("registering the same again rewrites the row that UIs sync")
	}
	if o, _, r, _ := s.RunnerRegister(t.Context(), 1, system, true, Runner{ID: "m", Owner: system, Label: "C"}); o != "updated" || r.Owner != kyle {
		t.Errorf("system: %s, owner %s", o, r.Owner)
	}
}

func TestRunnerStatusAndDerivedFacts(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	register(t, s, "mac", kyle)
	for _, tc := range []struct{ id, principal, status, want string }{
		{"mac", kyle, "disabled", "updated"}, {"mac", kyle, "disabled", "unchanged"}, {"mac", mallory, "enabled", "forbidden"},
		{"none", kyle, "enabled", "not_found"}, {"mac", kyle, "enabled", "updated"},
	} {
		if o, _, err := s.RunnerSetStatus(t.Context(), 1, tc.id, tc.principal, false, tc.status); err != nil || o != tc.want {
			t.Errorf("%+v: %s, %v", tc, o, err)
		}
	}
	work(t, s, db, "/chat/1")
	work(t, s, db, "/chat/2")
	claim(t, db, "/chat/1")
	r, err := s.RunnerGet(t.Context(), 1, "mac")
	if err != nil || r.Online() || r.LeaseRemaining != nil || len(r.ActiveClaims) != 1 || r.ActiveClaims[0].EntityURL != "/chat/1" || r.ActiveClaims[0].Epoch != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if h, err := s.RunnerHealth(t.Context(), 1, "mac"); err != nil || h.Active != 1 || h.Outstanding != 1 || h.OldestOutstanding == nil {
		t.Errorf("%+v, %v", h, err)
	}
	db.Exec(t, `select * from rouse.runner_heartbeat(1, 'mac', $1, false, 5000, '0000000000000000_0000000000000007', '{"v":1}')`, kyle)
	if r, _ = s.RunnerGet(t.Context(), 1, "mac"); !r.Online() || r.WakeStreamOffset == nil || string(r.Diagnostics) != `{"v": 1}` {
		t.Errorf("%+v", r)
	}
	db.Exec(t, `update rouse.runner_runtime_diagnostics set liveness_lease_expires_at = clock_timestamp() - interval '1 ms'`)
	if r, _ = s.RunnerGet(t.Context(), 1, "mac"); r.Online() {
		t.Error("online after its lease")
	}
	if _, err := s.RunnerGet(t.Context(), 1, "none"); !errors.Is(err, ErrNoRow) {
		t.Error(err)
	}
	register(t, s, "b", kyle)
	register(t, s, "theirs", mallory)
	if rs, err := s.RunnerList(t.Context(), 1, kyle, "", 10); err != nil || len(rs) != 2 || rs[0].ID != "b" || len(rs[1].ActiveClaims) != 1 {
		t.Errorf("%+v, %v", rs, err)
	}
	if rs, _ := s.RunnerList(t.Context(), 1, "", "b", 1); len(rs) != 1 || rs[0].ID != "mac" {
		t.Errorf("%+v", rs)
	}
}

func TestServicesAndUsers(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	reg := NewServices(s)
	if id, err := reg.ID(t.Context(), ""); err != nil || id != 1 {
		t.Fatal(id, err)
	}
	if _, err := reg.ID(t.Context(), "blue"); problem.CodeOf(err) != problem.ServiceNotFound {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, want string }{{"blue", "created"}, {"blue", "exists"}, {"No Way", "invalid"}} {
		if o, _, err := s.ServiceCreate(t.Context(), tc.name, kyle); err != nil || o != tc.want {
			t.Errorf("%s: %s, %v", tc.name, o, err)
		}
	}
	id, err := reg.ID(t.Context(), "blue")
	if err != nil || id == 1 {
		t.Fatal(id, err)
	}
	if list, _ := s.ServiceList(t.Context()); len(list) != 2 || list[0].Name != "blue" || list[1].Name != "default" {
		t.Errorf("%v", list)
	}
	// Equal names in two services are two things.
	if o, _, _, err := s.EntityTypePut(t.Context(), id, mallory, false, EntityType{Name: "chat"}); err != nil || o != "created" {
		t.Fatal(o, err)
	}
	mustSpawn(t, s, spawnRequest("/chat/x"))
	r := spawnRequest("/chat/x")
	r.Service, r.Principal = id, mallory
	mustSpawn(t, s, r)
	if e, _ := s.EntityGet(t.Context(), 1, "/chat/x"); e.CreatedBy != kyle {
		t.Errorf("leaked: %+v", e)
	}

	if made, err := s.UserSeen(t.Context(), 1, User{ID: "kyle", Email: "k@example.com", AuthProvider: "devtoken"}); err != nil || !made {
		t.Fatal(made, err)
	}
	if made, err := s.UserSeen(t.Context(), 1, User{ID: "kyle", DisplayName: "Kyle"}); err != nil || made {
		t.Fatal(made, err)
	}
	if n := count(t, db, `select count(*) from rouse.users where id = 'kyle' and display_name = 'Kyle' and email = 'k@example.com' and auth_provider = 'devtoken'`); n != 1 {
		t.Error("the profile was not kept")
	}
}

func TestRunnerWakeKeyIsItsOwners(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	register(t, s, "mac", kyle)
	key, other := make([]byte, 32), make([]byte, 32)
	key[0], other[0] = 1, 2
	for _, tc := range []struct {
		id, principal string
		key           []byte
		want          string
	}{
		{"mac", kyle, key, "updated"}, {"mac", kyle, key, "unchanged"}, {"mac", mallory, other, "forbidden"}, {"none", kyle, key, "not_found"},
		{"mac", kyle, nil, "updated"}, {"mac", kyle, nil, "unchanged"}, {"mac", kyle, other, "updated"},
	} {
		if o, _, err := s.RunnerWakeKey(t.Context(), 1, tc.id, tc.principal, false, tc.key, "id"); err != nil || o != tc.want {
			t.Errorf("%+v: %s, %v", tc, o, err)
		}
	}
	r, err := s.RunnerGet(t.Context(), 1, "mac")
	if err != nil || !bytes.Equal(r.WakeKey, other) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, _, _, err := s.RunnerRegister(t.Context(), 1, mallory, false, Runner{ID: "mac", Owner: mallory, Label: "x", WakeKey: key, WakeKeyID: "id"}); err != nil {
		t.Error(err)
	}
	if r, err := s.RunnerGet(t.Context(), 1, "mac"); err != nil || !bytes.Equal(r.WakeKey, other) {
		t.Errorf("somebody else set the key: %+v, %v", r, err)
	}
	p, err := s.StreamRead(t.Context(), ReadRequest{Service: 1, Path: "runners/mac/wake", MaxBytes: 1, MaxRows: 1})
	if err != nil || !bytes.Equal(p.WakeKey, other) {
		t.Errorf("a read of the wake stream tells %x, %v", p.WakeKey, err)
	}
	db.Exec(t, `insert into rouse.services (name) values ('second')`)
	db.Exec(t, `insert into rouse.runners (service_id, id, owner_principal, label, wake_stream) select id, 'mac', 'x', 'x', '/runners/mac/wake' from rouse.services where name = 'second'`)
	db.Exec(t, `insert into rouse.streams (service_id, path, kind, owner, content_type, is_json) select id, 'runners/mac/wake', 'wake', 'x', 'application/json', true from rouse.services where name = 'second'`)
	if p, err := s.StreamRead(t.Context(), ReadRequest{Service: 2, Path: "runners/mac/wake", MaxBytes: 1, MaxRows: 1}); err != nil || p.ID == 0 || p.WakeKey != nil {
		t.Errorf("another service's runner of the same name has the key %x, %v", p.WakeKey, err)
	}
}
