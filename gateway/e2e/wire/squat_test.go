package wire_test

import (
	"strings"
	"testing"
)

// A plain stream that was made at the name of an entity's before there was its
// type stays its makers': the spawn says which stream is in the way and what to
// do, and once the name is free it is the entity's alone.
func TestAPlainStreamAtAnEntitysName(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	text := []string{"Content-Type", "text/plain"}
	for _, name := range []string{"/job/a/main", "/job/b/error", "/job/c/main"} {
		r.must(201, r.mallory, "PUT", name, "theirs", text...)
	}
	r.must(201, r.kyle, "POST", "/_electric/entity-types", `{"name":"job","description":""}`)
	for id, name := range map[string]string{"a": "/job/a/main", "b": "/job/b/error"} {
		a := r.refused(409, "STREAM_EXISTS", r.kyle, "PUT", "/_electric/entities/job/"+id, "")
		if field(a, "error.stream") != name || !strings.Contains(string(a.Raw), name+" has the name") || !strings.Contains(string(a.Raw), "delete it") {
			t.Errorf("%s", a.Raw)
		}
		r.refused(404, "NOT_FOUND", r.kyle, "GET", "/_electric/entities/job/"+id, "")
		if a := r.must(200, r.kyle, "GET", name, ""); string(a.Raw) != "theirs" {
			t.Errorf("it holds %s", a.Raw)
		}
	}
	// Deleted, but read by a fork.
	r.must(201, r.mallory, "PUT", "/copy", "", "Stream-Forked-From", "/job/c/main")
	r.must(204, r.mallory, "DELETE", "/job/c/main", "")
	a := r.refused(409, "STREAM_EXISTS", r.kyle, "PUT", "/_electric/entities/job/c", "")
	if field(a, "error.stream") != "/job/c/main" || !strings.Contains(string(a.Raw), "forks of it") {
		t.Errorf("%s", a.Raw)
	}
	r.must(204, r.kyle, "DELETE", "/copy", "")
	r.must(204, r.kyle, "DELETE", "/job/a/main", "")
	r.must(204, r.kyle, "DELETE", "/job/b/error", "")
	for _, id := range []string{"a", "b", "c"} {
		r.must(201, r.kyle, "PUT", "/_electric/entities/job/"+id, "")
		r.refused(401, "UNAUTHORIZED", r.mallory, "POST", "/job/"+id+"/main", `{}`, "Content-Type", "application/json")
	}
	if a := r.call(r.mallory, "PUT", "/job/d/main", "theirs", text...); a.Status != 403 && a.Status != 401 && a.Status != 409 {
		t.Errorf("the name of an entity that there may be one day: %d %s", a.Status, a.Raw)
	}
}
