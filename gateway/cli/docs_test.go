package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// Every command that README.md and docs tell people to run is one: the parser
// takes the lines of their shell blocks as they stand, and knows the commands and
// flags that they name in passing.
func TestThePagesNameCommandsThatAre(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines, spans := 0, 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(text), "```") {
			if i%2 == 1 {
				language, block, _ := strings.Cut(part, "\n")
				if language != "sh" {
					continue
				}
				for _, args := range commandsIn(block) {
					lines++
					if _, err := parse(newParser(t), args); err != nil {
						t.Errorf("%s: rouse %q: %v", filepath.Base(page), args, err)
					}
				}
				continue
			}
			for _, m := range inline.FindAllStringSubmatch(part, -1) {
				args := slices.Concat(commandsIn(m[1])...)
				spans++
				if missing := unknownIn(newParser(t).Model.Node, args); missing != "" {
					t.Errorf("%s: `%s`: there is no %s", filepath.Base(page), m[1], missing)
				}
			}
		}
	}
	if lines < 40 || spans < 30 {
		t.Errorf("only %d lines and %d names were found: this shows little", lines, spans)
	}
}

// So is every example that a command's own help shows.
func TestExamplesOfHelpAreCommands(t *testing.T) {
	t.Parallel()
	n := 0
	_ = kong.Visit(newParser(t).Model.Node, func(v kong.Visitable, next kong.Next) error {
		if node, ok := v.(*kong.Node); ok {
			_, examples, _ := strings.Cut(node.Detail, "Examples:\n")
			for line := range strings.SplitSeq(examples, "\n") {
				if !strings.HasPrefix(line, "  ") {
					break // what follows the examples
				}
				for _, args := range commandsIn(line) {
					n++
					if _, err := parse(newParser(t), args); err != nil {
						t.Errorf("%s shows rouse %q: %v", node.Path(), args, err)
					}
				}
			}
		}
		return next(nil)
	})
	if n < 60 {
		t.Errorf("only %d examples were found", n)
	}
}

func TestCommandsAreFoundInPages(t *testing.T) {
	t.Parallel()
	block := "export A=b\n(umask 077; rouse keys new > $FILE)   # once\n" +
		"rouse entity spawn task/1 -m 'it is # here' \\\n  --runner \"a b\"\nTOKEN=x bin/rouse stream append s | sed 's/rouse a/b/'; rouse doctor\n"
	want := [][]string{{"keys", "new"}, {"entity", "spawn", "task/1", "-m", "it is # here", "--runner", "a b"}, {"stream", "append", "s"}, {"doctor"}}
	if got := commandsIn(block); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	node := newParser(t).Model.Node
	for line, want := range map[string]string{
		"entity spawn task/1 --runner x": "", "keys": "", "dev": "", "--config x serve": "",
		"entity spwan task/1": "command spwan", "nonsense": "command nonsense", "keys new --nonsense=1": "flag --nonsense",
	} {
		if got := unknownIn(node, strings.Fields(line)); got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// inline is a command that a sentence names.
var inline = regexp.MustCompile("`((?:[A-Z_]+=\\S+ )?(?:bin/)?rouse [^`]+)`")

func newParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&root{},
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(duration)),
		kong.TypeMapper(reflect.TypeFor[time.Time](), kong.MapperFunc(instant)),
		// Files are those of whoever follows a page.
		kong.NamedMapper("existingfile", kong.MapperFunc(anyFile)), kong.NamedMapper("existingdir", kong.MapperFunc(anyFile)),
		kong.Exit(func(int) { panic(helpShown{}) }), kong.Vars{"listen": "", "server": "", "version": ""})
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

func anyFile(ctx *kong.DecodeContext, target reflect.Value) error {
	var s string
	err := ctx.Scan.PopValueInto("file", &s)
	target.SetString(s)
	return err
}

// commandsIn splits what a shell is given into words, and gives the arguments of
// those commands that are rouse.
func commandsIn(text string) (found [][]string) {
	var words []string
	var word strings.Builder
	inWord, quote := false, byte(0)
	flush := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	end := func() {
		flush()
		if at := slices.IndexFunc(words, func(w string) bool { return w == "rouse" || w == "bin/rouse" }); at >= 0 && !slices.ContainsFunc(words[:at], notAssignment) {
			args := words[at+1:]
			if to := slices.IndexFunc(args, func(w string) bool { return w == ">" || w == "<" || w == "&" }); to >= 0 {
				args = args[:to]
			}
			found = append(found, slices.Clone(args))
		}
		words = words[:0]
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteByte(c)
			}
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == '\\' && i+1 < len(text) && text[i+1] == '\n':
			flush()
			i++
		case c == '#' && !inWord:
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case c == '\n' || c == ';' || c == '|' || c == '(' || c == ')':
			end()
		case c == ' ' || c == '\t':
			flush()
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	end()
	return found
}

func notAssignment(word string) bool { return !strings.Contains(word, "=") }

// unknownIn says which word of a command line that need not be whole is neither a
// command nor a flag, if one is not.
func unknownIn(node *kong.Node, args []string) string {
	flags := func(n *kong.Node, name string) (found bool) {
		for _, group := range n.AllFlags(true) {
			for _, f := range group {
				found = found || "--"+f.Name == name || f.Short != 0 && "-"+string(f.Short) == name
			}
		}
		return found
	}
	valued := false
	for _, arg := range args {
		name, _, joined := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(arg, "-"):
			if name != "--help" && !flags(node, name) && node.Depth() > 0 {
				return "flag " + name
			}
			valued = !joined
		case valued:
			valued = false
		case len(node.Children) > 0:
			at := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == arg || slices.Contains(c.Aliases, arg) })
			if at < 0 {
				return "command " + arg
			}
			node = node.Children[at]
		}
	}
	return ""
}
