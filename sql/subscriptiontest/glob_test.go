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

// globSQL says whether a pattern matches a path, whether a new stream of that
// path finds it, and whether the range of an existing one holds it.
const globSQL = `select $2 ~ g.regex, (select count(*) from rouse._glob_find(1, $2)), $2 >= g.prefix and (g.prefix = '' or $2 < (g.prefix || '0') collate "C") from rouse._glob_parse($1) g`

// globs prepares for glob.
func (r *rig) globs() {
	r.exec(`create function rouse._test_glob(p text) returns void language sql as $$
		delete from rouse.subscription_globs where consumer_id = 0;
		insert into rouse.subscription_globs (consumer_id, service_id, pattern, owner, system) values (0, 1, p, '', true) $$`)
}

func (r *rig) glob(pattern, path string) (match, found, ranged bool) {
	r.t.Helper()
	r.exec(`select rouse._test_glob(g.pattern) from rouse._glob_parse($1) g`, pattern)
	var n int
	if err := r.c.QueryRow(r.ctx(), globSQL, pattern, path).Scan(&match, &n, &ranged); err != nil {
		r.t.Fatalf("%q on %q: %v", pattern, path, err)
	}
	if n > 1 {
		r.t.Fatalf("%q on %q: found %d times", pattern, path, n)
	}
	return match, n == 1, ranged
}

func TestPatternsMatchWholeSegments(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.globs()
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
		match, found, ranged := r.glob(c.pattern, c.path)
		if match != c.want || found != c.want {
			t.Errorf("%q on %q: matches %v, is found %v", c.pattern, c.path, match, found)
		}
		if match && !ranged {
			t.Errorf("%q on %q matches and lies out of its range", c.pattern, c.path)
		}
		if got := matches(strings.Split(c.pattern, "/"), strings.Split(c.path, "/")); got != c.want {
			t.Errorf("the other implementation has %q on %q: %v", c.pattern, c.path, got)
		}
	}
}

// A pattern that begins again at every segment of a path makes work with the
// square of its depth, in the transaction that makes the stream.
func TestDeepPathsAreNotThePatterns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.globs()
	deepest := strings.Repeat("a/", 31) + "b"
	for path, want := range map[string]bool{deepest: true, deepest + "/b": false, strings.Repeat("a/", 500) + "b": false} {
		if _, found, _ := r.glob("**/b", path); found != want {
			t.Errorf("a path of %d segments is found: %v", strings.Count(path, "/")+1, found)
		}
	}
	r.exec(`delete from rouse.subscription_globs`)

	// What was there before is seen as what comes, and as what is named no longer.
	deep := deepest + "/b"
	r.make(deepest, "")
	r.make(deep, "")
	s := r.subscribe(spec{id: "s", pattern: "**/b", streams: []string{deep}})
	r.make("x/"+deep, "")
	r.wantLinks(s, link{Path: deepest, Type: "glob"}, link{Path: deep, Type: "explicit"})
	if got := one[string](r, `select rouse.subscription_unwatch(1, 's', 'x', $1)`, deep); got != "ok" {
		t.Fatal(got)
	}
	r.wantLinks(s, link{Path: deepest, Type: "glob"})
}

func TestPatternsMatchWhatASecondImplementationSays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.globs()
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
			match, found, ranged := r.glob(strings.Join(pattern, "/"), strings.Join(path, "/"))
			if match != want || found != want || match && !ranged {
				rt.Fatalf("%q on %q: match %v, want %v; found %v, in range %v", pattern, path, match, want, found, ranged)
			}
		}
	})
}

// TestManyPatternsAtOnce: each finds its own among the others.
func TestManyPatternsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	segs := []string{"a", "b", "*", "**", "a!", "%2A", "a**"}
	var patterns [][]string
	for _, x := range segs {
		patterns = append(patterns, []string{x})
		for _, y := range segs {
			patterns = append(patterns, []string{x, y})
			for _, z := range segs {
				patterns = append(patterns, []string{x, y, z})
			}
		}
	}
	for i, p := range patterns {
		r.exec(`insert into rouse.subscription_globs (consumer_id, service_id, pattern, owner, system) select $1::bigint, 1 + $1::bigint % 2, g.pattern, '', true from rouse._glob_parse($2) g`, i, strings.Join(p, "/"))
	}
	for _, path := range []string{"a", "b", "*", "**", "a!", "a/b", "a/a/b", "*/a", "a/*/b", "a!/a", "a**/b", "a**/x/b", "**", "a/b/a/b", "c", "c/c/c/c/c/c", "a/c", "c/a"} {
		want, got := map[int64]bool{}, map[int64]bool{}
		for i, p := range patterns {
			if i%2 == 0 && matches(p, strings.Split(path, "/")) {
				want[int64(i)] = true
			}
		}
		for _, id := range one[[]int64](r, `select coalesce(array_agg(consumer_id), '{}') from rouse._glob_find(1, $1)`, path) {
			if got[id] {
				t.Errorf("%q: %v is found twice", path, patterns[id])
			}
			got[id] = true
		}
		for i, p := range patterns {
			if want[int64(i)] != got[int64(i)] {
				t.Errorf("%q and %v: found %v, want %v", path, p, got[int64(i)], want[int64(i)])
			}
		}
	}
}
