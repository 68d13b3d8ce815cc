package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var none = map[string]string{}

func TestLaterSourcesWin(t *testing.T) {
	t.Parallel()
	file := write(t, "rouse.yaml", "listen: 127.0.0.1:1\npool_size: 20\nlease_ttl: 5s\nmax_body_bytes: 2MiB\nlog_level: debug\ndatabase_url: postgres://file\n")
	c, err := Load(Default(), Sources{File: file,
		Environ: map[string]string{"ROUSE_POOL_SIZE": "30", "ROUSE_LEASE_TTL": "6s"},
		Apply:   func(c *Config) { c.LeaseTTL = 7 * time.Second }})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:1" || c.PoolSize != 30 || c.LeaseTTL != 7*time.Second || c.MaxBodyBytes != 2*MiB || c.LogLevel != slog.LevelDebug {
		t.Errorf("got %+v", c)
	}
	if c.ScanPeriod != Default().ScanPeriod {
		t.Errorf("got %+v", c)
	}
	if c.DirectURL.Reveal() != "postgres://file" {
		t.Errorf("the direct URL does not follow the database's")
	}
}

func TestJSONFileReads(t *testing.T) {
	t.Parallel()
	file := write(t, "rouse.json", `{"listen": "[::1]:2", "database_url": "postgres://x", "sse_max_age": "90s", "insecure": true}`)
	c, err := Load(Default(), Sources{File: file, Environ: none})
	if err != nil || c.Listen != "[::1]:2" || c.SSEMaxAge != 90*time.Second || !c.Insecure {
		t.Fatalf("%+v, %v", c, err)
	}
}

func TestMistakesAreNamedAllAtOnceAndNotQuoted(t *testing.T) {
	t.Parallel()
	_, err := Load(Default(), Sources{Environ: map[string]string{"ROUSE_LISTEN": "nowhere", "ROUSE_TYPE_SPAWN": "hunter2", "ROUSE_DRAIN_TIMEOUT": "1ns", "ROUSE_PUBLIC_URL": "http://user:hunter2@host"}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"ROUSE_LISTEN", "ROUSE_TYPE_SPAWN", "ROUSE_DRAIN_TIMEOUT", "ROUSE_PUBLIC_URL", "ROUSE_DATABASE_URL"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %q", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a value is quoted: %q", err)
	}
}

func TestUnreadableValuesAreNotQuoted(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]Sources{
		"variable":      {Environ: map[string]string{"ROUSE_POOL_SIZE": "hunter2", "ROUSE_MAX_BODY_BYTES": "hunter2"}},
		"file value":    {File: write(t, "a.yaml", "pool_size: hunter2\n"), Environ: none},
		"file list":     {File: write(t, "b.yaml", "database_url: [hunter2]\n"), Environ: none},
		"file alias":    {File: write(t, "e.yaml", "database_url: *hunter2\n"), Environ: none},
		"file tag":      {File: write(t, "f.yaml", "pool_size: !!int hunter2\n"), Environ: none},
		"file quotes":   {File: write(t, "g.yaml", "pool_size: \"`hunter2\"\n"), Environ: none},
		"file duration": {File: write(t, "c.yaml", "lease_ttl: hunter2\n"), Environ: none},
	} {
		_, err := Load(Default(), from)
		if err == nil || strings.Contains(err.Error(), "hunt") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(Default(), Sources{Environ: map[string]string{"ROUSE_POOL_SIZE": "x"}}); err == nil || !strings.Contains(err.Error(), "ROUSE_POOL_SIZE") {
		t.Errorf("the variable is not named: %v", err)
	}
	if _, err := Load(Default(), Sources{File: write(t, "d.yaml", "lissten: x\n"), Environ: none}); err == nil || !strings.HasSuffix(err.Error(), "line 1: there is no setting lissten here") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestNoWayOfPrintingShowsASecret(t *testing.T) {
	t.Parallel()
	c := Default()
	c.DatabaseURL = NewSecret("hunter2")
	var out bytes.Buffer
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, format, c.DatabaseURL)
		fmt.Fprintf(&out, format, c)
		fmt.Fprintf(&out, format, &c)
	}
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("x", "secret", c.DatabaseURL, "config", c)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", c.DatabaseURL, "config", c)
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		raw, err := marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(raw)
	}
	if strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), "68756e74657232") {
		t.Errorf("seen in %s", out.String())
	}
	if !strings.Contains(out.String(), redacted) {
		t.Error("nothing was printed in its place")
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Bytes{"0": 0, "17": 17, "1KiB": KiB, "16 MiB": 16 * MiB, "2GB": 2e9, "5B": 5} {
		var got Bytes
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q gave %d, %v", text, got, err)
		}
		var again Bytes
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%d is written %q and read as %d, %v", got, got.String(), again, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "99999999999GiB", "1TiB"} {
		var got Bytes
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q gave %d", text, got)
		}
	}
}

