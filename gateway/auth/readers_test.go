package auth

import (
	"context"
	"errors"
	"testing"
)

func TestEntityOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"chat/1/main": "/chat/1", "chat/1/error": "/chat/1", "chat/a/b/main": "/chat/a/b", "chat/1/attachments/x": "/chat/1", "chat/1/attachments/x/attachments/y": "/chat/1/attachments/x",
		"chat/1/attachments/main": "/chat/1", "chat/1/attachments/error": "/chat/1", "chat/attachments/main": "/chat/attachments", "chat/attachments/1/main": "/chat/attachments/1", "chat/attachments/attachments/main": "/chat/attachments",
		"principal/user:kyle/main": "/principal/user%3Akyle", "principal/agent:a b/main": "/principal/agent%3Aa%20b", "principal/nobody/main": "/principal/nobody",
		"main": "", "chat/main": "", "/main": "", "attachments/x": "", "chat/1": "", "": "", "runners/mac/wake": "", "chat/attachments/x": "",
	} {
		if got := EntityOf(path); got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
}

// rights answers what it is told to, and counts.
type rights struct {
	allow bool
	held  string // by whose runner it is
	err   error
	asked []string
}

func (r *rights) EntityAllowed(_ context.Context, _ int32, principal, permission string, urls []string) ([]string, error) {
	r.asked = append(r.asked, principal+" "+permission+" "+urls[0])
	if !r.allow {
		return nil, r.err
	}
	return urls, r.err
}

func (r *rights) EntityHeld(_ context.Context, _ int32, principal, _ string) (bool, error) {
	return principal == r.held, r.err
}

// Whose runner works an entity reads it, and nobody else by that.
func TestReadersWhoseRunnerWorks(t *testing.T) {
	t.Parallel()
	r := NewReaders(&rights{held: "/principal/user%3Aada"})
	for principal, want := range map[string]bool{"/principal/user%3Aada": true, "/principal/user%3Abob": false, "": false} {
		if got, err := r.MayRead(t.Context(), 1, principal, "chat/1/main"); err != nil || got != want {
			t.Errorf("%q: %v, %v", principal, got, err)
		}
	}
}

// A yes is taken from memory for a moment, by service, principal and entity; a no
// is asked about each time, and a failure is no yes.
func TestReadersRememberOnlyAYes(t *testing.T) {
	t.Parallel()
	db := &rights{}
	r := NewReaders(db)
	may := func(service int32, principal, path string) bool {
		t.Helper()
		ok, err := r.MayRead(t.Context(), service, principal, path)
		if ok && err != nil || !errors.Is(err, db.err) {
			t.Errorf("%v, %v", ok, err)
		}
		return ok
	}
	const ada = "/principal/user%3Aada"
	if may(1, ada, "chat/1/main") || may(1, "", "chat/1/main") || may(1, ada, "plain") {
		t.Error("a no is a yes")
	}
	db.allow = true
	if !may(1, ada, "chat/1/main") {
		t.Error("a new grant does not count at once")
	}
	db.allow, db.err = false, errors.New("down")
	n := len(db.asked)
	if ok, err := r.MayRead(t.Context(), 1, ada, "chat/1/error"); !ok || err != nil || len(db.asked) != n {
		t.Error("a yes is not remembered for the entity's other streams")
	}
	for _, other := range []struct {
		service   int32
		principal string
		path      string
	}{{2, ada, "chat/1/main"}, {1, "/principal/user%3Abob", "chat/1/main"}, {1, ada, "chat/2/main"}} {
		if may(other.service, other.principal, other.path) {
			t.Errorf("%v is let in by another's grant", other)
		}
	}
	if db.asked[0] != ada+" read /chat/1" || len(db.asked) != n+3 {
		t.Errorf("asked %q", db.asked)
	}
}
