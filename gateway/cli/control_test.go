package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func TestTokensAreHashedAndPrintedOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	code, out, said := rouse(t, nil, "token", "create", "--principal", "user:ada", "--file", file, "--name", "laptop", "--expires", "1h")
	token := strings.TrimSpace(out)
	if code != ExitOK || !strings.HasPrefix(token, "rouse_pat_") || strings.Contains(said, token) {
		t.Fatalf("%d %s %s", code, out, said)
	}
	data, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(data), token) || !strings.Contains(string(data), `"expires_at"`) {
		t.Fatalf("%s, %v", data, err)
	}
	if code, out, said := rouse(t, nil, "token", "create", "--principal", "service:ci"); code != ExitOK || !strings.Contains(said, "service:ci sha256:") || strings.Contains(said, strings.TrimSpace(out)) {
		t.Errorf("%d %s", code, said)
	}
	for _, args := range [][]string{
		{"token", "create"}, {"token", "create", "--principal", "ada"}, {"token", "create", "--principal", "user:ada", "--expires", "1h"},
		{"token", "create", "--principal", "user:ada", "--file", file, "--expires", "-1h"}, {"token", "hash", "--principal", "user:ada"},
	} {
		if code, _, _ := rouse(t, nil, args...); code != ExitUsage {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

func TestOpenAPIIsPrintedAndWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if code, _, said := rouse(t, nil, "openapi", "--dir", dir); code != ExitOK {
		t.Fatal(said)
	}
	for file, version := range map[string]string{"openapi.yaml": "openapi: 3.1", "openapi-3.0.yaml": "openapi: 3.0"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(data), version) {
			t.Errorf("%s: %v", file, err)
		}
	}
	for args, version := range map[string]string{"": "3.1", "--3.0": "3.0"} {
		words := append([]string{"openapi", "--json"}, strings.Fields(args)...)
		code, out, _ := rouse(t, nil, words...)
		var doc struct{ OpenAPI string }
		if err := json.Unmarshal([]byte(out), &doc); code != ExitOK || err != nil || !strings.HasPrefix(doc.OpenAPI, version) {
			t.Errorf("%v: %d %s, %v", words, code, doc.OpenAPI, err)
		}
	}
}

func TestServicesAndTheirTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	create := func(principal string) string {
		t.Helper()
		code, out, said := rouse(t, nil, "token", "create", "--principal", principal, "--file", file)
		if code != ExitOK {
			t.Fatal(said)
		}
		return "ROUSE_TOKEN=" + strings.TrimSpace(out)
	}
	system, ada := create("system:framework"), create("user:ada")
	in := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.Insecure, c.TokensFile = false, file }})
	at := "ROUSE_SERVER=" + in.URL
	if code, out, said := rouse(t, []string{at, system}, "service", "create", "blue"); code != ExitOK || out != "service blue\n" {
		t.Fatalf("%d %s %s", code, out, said)
	}
	code, out, _ := rouse(t, []string{at, system}, "service", "ls", "--json")
	var list []struct{ Name string }
	if err := json.Unmarshal([]byte(out), &list); code != ExitOK || err != nil || len(list) != 2 || list[0].Name != "blue" {
		t.Errorf("%d %s", code, out)
	}
	if code, out, _ := rouse(t, []string{at, system}, "service", "ls"); code != ExitOK || !strings.Contains(out, "default") {
		t.Errorf("%d %s", code, out)
	}
	for _, environ := range [][]string{{at, ada}, {at}, {at, "ROUSE_TOKEN=wrong"}} {
		if code, _, said := rouse(t, environ, "service", "create", "green"); code != ExitServerRefusal {
			t.Errorf("%v: %d %s", environ[1:], code, said)
		}
	}
	if code, _, said := rouse(t, []string{at, system}, "service", "create", "No Way"); code != ExitServerRefusal || !strings.Contains(said, "/name") {
		t.Errorf("%d %s", code, said)
	}
}