func TestKeyRingComesFromValueOrFile(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{"the-ring", write(t, "keys", "the-ring\n")} {
		c := Config{Keys: NewSecret(keys)}
		ring, err := c.KeyRing()
		if err != nil || ring.Reveal() != "the-ring" {
			t.Errorf("%q, %v", ring.Reveal(), err)
		}
	}
	if _, err := (Config{Keys: NewSecret("/nowhere/keys")}).KeyRing(); err == nil || !strings.Contains(err.Error(), "ROUSE_KEYS") {
		t.Errorf("got %v", err)
	}
}

func TestDefaultsAreValidOnceADatabaseIsNamed(t *testing.T) {
	t.Parallel()
	for _, base := range []Config{Default(), Dev()} {
		if _, err := Load(base, Sources{Environ: map[string]string{"ROUSE_DATABASE_URL": "postgres://x"}}); err != nil {
			t.Error(err)
		}
	}
}

func TestProfilesStayOnThisMachine(t *testing.T) {
	t.Parallel()
	for addr, good := range map[string]bool{
		"127.0.0.1:6060": true, "[::1]:6060": true, "localhost:6060": true,
		"0.0.0.0:6060": false, ":6060": false, "example.com:6060": false, "127.0.0.1": false,
	} {
		c := Dev()
		c.DatabaseURL = NewSecret("postgres://example")
		c.DebugListen = addr
		if err := c.Validate(); (err == nil) != good {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// A gateway that asks for no credentials stays on this machine, unless that is
// said in so many words.
func TestWithoutCredentialsOnlyThisMachine(t *testing.T) {
	t.Parallel()
	for addr, local := range map[string]bool{
		"127.0.0.1:4437": true, "127.0.0.1:0": true, "[::1]:4437": true, "localhost:4437": true, "127.8.8.8:1": true,
		"0.0.0.0:4437": false, "[::]:4437": false, ":4437": false, "192.168.1.2:4437": false, "example.com:4437": false, "localhost.example.com:1": false,
	} {
		for _, anywhere := range []bool{false, true} {
			dev, serve := Dev(), Default()
			dev.InsecureAnywhere = anywhere
			for name, c := range map[string]Config{"dev": dev, "serve": serve} {
				c.Listen, c.DatabaseURL = addr, NewSecret("postgres://example")
				err := c.Validate()
				if want := name == "serve" || local || anywhere; (err == nil) != want {
					t.Errorf("%s on %s, anywhere %v: %v", name, addr, anywhere, err)
				}
				if err != nil && !(strings.Contains(err.Error(), "ROUSE_LISTEN") && strings.Contains(err.Error(), "ROUSE_INSECURE_ANYWHERE") && strings.Contains(err.Error(), "serve")) {
					t.Errorf("%s does not say what to do", err)
				}
			}
		}
	}
}

func TestAValueOfAnotherTypeIsToldInWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"pool_size: secret":                      "line 1: a number must stand here",
		"lease_ttl: 7":                           "line 1: a time with its unit, such as 30s, must stand here",
		"auth: {hooks: [mtls]}":                  "line 1: named members must stand here",
		"auth: {hooks: [{jwt: {audiences: s}}]}": "line 1: a list must stand here",
		"auth: {deny_by_default: secret}":        "line 1: true or false must stand here",
		"auth: {hooks: [{jwt: {issuer: [s]}}]}":  "line 1: a text must stand here",
		"auth: {hooks: [{http: {secret: [s]}}]}": "line 1: a text must stand here",
	} {
		_, err := Load(Default(), Sources{File: write(t, "d.yaml", text+"\n"), Environ: none})
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestRetentionIsLongOrForEver(t *testing.T) {
	t.Parallel()
	c := Default()
	c.DatabaseURL = NewSecret("postgres://x/y")
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.RetentionWakeEntries, c.RetentionClaims, c.RetentionWakes, c.RetentionAudit, c.RetentionProducers = 0, 0, 0, 0, 0
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.RetentionWakeEntries, c.RetentionAudit, c.RetentionPeriod = time.Second, -time.Hour, 0
	err := c.Validate()
	for _, name := range []string{"ROUSE_RETENTION_WAKE_ENTRIES", "ROUSE_RETENTION_AUDIT", "ROUSE_RETENTION_PERIOD"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not refused: %v", name, err)
		}
	}
}
