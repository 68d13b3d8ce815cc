package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/rouse-run/rouse/migrations"
	"github.com/rouse-run/rouse/sql"
)

// Source is the SQL a database is brought to.
type Source struct {
	Migrations fs.FS // NNNNNN_name.up.sql at its root
	Functions  fs.FS // name.sql at its root
	// Release of the binary the functions come from, as in "v1.2.3"; anything else counts as the same age as any other.
	Release string
}

// Embedded is what this binary carries.
func Embedded(release string) Source {
	functions, err := fs.Sub(sql.FS, "functions")
	if err != nil {
		panic(err) // the name is a constant that embed has checked
	}
	return Source{Migrations: migrations.FS, Functions: functions, Release: release}
}

// Compat says what a migration means for binaries that do not know it.
type Compat string

// The two kinds.
const (
	Safe     Compat = "safe"
	Breaking Compat = "breaking"
)

// Migration is one numbered file.
type Migration struct {
	Version int
	Name    string
	Compat  Compat
	// Transactional: the file runs as one transaction together with the record of it. The others say
	// `-- transaction: none` in their second line and can be run twice.
	Transactional bool
	SQL           string
}

var (
	fileName        = regexp.MustCompile(`^(\d{6})_([a-z0-9_]+)\.up\.sql$`)
	compatLine      = regexp.MustCompile(`^-- compat: (safe|breaking)$`)
	transactionLine = "-- transaction: none"
)

// List reads the migrations in order. It refuses a name or a first line that is not as it must be.
func (s Source) List() ([]Migration, error) {
	entries, err := fs.ReadDir(s.Migrations, ".")
	if err != nil {
		return nil, err
	}
	var list []Migration
	for _, e := range entries {
		if path.Ext(e.Name()) != ".sql" {
			continue
		}
		m := fileName.FindStringSubmatch(e.Name())
		if m == nil {
			return nil, fmt.Errorf("migration %q is not named NNNNNN_name.up.sql", e.Name())
		}
		raw, err := fs.ReadFile(s.Migrations, e.Name())
		if err != nil {
			return nil, err
		}
		first, rest, _ := strings.Cut(string(raw), "\n")
		compat := compatLine.FindStringSubmatch(first)
		if compat == nil {
			return nil, fmt.Errorf("the first line of migration %q must be `-- compat: safe` or `-- compat: breaking`", e.Name())
		}
		version, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		second, _, _ := strings.Cut(rest, "\n")
		list = append(list, Migration{Version: version, Name: m[2], Compat: Compat(compat[1]),
			Transactional: second != transactionLine, SQL: string(raw)})
	}
	for i, m := range list {
		if i > 0 && list[i-1].Version == m.Version {
			return nil, fmt.Errorf("two migrations have the number %06d", m.Version)
		}
	}
	return list, nil
}

// hash identifies the text that was applied; how lines end makes no difference.
func (m Migration) hash() string {
	sum := sha256.Sum256([]byte(strings.ReplaceAll(m.SQL, "\r\n", "\n")))
	return hex.EncodeToString(sum[:])
}

// Function is one file of package sql.
type Function struct{ Name, SQL string }

// ListFunctions reads the functions in the order of their names.
func (s Source) ListFunctions() ([]Function, error) {
	entries, err := fs.ReadDir(s.Functions, ".")
	if err != nil {
		return nil, err
	}
	var list []Function
	for _, e := range entries {
		if path.Ext(e.Name()) != ".sql" {
			continue
		}
		raw, err := fs.ReadFile(s.Functions, e.Name())
		if err != nil {
			return nil, err
		}
		list = append(list, Function{Name: strings.TrimSuffix(e.Name(), ".sql"), SQL: string(raw)})
	}
	return list, nil
}

// functionsHash identifies a set of functions by their text.
func functionsHash(list []Function) string {
	h := sha256.New()
	for _, f := range list {
		fmt.Fprintf(h, "%s %d\n%s", f.Name, len(f.SQL), f.SQL)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Fingerprint identifies everything a database migrated from s holds.
func (s Source) Fingerprint() (string, error) {
	list, err := s.List()
	if err != nil {
		return "", err
	}
	functions, err := s.ListFunctions()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, m := range list {
		fmt.Fprintf(h, "%d %s %d\n%s", m.Version, m.Name, len(m.SQL), m.SQL)
	}
	io.WriteString(h, bookkeeping)
	io.WriteString(h, functionsHash(functions))
	return hex.EncodeToString(h.Sum(nil)), nil
}

// newest is the highest number in list, 0 when it is empty.
func newest(list []Migration) int {
	if len(list) == 0 {
		return 0
	}
	return slices.MaxFunc(list, func(a, b Migration) int { return a.Version - b.Version }).Version
}

// recording is the source golang-migrate reads from: each transactional file ends with the record of itself, so that
// after a crash the record says whether the file was applied.
type recording struct {
	source.Driver
	byVersion map[int]Migration
}

func newRecording(s Source, list []Migration) (*recording, error) {
	files, err := iofs.New(s.Migrations, ".")
	if err != nil {
		return nil, err
	}
	r := &recording{Driver: files, byVersion: make(map[int]Migration, len(list))}
	for _, m := range list {
		r.byVersion[m.Version] = m
	}
	return r, nil
}

// ReadUp gives the text of one migration.
func (r *recording) ReadUp(version uint) (io.ReadCloser, string, error) {
	body, name, err := r.Driver.ReadUp(version)
	m, ok := r.byVersion[int(version)]
	if err != nil || !ok || !m.Transactional {
		return body, name, err
	}
	if err := body.Close(); err != nil {
		return nil, "", err
	}
	return io.NopCloser(strings.NewReader(m.SQL + "\n" + recordSQL(m))), name, nil
}

// recordSQL notes one migration. Name and compat come from fixed alphabets, so they need no quoting.
func recordSQL(m Migration) string {
	return fmt.Sprintf("insert into rouse.schema_history (version, name, compat, hash) values (%d, '%s', '%s', '%s')\n"+
		"on conflict (version) do update set name = excluded.name, compat = excluded.compat, hash = excluded.hash, applied_at = clock_timestamp();\n",
		m.Version, m.Name, m.Compat, m.hash())
}
