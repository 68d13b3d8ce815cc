package sealed

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/crypto/nacl/box"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func seal(t *testing.T, k *Key, text string) json.RawMessage {
	t.Helper()
	raw, err := box.SealAnonymous(nil, []byte(text), &k.public, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return json.RawMessage(`{"type":"wake","sealed":"` + base64.StdEncoding.EncodeToString(raw) + `"}`)
}

func TestTheKeyFileIsMadeOnceAndForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "laptop.key")
	keys := make([]string, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			k, err := Load(path)
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = k.Public()
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k != keys[0] || k == "" {
			t.Fatalf("several keys were made: %v", keys)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside the key lies %v (%v)", left, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that a group reads: %v", err)
	}
	secret, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "AAAA", "no key", string(secret) + "AAAA\n"} {
		if err := errors.Join(os.WriteFile(path, []byte(bad), 0o600), os.Chmod(path, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestEntriesOpenWithTheirKeyOnly(t *testing.T) {
	t.Parallel()
	k, err := New()
	other, err2 := New()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	entry := seal(t, k, `{"type":"wake","n":1}    `)
	if got, err := k.Open(entry); err != nil || string(got) != `{"type":"wake","n":1}` {
		t.Errorf("%s, %v", got, err)
	}
	for name, wrong := range map[string]*Key{"another": other, "none": nil} {
		if _, err := wrong.Open(entry); !errors.Is(err, ErrOtherKey) {
			t.Errorf("with %s: %v", name, err)
		}
	}
	for _, plain := range []string{`{"type":"wake","n":1}`, `7`, `[]`, `{"sealed":7}`} {
		if got, err := k.Open(json.RawMessage(plain)); err != nil || string(got) != plain {
			t.Errorf("%s became %s, %v", plain, got, err)
		}
	}
	for _, broken := range []string{`{"sealed":"?"}`, `{"sealed":"AAAA"}`, `{"sealed":""}`} {
		if got, err := k.Open(json.RawMessage(broken)); err == nil {
			t.Errorf("%s became %s", broken, got)
		}
	}
}

func TestAKeyPrintsItsPublicHalfOnly(t *testing.T) {
	t.Parallel()
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, k); got != k.Public() {
			t.Errorf("%s prints %q", format, got)
		}
	}
}
