package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines is where a file stops being about one thing.
const maxLines = 600

// generated files are written by tools and bound by none of this.
var generated = regexp.MustCompile(`(\.gen\.go|_gen\.go|\.pb\.go|\.gen\.ts|/gen/|/generated/|schema\.snapshot\.sql|package-lock\.json)`)

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.Name != "main" && len(p.GoFiles) == 0 {
			continue // tests only
		}
		if generated.MatchString(p.path() + "/") {
			continue
		}
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.path())
		}
	}
}

// tracked lists the files of the repository that may be read, those not yet added included.
func tracked(t *testing.T) []string {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	git.Dir = "../.."
	out, err := git.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var files []string
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if _, err := os.Stat(filepath.Join("../..", name)); err == nil {
			files = append(files, name)
		}
	}
	return files
}

func TestFilesStayShort(t *testing.T) {
	t.Parallel()
	for _, name := range tracked(t) {
		switch filepath.Ext(name) {
		case ".go", ".sql", ".ts", ".js", ".mjs":
		default:
			continue
		}
		raw, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if head := raw[:min(len(raw), 300)]; generated.MatchString(name) || bytes.Contains(head, []byte("DO NOT EDIT")) || bytes.Contains(head, []byte("auto-generated")) {
			continue
		}
		if lines := bytes.Count(raw, []byte("\n")); lines > maxLines {
			t.Errorf("%s has %d lines; %d is the most", name, lines, maxLines)
		}
	}
}

// banned are calls that a kind of file must not make.
var banned = []struct {
	call, why string
	where     func(path string, test bool) bool
}{
	{"time.Sleep", "tests wait for what they wait for, with a deadline", func(_ string, test bool) bool { return test }},
	{"time.Sleep", "product code waits with a context", func(_ string, test bool) bool { return !test }},
	{"context.Background", "contexts come from main or from the test", func(path string, test bool) bool {
		return !test && !within(filepath.Dir(path), append(testSupport, "gateway/cmd/rouse")...)
	}},
	{"context.TODO", "contexts come from main or from the test", func(string, bool) bool { return true }},
	{"t.Skip", "a test that does not run says nothing", func(_ string, test bool) bool { return test }},
	{"t.SkipNow", "a test that does not run says nothing", func(_ string, test bool) bool { return test }},
	{"t.Skipf", "a test that does not run says nothing", func(_ string, test bool) bool { return test }},
}

func TestNobodyDoesWhatIsBanned(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, name := range tracked(t) {
		if filepath.Ext(name) != ".go" || generated.MatchString(name) {
			continue
		}
		seen++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join("../..", name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(file) {
			continue
		}
		test := strings.HasSuffix(name, "_test.go")
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: nothing happens because a package is imported (func init)", place(set, f))
			}
			// A fuzz target skips the inputs it has nothing to say about, and a property the steps that do not apply.
			maySkip := ok && strings.HasPrefix(f.Name.Name, "Fuzz")
			skippable := token.NoPos
			ast.Inspect(d, func(n ast.Node) bool {
				if t, ok := n.(*ast.FuncType); ok && takesRapid(t) {
					skippable = bodyEnd(d, t)
				}
				call := selector(n)
				for _, b := range banned {
					if call == b.call && b.where(name, test) && !(strings.HasPrefix(call, "t.Skip") && (maySkip || n.Pos() < skippable)) {
						t.Errorf("%s: %s: %s", place(set, n), b.call, b.why)
					}
				}
				return true
			})
		}
		for _, group := range file.Comments {
			if unfinished.MatchString(group.Text()) {
				t.Errorf("%s: unfinished business belongs into an issue", place(set, group))
			}
		}
	}
	if seen < 20 {
		t.Fatalf("only %d Go files are seen", seen)
	}
}

// takesRapid reports whether a function is a property or a step of one.
func takesRapid(f *ast.FuncType) bool {
	for _, p := range f.Params.List {
		if star, ok := p.Type.(*ast.StarExpr); ok && selector(star.X) == "rapid.T" {
			return true
		}
	}
	return false
}

// bodyEnd is where the function of the given type ends.
func bodyEnd(within ast.Node, f *ast.FuncType) (end token.Pos) {
	ast.Inspect(within, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if n.Type == f {
				end = n.End()
			}
		case *ast.FuncDecl:
			if n.Type == f {
				end = n.End()
			}
		}
		return true
	})
	return end
}

// selector spells x.y, and is empty for anything else.
func selector(n ast.Node) string {
	if sel, ok := n.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok {
			return x.Name + "." + sel.Sel.Name
		}
	}
	return ""
}

func place(set *token.FileSet, n ast.Node) string {
	return strings.TrimPrefix(set.Position(n.Pos()).String(), "../../")
}

var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

// The log is the only signal: a notification takes a lock of the whole
// database at commit, and none is kept for who is not connected.
func TestNothingListensOrNotifies(t *testing.T) {
	t.Parallel()
	// A statement of its own in SQL; in Go, the beginning of a string.
	signal := regexp.MustCompile(`(?i)\bpg_notify\b|(^|[;"` + "`" + `])\s*(listen|unlisten|notify)\s+[a-z_"*]`)
	for _, probe := range []string{"select pg_notify('a', 'b')", "begin;  NOTIFY x;", "conn.Exec(ctx, `listen wakes`)"} {
		if !signal.MatchString(probe) {
			t.Fatalf("%q would not be found", probe)
		}
	}
	seen := 0
	for _, name := range tracked(t) {
		ext := filepath.Ext(name)
		if ext != ".sql" && ext != ".go" || strings.HasPrefix(name, "gateway/archtest/") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		seen++
		if ext == ".sql" {
			raw = bytes.ReplaceAll(raw, []byte("\n"), []byte(";"))
		}
		if m := signal.Find(raw); m != nil {
			t.Errorf("%s: %q", name, m)
		}
	}
	if seen < 100 {
		t.Errorf("only %d files were read", seen)
	}
}
