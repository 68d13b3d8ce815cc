package devtoken

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
)

func header(token string) http.Header {
	h := http.Header{}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return h
}

func TestTokensOfBothForms(t *testing.T) {
	t.Parallel()
	token := NewToken()
	if !strings.HasPrefix(token, Prefix) || token == NewToken() {
		t.Fatalf("token %q", token)
	}
	dir := t.TempDir()
	lines := filepath.Join(dir, "lines")
	if err := os.WriteFile(lines, []byte("# people\n\nuser:kyle sha256:"+Hash(token)+" laptop # mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	jsonFile := filepath.Join(dir, "tokens.json")
	if err := Add(jsonFile, Entry{Principal: "user:ada", SHA256: Hash("other")}); err != nil {
		t.Fatal(err)
	}
	if err := Add(jsonFile, Entry{Principal: "user:kyle", SHA256: Hash(token), Name: "laptop"}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{lines, jsonFile} {
		data, _ := os.ReadFile(path)
		if strings.Contains(string(data), token) {
			t.Errorf("%s holds the token", path)
		}
		h, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p, v, err := h.Authenticate(t.Context(), header(token)); err != nil || v != contract.Allow || p.Key() != "user:kyle" {
			t.Errorf("%s: %v %v %v", path, p, v, err)
		}
		if _, v, err := h.Authenticate(t.Context(), header(token+"x")); err != nil || v != contract.Deny {
			t.Errorf("%s: a wrong token: %v %v", path, v, err)
		}
		if _, v, err := h.Authenticate(t.Context(), header("")); err != nil || v != contract.NoOpinion {
			t.Errorf("%s: no token: %v %v", path, v, err)
		}
	}
}

func TestBadFilesAreRefusedWithoutTheirText(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no hash": "user:kyle secret-token", "short hash": "user:kyle sha256:secret", "no kind": "secret sha256:" + Hash("x"),
		"bad kind": "root:secret sha256:" + Hash("x"), "broken json": `{"tokens":[{"secret":1}]}`, "slash": "user:a/secret sha256:" + Hash("x"),
		"a line below the JSON": `{"tokens":[]}` + "\nuser:secret sha256:" + Hash("x") + "\n", "two objects": `{"tokens":[]} {"secret":1}`,
	} {
		_, err := Parse([]byte(text))
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), Options{}); err == nil {
		t.Error("a file that is not there is accepted")
	}
}

func TestChangesExpiryAndLossOfTheFile(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "t.json")
	if err := Add(path, Entry{Principal: "user:kyle", SHA256: Hash("a"), ExpiresAt: now.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	h, err := Open(path, Options{Recheck: time.Second, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	verdict := func(token string) (contract.Verdict, error) {
		_, v, err := h.Authenticate(t.Context(), header(token))
		return v, err
	}
	if v, _ := verdict("b"); v != contract.Deny {
		t.Fatal(v)
	}
	if err := Add(path, Entry{Principal: "user:ada", SHA256: Hash("b")}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if v, err := verdict("b"); err != nil || v != contract.Allow {
		t.Fatal("a new token is not seen", v, err)
	}
	now = now.Add(time.Hour)
	if v, _ := verdict("a"); v != contract.Deny {
		t.Fatal("an ended token lets somebody in")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if v, err := verdict("b"); err == nil || v == contract.Allow {
		t.Fatal("a broken file lets somebody in")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if _, err := verdict("b"); err == nil {
		t.Fatal("a lost file lets somebody in")
	}
}
