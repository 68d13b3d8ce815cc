package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/signing"
)

// snippets are the code blocks of the page on webhooks, by language.
func snippets(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```(go|ts|python)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if out[m[1]] != "" {
			t.Fatalf("the page has two blocks of %s", m[1])
		}
		out[m[1]] = m[2]
	}
	return out
}

// signatureCase is a delivery and whether it is to be believed.
type signatureCase struct {
	Name   string
	Header string
	Body   string // base64
	Good   bool
}

// cases are deliveries by a gateway with two keys, whole and damaged.
func cases(t *testing.T) (jwks []byte, all []signatureCase) {
	t.Helper()
	old, err := signing.Derive([][]byte{[]byte(strings.Repeat("o", 32))})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := signing.Derive([][]byte{[]byte(strings.Repeat("n", 32)), []byte(strings.Repeat("o", 32))})
	if err != nil {
		t.Fatal(err)
	}
	strange, err := signing.Derive([][]byte{[]byte(strings.Repeat("s", 32))})
	if err != nil {
		t.Fatal(err)
	}
	body, now := []byte(`{"wakeId":"w","text":"ümlaut \u0000 \ud83d\ude00"}`), time.Now()
	good := keys.Sign(body, now)
	add := func(name, header string, body []byte, ok bool) {
		all = append(all, signatureCase{name, header, base64.StdEncoding.EncodeToString(body), ok})
	}
	add("by the key that signs", good, body, true)
	add("by the one before", old.Sign(body, now), body, true)
	add("nothing signed", keys.Sign(nil, now), nil, true)
	add("bytes that are no text", keys.Sign([]byte("\xff\x00"), now), []byte("\xff\x00"), true)
	add("a little early", keys.Sign(body, now.Add(2*time.Minute)), body, true)
	add("by a stranger", strange.Sign(body, now), body, false)
	add("a byte more", good, append(body[:len(body):len(body)], ' '), false)
	add("nothing", good, nil, false)
	add("long ago", keys.Sign(body, now.Add(-10*time.Minute)), body, false)
	add("far ahead", keys.Sign(body, now.Add(10*time.Minute)), body, false)
	add("another time", strings.Replace(good, strconv.FormatInt(now.Unix(), 10), strconv.FormatInt(now.Unix()+1, 10), 1), body, false)
	add("cut", good[:len(good)-3], body, false)
	add("the wrong key's name", strings.Replace(good, keys.Kid(), old.Kid(), 1), body, false)
	for _, header := range []string{"", "t=1", "t=x,kid=y,ed25519=z", "ed25519=" + strings.Repeat("A", 86), strings.Repeat("t=1,", 1000)} {
		add("malformed", header, body, false)
	}
	return keys.JWKS(), all
}

// The page shows how a receiver verifies a delivery, in three languages; each of
// them tells the good from the bad.
func TestThePageVerifiesSignatures(t *testing.T) {
	t.Parallel()
	code := snippets(t)
	jwks, all := cases(t)
	raw, err := json.Marshal(map[string]any{"jwks": json.RawMessage(jwks), "cases": all})
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, dir string, args ...string) []byte {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
		cmd.Env = append(os.Environ(), "CI=1", "NO_COLOR=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, tail(out, 8000))
		}
		return out
	}
	write := func(t *testing.T, files map[string]string) string {
		t.Helper()
		dir := t.TempDir()
		files["cases.json"] = string(raw)
		for name, text := range files {
			if text == "" {
				t.Fatalf("there is no %s", name)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	want := strconv.Itoa(len(all)) + " as they should be"
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		dir := write(t, map[string]string{"verify.go": "package main\n\n" + code["go"], "main.go": goHarness})
		if out := run(t, dir, "go", "run", "main.go", "verify.go"); !strings.Contains(string(out), want) {
			t.Errorf("%s", out)
		}
	})
	t.Run("TypeScript", func(t *testing.T) {
		t.Parallel()
		prepare(t)
		here, err := filepath.Abs(".")
		if err != nil {
			t.Fatal(err)
		}
		dir := write(t, map[string]string{"verify.ts": code["ts"], "verify.test.ts": tsHarness})
		run(t, here, filepath.Join("node_modules", ".bin", "vitest"), "run", "--root", dir, "--globals", "--reporter=dot")
	})
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		dir := write(t, map[string]string{"verify.py": code["python"], "main.py": pythonHarness})
		if out := run(t, dir, "python3", "main.py"); !strings.Contains(string(out), want) {
			t.Errorf("%s", out)
		}
	})
}

const goHarness = `package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	raw, _ := os.ReadFile("cases.json")
	var in struct {
		JWKS  json.RawMessage
		Cases []struct {
			Name, Header, Body string
			Good               bool
		}
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		panic(err)
	}
	for _, c := range in.Cases {
		body, _ := base64.StdEncoding.DecodeString(c.Body)
		if Verify(in.JWKS, body, c.Header) != c.Good {
			panic(c.Name)
		}
	}
	fmt.Println(len(in.Cases), "as they should be")
}
`

const tsHarness = `import { readFileSync } from "node:fs"
import { verify } from "./verify"

const { jwks, cases } = JSON.parse(readFileSync(new URL("./cases.json", import.meta.url), "utf8"))
test("the cases", () => {
  expect(cases.length).toBeGreaterThan(10)
  for (const c of cases) expect([c.Name, verify(jwks.keys, Buffer.from(c.Body, "base64"), c.Header)]).toEqual([c.Name, c.Good])
})
`

const pythonHarness = `import base64
import json

from verify import verify

given = json.load(open("cases.json"))
for case in given["cases"]:
    assert verify(given["jwks"]["keys"], base64.b64decode(case["Body"]), case["Header"]) == case["Good"], case["Name"]
print(len(given["cases"]), "as they should be")
`
