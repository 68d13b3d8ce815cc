package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rouse-run/rouse/"

// pkg is what `go list` says of a package. Imports are those of the product code, not of tests.
type pkg struct {
	ImportPath, Name, Dir, Doc string
	Imports                    []string
	GoFiles                    []string
	TestGoFiles, XTestGoFiles  []string
	Standard                   bool
}

// path is the package's path inside the module.
func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, module) }

func packages(t *testing.T) []pkg {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Dir,Doc,Imports,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	list.Dir = "../.."
	var complaint bytes.Buffer
	list.Stderr = &complaint
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, complaint.String())
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages are seen", len(all))
	}
	return all
}

// within reports whether path is one of the roots or lies below one.
func within(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return path == root || strings.HasPrefix(path, root+"/") })
}

// testing packages are imported by tests only, so what they import themselves harms no binary.
var testSupport = []string{"gateway/devpg/pgtest", "gateway/server/servertest", "gateway/soon", "gateway/e2e", "gateway/bench", "sql/interleave", "sql/mutextest", "sql/subscriptiontest"}

// onlyBy: whoever imports something below the key must be within the values.
var onlyBy = map[string][]string{
	"github.com/jackc/pgx":               append([]string{"gateway/store", "gateway/feed"}, testSupport...),
	"github.com/jackc/pglogrepl":         {"gateway/feed"},
	"github.com/golang-migrate":          {"gateway/store/migrate"},
	"database/sql":                       {"gateway/store"},
	"github.com/danielgtaylor/huma":      {"gateway/control"},
	"github.com/robfig/cron":             {"gateway/observation"},
	"github.com/open-policy-agent":       {"authhooks/opa"},
	"github.com/lestrrat-go":             {"authhooks/jwt"},
	"github.com/alecthomas/kong":         {"gateway/cli", "gateway/bench"},
	"github.com/hashicorp/go-plugin":     {"gateway/pluginhost", "plugins"},
	"github.com/fergusstrange":           {"gateway/devpg"},
	module + "gateway/server":            append([]string{"gateway/cli"}, testSupport...),
	module + "gateway/cli":               {"gateway/cmd/rouse", "gateway/e2e"},
	module + "gateway/devpg/pgtest":      testSupport,
	module + "gateway/server/servertest": testSupport,
	module + "gateway/soon":              testSupport,
	module + "sql/interleave":            testSupport,
	module + "gateway/devpg":             append([]string{"gateway/cli"}, testSupport...),
	"testing":                            testSupport,
	"net/http/httptest":                  testSupport,
}

// never: packages below the key import nothing below the values.
var never = map[string][]string{
	// The lowest room: everybody stands on it.
	"gateway/problem": {module},
	// They know SQL and nothing of HTTP, nor of those above them.
	"gateway/store": {"net/http", module + "gateway/streams", module + "gateway/control", module + "gateway/shape", module + "gateway/dispatch",
		module + "gateway/feed", module + "gateway/auth", module + "gateway/appender", module + "gateway/claims", module + "gateway/config"},
	"gateway/feed": {"net/http", module + "gateway/streams", module + "gateway/control", module + "gateway/shape", module + "gateway/dispatch",
		module + "gateway/store", module + "gateway/auth", module + "gateway/config"},
	// The dispatcher reaches the world through the Transport interface only.
	"gateway/dispatch": {"net/http", module + "transports", module + "authhooks", module + "gateway/streams", module + "gateway/control", module + "gateway/auth"},
	// The watcher knows the store and nothing of who is asking, nor of how an entity is woken.
	"gateway/observation": {"net/http", module + "gateway/streams", module + "gateway/control", module + "gateway/dispatch", module + "gateway/feed",
		module + "gateway/auth", module + "gateway/claims", module + "gateway/config"},
	// The clean-up knows the store alone.
	"gateway/retention": {"net/http", module + "gateway/streams", module + "gateway/control", module + "gateway/dispatch", module + "gateway/feed",
		module + "gateway/auth", module + "gateway/claims", module + "gateway/config"},
	// The HTTP rooms do not know each other, nor what starts them.
	"gateway/streams":       {module + "gateway/control", module + "gateway/dispatch", module + "gateway/config", module + "transports", module + "authhooks"},
	"gateway/control":       {module + "gateway/streams", module + "gateway/dispatch", module + "gateway/config", module + "transports", module + "authhooks"},
	"gateway/subscriptions": {module + "gateway/streams", module + "gateway/control", module + "gateway/dispatch", module + "gateway/config", module + "transports", module + "authhooks"},
	"gateway/shape":         {module + "gateway/streams", module + "gateway/control", module + "gateway/dispatch", module + "gateway/config"},
	"gateway/shape/where":   {module, "net/http"},
	"gateway/seal":          {module, "net/http"},
	"gateway/staterow":      {module, "net/http"},
	"gateway/pace":          {module, "net/http"},
	"gateway/failure":       {module, "net/http"},
	// An author's build stays small.
	"plugins":    {module + "gateway", module + "transports", module + "authhooks"},
	"transports": {module + "gateway", module + "authhooks"},
	"authhooks":  {module + "gateway", module + "transports"},
	// A client stands on the wire alone.
	"openapi": {module + "gateway", module + "plugins", module + "transports", module + "authhooks"},
	// A private Postgres knows nothing of what it holds; settings and figures nothing of who uses them.
	"gateway/config": {module},
	"gateway/obs":    {module + "gateway/config", module + "gateway/store", module + "gateway/server"},
	"migrations":     {module},
	"sql":            {module},
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			for root, allowed := range onlyBy {
				if within(imported, root) && !within(p.path(), allowed...) && !selfOrSibling(p, root) {
					t.Errorf("%s imports %s; only %s may", p.path(), imported, strings.Join(allowed, ", "))
				}
			}
			for room, forbidden := range never {
				if !within(p.path(), room) || within(p.path(), testSupport...) {
					continue
				}
				for _, root := range forbidden {
					if below(imported, root) && !within(strings.TrimPrefix(imported, module), room) {
						t.Errorf("%s imports %s; nothing in %s may", p.path(), imported, room)
					}
				}
			}
		}
	}
}

// selfOrSibling lets packages below a restricted one import it.
func selfOrSibling(p pkg, root string) bool { return within(p.ImportPath, root) }

// below is within for import paths, where the module's own root ends in a slash.
func below(imported, root string) bool {
	return within(imported, strings.TrimSuffix(root, "/")) || strings.HasSuffix(root, "/") && strings.HasPrefix(imported, root)
}

func TestProblemStandsOnTheStandardLibrary(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.path() != "gateway/problem" {
			continue
		}
		for _, imported := range p.Imports {
			if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") {
				t.Errorf("gateway/problem imports %s", imported)
			}
		}
		return
	}
	t.Error("there is no gateway/problem")
}

// The rules above are tables; this shows that they bite.
func TestRulesBite(t *testing.T) {
	t.Parallel()
	if !below(module+"gateway/store", module) || !below("github.com/jackc/pgx/v5", "github.com/jackc/pgx") || below("github.com/jackc/pgxother", "github.com/jackc/pgx") {
		t.Error("below does not tell paths apart")
	}
	if !within("gateway/store/migrate", "gateway/store") || within("gateway/storefront", "gateway/store") {
		t.Error("within does not tell paths apart")
	}
}
