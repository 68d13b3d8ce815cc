package devtoken

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
)

func header(token string) contract.Request {
	h := http.Header{}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return contract.Request{Header: h}
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
		if d, err := h.Authenticate(t.Context(), header(token)); err != nil || d.Verdict != contract.Allow || d.Principal.Key() != "user:kyle" || d.CacheFor != 0 {
			t.Errorf("%s: %v %v", path, d, err)
		}
		if d, err := h.Authenticate(t.Context(), header(token+"x")); err != nil || d.Verdict != contract.Deny {
			t.Errorf("%s: a wrong token: %v %v", path, d, err)
		}
		if d, err := h.Authenticate(t.Context(), header("")); err != nil || d.Verdict != contract.NoOpinion {
			t.Errorf("%s: no token: %v %v", path, d, err)
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
	h, err := Open(path, Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	verdict := func(token string) (contract.Verdict, error) {
		d, err := h.Authenticate(t.Context(), header(token))
		return d.Verdict, err
	}
	if v, _ := verdict("b"); v != contract.Deny {
		t.Fatal(v)
	}
	if err := Add(path, Entry{Principal: "user:ada", SHA256: Hash("b")}); err != nil {
		t.Fatal(err)
	}
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
	if v, err := verdict("b"); err == nil || v == contract.Allow {
		t.Fatal("a broken file lets somebody in")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := verdict("b"); err == nil {
		t.Fatal("a lost file lets somebody in")
	}
}

// Whoever writes the file in its place empties it first: for that moment nobody is told that their token is not valid.
func TestAFileThatIsBeingWrittenRefusesNobodyForGood(t *testing.T) {
	t.Parallel()
	path, token := filepath.Join(t.TempDir(), "tokens"), NewToken()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	late := time.Duration(0)
	h, err := Open(path, Options{})
	if err == nil {
		t.Fatal("there is no file")
	}
	write("")
	if h, err = Open(path, Options{Now: func() time.Time { return time.Now().Add(late) }}); err != nil {
		t.Fatal("an empty file knows nobody yet:", err)
	}
	ask := func() (contract.Verdict, error) {
		d, err := h.Authenticate(t.Context(), header(token))
		return d.Verdict, err
	}
	line := "user:kyle sha256:" + Hash(token) + "\n"
	write(line)
	if v, err := ask(); v != contract.Allow || err != nil {
		t.Fatal(v, err)
	}
	write("")
	if v, err := ask(); err == nil || h.Broken() == "" {
		t.Errorf("while it is written: %v", v)
	}
	write(line)
	if v, err := ask(); v != contract.Allow || err != nil {
		t.Errorf("when it is written: %v, %v", v, err)
	}
	write("")
	_, _ = ask()
	late = time.Minute
	if v, err := ask(); v != contract.Deny || err != nil {
		t.Errorf("when it stays empty: %v, %v", v, err)
	}
}

func TestARevokedTokenIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"lines", "json"} {
		path := filepath.Join(t.TempDir(), form)
		if form == "lines" {
			if err := os.WriteFile(path, []byte("# people\nuser:kyle sha256:"+Hash("a")+" one # kept\nuser:kyle sha256:"+Hash("b")+" two\nuser:ada sha256:"+Hash("c")), 0o640); err != nil {
				t.Fatal(err)
			}
		} else {
			for tok, who := range map[string]string{"a": "user:kyle", "b": "user:kyle", "c": "user:ada"} {
				if err := Add(path, Entry{Principal: who, SHA256: Hash(tok)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		h, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		lets := func(token string) bool {
			d, err := h.Authenticate(t.Context(), header(token))
			if err != nil {
				t.Fatal(err)
			}
			return d.Verdict == contract.Allow
		}
		id := Entry{SHA256: Hash("b")}.ID()
		if !lets("a") || !lets("b") || !lets("c") {
			t.Fatal("a token is not let in")
		}
		gone, err := Remove(path, func(e Entry) bool { return e.ID() == id })
		if err != nil || len(gone) != 1 {
			t.Fatal(gone, err)
		}
		if lets("b") || !lets("a") || !lets("c") {
			t.Errorf("%s: revoking one token took another, or did not count at once", form)
		}
		if _, err := Remove(path, func(e Entry) bool { return e.ID() == id }); !errors.Is(err, ErrNoEntry) {
			t.Errorf("%s: %v", form, err)
		}
		if err := Add(path, Entry{Principal: "user:eve", SHA256: Hash("d")}); err != nil {
			t.Fatal(err)
		}
		if !lets("d") || !lets("c") {
			t.Errorf("%s: adding broke the file", form)
		}
		st, err := os.Stat(path)
		if want := map[string]fs.FileMode{"lines": 0o640, "json": 0o600}[form]; err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v %v", form, st.Mode(), err)
		}
		data, _ := os.ReadFile(path)
		if form == "lines" && !strings.HasPrefix(string(data), "# people\n") || strings.Contains(string(data), Hash("b")) {
			t.Errorf("%s: %s", form, data)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
}

func TestWritersOfTheFileLoseNothingOfEachOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "t.json")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := Add(path, Entry{Principal: "user:kyle", SHA256: Hash(strings.Repeat("x", i))}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := List(path); err != nil || len(got) != 20 {
		t.Fatalf("%d of 20 tokens are there: %v", len(got), err)
	}
}

func TestUnknownTokensArePassedOnWhereOthersMayKnowThem(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "t.json")
	if err := Add(path, Entry{Principal: "user:kyle", SHA256: Hash("mine")}); err != nil {
		t.Fatal(err)
	}
	h, err := Open(path, Options{PassUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]contract.Verdict{"mine": contract.Allow, "eyJ.e.s": contract.NoOpinion, Prefix + "unknown": contract.Deny} {
		if d, err := h.Authenticate(t.Context(), header(token)); err != nil || d.Verdict != want {
			t.Errorf("%v %v, want %v", d, err, want)
		}
	}
}
