package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/claims"
)

func TestTokensAreMadeListedAndRevoked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	environ := []string{"ROUSE_TOKENS_FILE=" + file}
	made := map[string]string{}
	for _, who := range []string{"user:ada", "user:kyle", "service:ci"} {
		code, out, errOut := rouse(t, nil, "token", "create", "--principal", who, "--file", file, "--name", "of "+who, "--expires", "24h")
		if code != ExitOK {
			t.Fatalf("%d %s", code, errOut)
		}
		made[who] = strings.TrimSpace(out)
	}
	type listed struct{ ID, Principal, Name string }
	list := func() (all []listed) {
		t.Helper()
		code, out, errOut := rouse(t, environ, "token", "ls", "--json")
		if err := json.Unmarshal([]byte(out), &all); code != ExitOK || err != nil {
			t.Fatalf("%d %s %v", code, errOut, err)
		}
		return all
	}
	all := list()
	if len(all) != 3 || all[0].Principal != "user:ada" || all[0].Name != "of user:ada" || len(all[0].ID) != 12 {
		t.Fatalf("%+v", all)
	}
	if code, out, _ := rouse(t, environ, "token", "ls"); code != ExitOK || !strings.Contains(out, all[0].ID) || !strings.Contains(out, "service:ci") || strings.Contains(out, made["user:ada"]) {
		t.Errorf("%d %s", code, out)
	}
	for _, args := range [][]string{{all[0].ID}, {"--principal", "user:kyle"}} {
		if code, _, errOut := rouse(t, environ, append([]string{"token", "revoke"}, args...)...); code != ExitOK || !strings.Contains(errOut, "revoked") {
			t.Errorf("%v: %d %s", args, code, errOut)
		}
	}
	if left := list(); len(left) != 1 || left[0].Principal != "service:ci" {
		t.Errorf("%+v are left", left)
	}
	for _, args := range [][]string{{all[0].ID}, {}, {all[0].ID, "--principal", "user:kyle"}, {"--principal", "kyle"}} {
		if code, _, _ := rouse(t, environ, append([]string{"token", "revoke"}, args...)...); code == ExitOK {
			t.Errorf("revoke %v is fine", args)
		}
	}
	if code, _, errOut := rouse(t, nil, "token", "ls"); code != ExitUsage || !strings.Contains(errOut, "ROUSE_TOKENS_FILE") {
		t.Errorf("%d %s", code, errOut)
	}
	if entries, err := devtoken.List(file); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestARingOnDiskRotates(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	_, first, _ := rouse(t, nil, "keys", "new")
	if err := os.WriteFile(file, []byte("# ours\n"+first), 0o640); err != nil {
		t.Fatal(err)
	}
	environ := []string{"ROUSE_KEYS=" + file}
	list := func() (ids []string) {
		t.Helper()
		code, out, errOut := rouse(t, environ, "keys", "ls", "--json")
		var all []struct {
			ID         string
			Signs      bool
			WebhookKid string `json:"webhook_kid"`
		}
		if err := json.Unmarshal([]byte(out), &all); code != ExitOK || err != nil {
			t.Fatalf("%d %s %v", code, errOut, err)
		}
		for i, k := range all {
			if k.Signs != (i == 0) || !strings.HasPrefix(k.WebhookKid, "ds_") {
				t.Errorf("%+v", all)
			}
			ids = append(ids, k.ID)
		}
		return ids
	}
	old := list()[0]
	_, out, _ := rouse(t, environ, "keys", "add")
	second := strings.TrimSpace(out)
	if code, _, errOut := rouse(t, environ, "keys", "rotate", "--to", second); code != ExitOK {
		t.Fatal(errOut)
	}
	_, out, _ = rouse(t, environ, "keys", "rotate")
	third := strings.TrimSpace(out)
	if got := strings.Join(list(), " "); got != strings.Join([]string{third, second, old}, " ") {
		t.Errorf("the ring is %s", got)
	}
	if code, _, errOut := rouse(t, environ, "keys", "retire", old); code != ExitOK {
		t.Fatal(errOut)
	}
	for _, args := range [][]string{{"retire", third}, {"retire", old}, {"rotate", "--to", "nobody"}} {
		code, _, errOut := rouse(t, environ, append([]string{"keys"}, args...)...)
		if code != ExitUsage || strings.Contains(errOut, "INVALID_REQUEST") {
			t.Errorf("%v: %d %s", args, code, errOut)
		}
	}
	if got := strings.Join(list(), " "); got != third+" "+second {
		t.Errorf("the ring is %s", got)
	}
	_, shown, _ := rouse(t, environ, "keys", "ls")
	raw, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(raw), "# ours\n") {
		t.Errorf("%q %v", raw, err)
	}
	for line := range strings.Lines(string(raw)) {
		if _, secret, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && strings.Contains(shown, secret) {
			t.Error("ls shows a secret")
		}
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v: %v", st.Mode(), err)
	}
	if _, err := claims.ParseKeys(string(raw)); err != nil {
		t.Error(err)
	}
	if code, _, errOut := rouse(t, []string{"ROUSE_KEYS=" + first}, "keys", "ls"); code != ExitUsage || strings.Contains(errOut, strings.TrimSpace(first)) {
		t.Errorf("%d %s", code, errOut)
	}
}
