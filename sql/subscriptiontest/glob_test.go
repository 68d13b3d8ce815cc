package subscriptiontest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// matches is the meaning of a pattern, said a second time.
func matches(pattern, path []string) bool {
	switch {
	case len(pattern) == 0:
		return len(path) == 0
	case pattern[0] == "**":
		return matches(pattern[1:], path) || len(path) > 0 && matches(pattern, path[1:])
	case len(path) == 0:
		return false
	case pattern[0] == "*", strings.NewReplacer("%2A", "*", "%2a", "*").Replace(pattern[0]) == path[0]:
		return matches(pattern[1:], path[1:])
	}
	return false
}

// globSQL says whether a pattern matches a path, and whether a new stream of
// that path would look at the pattern at all.
const globSQL = `select $2 ~ g.regex, g.key = any (rouse._glob_keys($2))
	and case when g.deep then g.segments <= n else g.segments = n end,
	$2 >= g.prefix and (g.prefix = '' or $2 < (g.prefix || '0') collate "C")
	from rouse._glob_parse($1) g, (select cardinality(string_to_array($2, '/')) as n) n`

func (r *rig) glob(pattern, path string) (match, tried, ranged bool) {
	r.t.Helper()
	if err := r.c.QueryRow(r.ctx(), globSQL, pattern, path).Scan(&match, &tried, &ranged); err != nil {
		r.t.Fatalf("%q on %q: %v", pattern, path, err)
	}
	return
}

func TestPatternsMatchWholeSegments(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"events/*", "events/a", true},
		{"events/*", "events", false},
		{"events/*", "events/a/b", false},
		{"events/*", "eventsx/a", false},
		{"*", "a", true},
		{"*", "a/b", false},
		{"**", "a", true},
		{"**", "a/b/c", true},
		{"**/**", "a", true},
		{"a/**", "a", true},
		{"a/**", "a/b/c", true},
		{"a/**", "ab", false},
		{"**/b", "b", true},
		{"**/b", "a/c/b", true},
		{"**/b", "ab", false},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"a/**/b", "a/xb", false},
		{"a/**/**/b", "a/b", true},
		{"**/*", "a", true},
		{"*/**", "a", true},
		{"a/*/**/b/*", "a/x/b/y", true},
		{"a/*/**/b/*", "a/b/y", false},
		{"plain/path", "plain/path", true},
		{"plain/path", "plain/pathx", false},
		// Everything but the asterisk is literal, also what regular expressions give a meaning.
		{"a.b/*", "axb/c", false},
		{"a.b/*", "a.b/c", true},
		{`a\d/*`, "a1/c", false},
		{`a\d/*`, `a\d/c`, true},
		{"(a|b)/[c]/{1}/$^/+?", "(a|b)/[c]/{1}/$^/+?", true},
		{"run-*", "run-1", false},
		{"run-*", "run-*", true},
		{"a/%2A", "a/*", true},
		{"a/%2a", "a/b", false},
		{"ü/*", "ü/ß", true},
		{"A/*", "a/x", false},
		{"one/two/three/four/five/*/x/six/seven/eight/nine", "one/two/three/four/five/6/x/six/seven/eight/nine", true},
		{"one/two/three/four/five/six", "one/two/three/four/five/six", true},
		{"**/one/two/three/four/five", "one/two/three/four/five", true},
		{"one/two/three/four/**/five", "one/two/three/four/five", true},
	} {
		match, tried, ranged := r.glob(c.pattern, c.path)
		if match != c.want {
			t.Errorf("%q on %q: %v", c.pattern, c.path, match)
		}
		if match && (!tried || !ranged) {
			t.Errorf("%q on %q matches and would not be found (key %v, range %v)", c.pattern, c.path, tried, ranged)
		}
		if got := matches(strings.Split(c.pattern, "/"), strings.Split(c.path, "/")); got != c.want {
			t.Errorf("the other implementation has %q on %q: %v", c.pattern, c.path, got)
		}
	}
}

func TestPatternsMatchWhatASecondImplementationSays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		seg := rapid.SampledFrom([]string{"a", "b", "c.d", "*", "**", "*", "**", "%2A", "a b"})
		lit := rapid.SampledFrom([]string{"a", "b", "c.d", "cxd", "*", "a b"})
		for range 20 {
			pattern := rapid.SliceOfN(seg, 1, 8).Draw(rt, "pattern")
			path := rapid.SliceOfN(lit, 1, 9).Draw(rt, "path")
			if rapid.Bool().Draw(rt, "derived") {
				// A path made from the pattern, so that many match.
				path = nil
				for _, s := range pattern {
					switch s {
					case "*":
						path = append(path, lit.Draw(rt, "segment"))
					case "**":
						path = append(path, rapid.SliceOfN(lit, 0, 3).Draw(rt, "segments")...)
					case "%2A":
						path = append(path, "*")
					default:
						path = append(path, s)
					}
				}
				if len(path) == 0 {
					continue
				}
			}
			want := matches(pattern, path)
			match, tried, ranged := r.glob(strings.Join(pattern, "/"), strings.Join(path, "/"))
			if match != want || match && (!tried || !ranged) {
				rt.Fatalf("%q on %q: match %v, want %v; looked at %v, in range %v", pattern, path, match, want, tried, ranged)
			}
		}
	})
}

func TestANewPathHasFewKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	long := strings.TrimSuffix(strings.Repeat("s/", 500), "/")
	if n := one[int](r, `select cardinality(rouse._glob_keys($1))`, long); n != 25 {
		t.Fatalf("%d keys", n)
	}
}
