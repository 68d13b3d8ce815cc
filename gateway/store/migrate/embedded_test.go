package migrate_test

import (
	"bytes"
	"context"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/devpg"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store/migrate"
	"github.com/rouse-run/rouse/sql"
)

var update = flag.Bool("update", false, "rewrite sql/schema.snapshot.sql")

// snapshotMajor is the version whose pg_dump the snapshot is written with: others spell the same schema differently.
const snapshotMajor = 15

func TestSchemaSnapshotIsWhatMigrationsMake(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	bin, err := devpg.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dump := exec.CommandContext(t.Context(), bin[0].Path("pg_dump"), "--schema-only", "--no-owner", db.DSN)
	var out, complaint bytes.Buffer
	dump.Stdout, dump.Stderr = &out, &complaint
	if err := dump.Run(); err != nil {
		t.Fatalf("pg_dump: %v: %s", err, complaint.String())
	}
	got := normalise(out.String())
	path := filepath.Join("..", "..", "..", "sql", "schema.snapshot.sql")
	if *update {
		if bin[0].Major != snapshotMajor {
			t.Fatalf("the snapshot is written with Postgres %d; this is %s", snapshotMajor, bin[0].Version)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := string(raw)
	if bin[0].Major != snapshotMajor {
		want, got = created(want), created(got)
	}
	if got != want {
		t.Errorf("the schema is not the checked-in one; look at it and run `make generate`:\n%s", firstDifference(want, got))
	}
}

var (
	noise = regexp.MustCompile(`(?m)^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict.*)\n`)
	// A function's body and language are in sql/functions; its signature and settings are what callers depend on.
	language = regexp.MustCompile(`(?m)^    LANGUAGE \w+`)
	body     = regexp.MustCompile(`(?s)    AS (\$\w*\$).*?\$\w*\$;\n`)
	gaps     = regexp.MustCompile(`\n{2,}`)
	creates  = regexp.MustCompile(`(?m)^CREATE .*?[;(]`)
)

func normalise(dump string) string {
	s := noise.ReplaceAllString(dump, "")
	s = body.ReplaceAllString(language.ReplaceAllString(s, "    LANGUAGE …"), "    AS …;\n")
	return "-- What a fresh database holds. Written by `make generate`; reviewed, never edited.\n\n" +
		strings.TrimSpace(gaps.ReplaceAllString(s, "\n\n")) + "\n"
}

// created lists what is created, by name.
func created(s string) string { return strings.Join(creates.FindAllString(s, -1), "\n") }

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return "checked in: " + a + "\nmade now:   " + b
		}
	}
	return ""
}

// Whether a migration declares itself is checked by List; New calls it for the embedded ones.
func TestEmbeddedMigrationsKeepTheHouseRules(t *testing.T) {
	t.Parallel()
	list, err := migrate.Embedded("test").List()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("no migration is embedded")
	}
	for i, m := range list {
		if m.Version != i+1 {
			t.Errorf("%06d_%s is number %d in the row", m.Version, m.Name, i+1)
		}
		concurrently := strings.Contains(strings.ToLower(m.SQL), "concurrently")
		if concurrently == m.Transactional {
			t.Errorf("%06d_%s: an index is built concurrently exactly in a file that says `-- transaction: none`", m.Version, m.Name)
		}
		if !m.Transactional && strings.Count(m.SQL, ";") != 1 {
			t.Errorf("%06d_%s: a file outside a transaction holds one statement", m.Version, m.Name)
		}
	}
}

func TestFunctionFilesKeepTheHouseRules(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(sql.FS, "functions/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d function files, %v", len(names), err)
	}
	define := regexp.MustCompile(`(?i)create\s+(or\s+replace\s+)?(function|procedure|view)\s+([\w.]+)`)
	// A private one-expression function may leave the path out so that the planner inlines it.
	inlined := regexp.MustCompile(`(?i)language sql\s+immutable`)
	for _, path := range names {
		raw, err := fs.ReadFile(sql.FS, path)
		if err != nil {
			t.Fatal(err)
		}
		text, name := string(raw), strings.TrimSuffix(filepath.Base(path), ".sql")
		if !strings.HasPrefix(text, "--") {
			t.Errorf("%s does not begin with its contract", path)
		}
		public, functions := false, 0
		for _, d := range define.FindAllStringSubmatch(text, -1) {
			object := strings.ToLower(d[3])
			public = public || object == "rouse."+name
			if !strings.EqualFold(d[2], "view") {
				functions++
			}
			// Beside a function stands at most its private twin, which takes the time as an argument.
			if d[1] == "" || object != "rouse."+name && object != "rouse._"+name {
				t.Errorf("%s defines %s (only `create or replace` of rouse.%s and rouse._%s belongs there)", path, d[3], name, name)
			}
		}
		if !public {
			t.Errorf("%s does not define rouse.%s", path, name)
		}
		if paths := strings.Count(text, "set search_path = rouse, pg_temp"); paths < functions && !(strings.HasPrefix(name, "_") && inlined.MatchString(text)) {
			t.Errorf("%s sets search_path in %d of %d functions", path, paths, functions)
		}
		if !regexp.MustCompile(`(?i)comment on (function|procedure|view) rouse\.` + regexp.QuoteMeta(name) + `\b`).MatchString(text) {
			t.Errorf("%s has no comment on what it defines", path)
		}
	}
}

// Bodies are not looked at when the set is installed. This does, so that a slip of the pen shows here and not at the
// first call.
func TestEveryFunctionBodyParses(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	functions, err := migrate.Embedded("test").ListFunctions()
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	for _, f := range functions {
		if _, err := tx.Exec(t.Context(), f.SQL); err != nil {
			t.Fatalf("%s.sql: %v", f.Name, err)
		}
	}
}
