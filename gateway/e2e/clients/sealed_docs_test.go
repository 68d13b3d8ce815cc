package clients

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// What the page on sealed wakes has for TypeScript compiles, and opens what a
// gateway seals.
func TestThePageOnSealedWakesIsRight(t *testing.T) {
	t.Parallel()
	installed(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "sealed-wakes.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```ts\n")
	code, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("the page has no code")
	}
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"laptop.ts": code, "package.json": `{"type":"module"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	compile := exec.CommandContext(ctx, filepath.Join(modules, ".bin", "tsc"), "--strict", "--target", "es2022", "--module", "nodenext",
		"--skipLibCheck", "--types", "node", "laptop.ts")
	compile.Dir = dir
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}

	token, file := devtoken.NewToken(), filepath.Join(t.TempDir(), "tokens.json")
	if err := devtoken.Add(file, devtoken.Entry{Principal: "user:kyle", SHA256: devtoken.Hash(token)}); err != nil {
		t.Fatal(err)
	}
	in := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.Insecure, c.TokensFile = false, file }})
	hc := wire.NewHTTP(20 * time.Second)
	t.Cleanup(hc.CloseIdleConnections)
	kyle := &wire.Client{Base: in.URL, HTTP: hc}
	call := func(method, path, body string) wire.Answer {
		t.Helper()
		a := kyle.Do(t.Context(), method, path, body, map[string]string{"Authorization": "Bearer " + token})
		if a.Err != nil || a.Status >= 300 {
			t.Fatalf("%v: %v %s", a, a.Err, a.Raw)
		}
		return a
	}
	call("POST", "/_electric/entity-types", `{"name":"chat","description":"A chat."}`)
	call("POST", "/_electric/runners", `{"id":"laptop","label":"Laptop"}`)
	call("PUT", "/_electric/entities/chat/1", `{"args":{"colour":"blue"},"dispatch_policy":{"targets":[{"type":"runner","runnerId":"laptop"}]}}`)

	cmd := exec.CommandContext(ctx, "node", "laptop.js")
	cmd.Dir, cmd.WaitDelay, cmd.Stderr = dir, 5*time.Second, t.Output()
	cmd.Env = append(os.Environ(), "ROUSE_SERVER="+in.URL, "ROUSE_TOKEN="+token)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	call("POST", "/_electric/entities/chat/1/send", `{"payload":"hello"}`)
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != `claimed /chat/1/main {"colour":"blue"}` {
		t.Fatalf("it prints %q: %v", lines.Text(), lines.Err())
	}
	if a := call("GET", "/runners/laptop/wake", ""); strings.Contains(string(a.Raw), "blue") || !strings.Contains(string(a.Raw), `"sealed"`) {
		t.Errorf("the wake stream shows %s", a.Raw)
	}
	if info, err := os.Stat(filepath.Join(dir, "laptop.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its key: %v, %v", info, err)
	}
}
