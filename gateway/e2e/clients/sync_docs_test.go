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
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// What the page on syncing says to do works as it stands.
func TestThePageOnSyncIsRight(t *testing.T) {
	t.Parallel()
	installed(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "sync.md"))
	if err != nil {
		t.Fatal(err)
	}
	var code string // of all its blocks, as one program
	for i, block := range strings.Split(string(page), "```js\n") {
		if i > 0 {
			block, _, _ = strings.Cut(block, "```")
			code += block
		}
	}
	if strings.Count(code, "\n") < 20 {
		t.Fatalf("the page has little code: %q", code)
	}
	token, file := devtoken.NewToken(), filepath.Join(t.TempDir(), "tokens.json")
	if err := devtoken.Add(file, devtoken.Entry{Principal: "user:kyle", SHA256: devtoken.Hash(token)}); err != nil {
		t.Fatal(err)
	}
	in := servertest.Start(t, servertest.Options{DB: pgtest.Server(t, pgtest.Options{}).DB, Configure: func(c *config.Config) { c.Insecure, c.TokensFile = false, file }})
	hc := wire.NewHTTP(20 * time.Second)
	t.Cleanup(hc.CloseIdleConnections)
	kyle := &wire.Client{Base: in.URL, HTTP: hc}
	call := func(method, path, body string) {
		t.Helper()
		if a := kyle.Do(t.Context(), method, path, body, map[string]string{"Authorization": "Bearer " + token}); a.Err != nil || a.Status >= 300 {
			t.Fatalf("%v: %v %s", a, a.Err, a.Raw)
		}
	}
	call("POST", "/_electric/entity-types", `{"name":"chat","description":"A chat."}`)
	call("PUT", "/_electric/entities/chat/before", `{}`)

	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--input-type=module", "-e", code)
	cmd.Env = append(os.Environ(), "ROUSE_SERVER="+in.URL, "ROUSE_TOKEN="+token)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	until := func(what string, ok func(line string) bool) {
		t.Helper()
		for lines.Scan() {
			if ok(lines.Text()) {
				return
			}
		}
		t.Fatalf("it does not print %s: %v", what, lines.Err())
	}
	until("what was there", func(l string) bool { return strings.Contains(l, "/chat/before") })
	until("that its own change has come", func(l string) bool { return l == "It is in the rows." })
	call("PUT", "/_electric/entities/chat/after", `{}`)
	until("what comes", func(l string) bool { return strings.Contains(l, "/chat/after") })
	call("DELETE", "/_electric/entities/chat/before", "")
	until("what leaves", func(l string) bool { return !strings.Contains(l, "/chat/before") })
}
