package where

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var columns = []Column{
	{Name: "url", Type: Text, SQL: "t.url"}, {Name: "status", Type: Text, SQL: "t.status"}, {Name: "n", Type: Int, SQL: "t.n"},
	{Name: "big", Type: Int, SQL: "t.big"}, {Name: "at", Type: Time, SQL: "t.at"}, {Name: "wake", Type: UUID, SQL: "t.wake"}, {Name: "tags", Type: JSON, SQL: "t.tags"},
}

func find(name string) (Column, bool) {
	i := slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return Column{}, false
	}
	c := columns[i]
	c.Index = i
	return c, true
}

// rows to match, in the text form of Postgres.
var texts = []string{"", "a", "A", "b", "ab", "a%b", "a_b", `a\b`, "Zed", "ä", "é", "日本", "/chat/1", "/chat/2", "x'y", "running", "RUNNING"}
var ints = []string{"0", "1", "-1", "42", "2147483647"}
var bigs = []string{"0", "1", "-5", "42", "9223372036854775807", "-9223372036854775808"}
var times = []string{"2026-11-29 18:00:00+00", "2026-11-29 18:00:00.000001+00", "1999-12-31 23:59:59.5+00", "2026-11-30 00:00:00+00", "infinity"}
var uuids = []string{"01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-00000000000a", "ffffffff-ffff-7fff-bfff-ffffffffffff"}
var docs = []string{"{}", `{"a": 1}`, `[]`, "null"}

func valuesOf(t Type) []string {
	return map[Type][]string{Text: texts, Int: ints, Time: times, UUID: uuids, JSON: docs}[t]
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// clause draws a clause and the parameters it uses.
type clause struct {
	t      *rapid.T
	params map[int]string
}

func (c *clause) pick(label string, from []string) string {
	return rapid.SampledFrom(from).Draw(c.t, label)
}

// constant draws a literal or a parameter of a type.
func (c *clause) constant(t Type) string {
	v := c.pick("value", valuesOf(t))
	switch rapid.IntRange(0, 5).Draw(c.t, "form") {
	case 0:
		return "NULL"
	case 1:
		n := len(c.params) + 1
		c.params[n] = v
		return fmt.Sprintf("$%d", n)
	case 2:
		if t == Int {
			return v
		}
		return quote(v)
	case 3:
		return quote(v) + "::" + t.String()
	}
	return quote(v)
}

func (c *clause) predicate() string {
	i := rapid.IntRange(0, len(columns)-1).Draw(c.t, "column")
	col := columns[i]
	name, t := col.Name, col.Type
	if rapid.Bool().Draw(c.t, "quoted") {
		name = `"` + name + `"`
	}
	if t == JSON || rapid.IntRange(0, 9).Draw(c.t, "cast") == 0 {
		if rapid.Bool().Draw(c.t, "null") {
			return name + c.pick("is", []string{" is null", " IS NOT NULL"})
		}
		name, t = name+"::text", Text
	}
	not := c.pick("not", []string{"", "NOT "})
	switch rapid.IntRange(0, 6).Draw(c.t, "kind") {
	case 0:
		return name + " " + c.pick("is", []string{"is null", "IS NOT NULL"})
	case 1:
		return fmt.Sprintf("%s %sIN (%s, %s)", name, not, c.constant(t), c.constant(t))
	case 2:
		return fmt.Sprintf("%s %sBETWEEN %s AND %s", name, not, c.constant(t), c.constant(t))
	case 3:
		return fmt.Sprintf("%s IS %sDISTINCT FROM %s", name, not, c.constant(t))
	case 4:
		n := len(c.params) + 1
		var elements []string
		for range rapid.IntRange(0, 3).Draw(c.t, "elements") {
			elements = append(elements, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(c.pick("element", valuesOf(t)))+`"`)
		}
		if rapid.Bool().Draw(c.t, "null element") {
			elements = append(elements, "NULL")
		}
		c.params[n] = "{" + strings.Join(elements, ",") + "}"
		return fmt.Sprintf("%s = ANY ($%d)", name, n)
	case 5:
		if t == Text {
			pattern := c.pick("pattern", []string{"a%", "%b", "_", "a_b", `a\%b`, "%", "", "A%", "/chat/%", "%ä%", "_日%", "é", `%\\%`})
			return fmt.Sprintf("%s %s%s %s", name, not, c.pick("like", []string{"LIKE", "ilike"}), quote(pattern))
		}
	}
	op := c.pick("op", []string{"=", "<>", "!=", "<", "<=", ">", ">="})
	if rapid.IntRange(0, 3).Draw(c.t, "turned") == 0 {
		return c.constant(t) + " " + op + " " + name
	}
	return name + " " + op + " " + c.constant(t)
}

func (c *clause) condition(depth int) string {
	if depth == 0 {
		return c.predicate()
	}
	switch rapid.IntRange(0, 6).Draw(c.t, "join") {
	case 0:
		return c.condition(depth-1) + " AND " + c.condition(depth-1)
	case 1:
		return c.condition(depth-1) + " or " + c.condition(depth-1)
	case 2:
		return "NOT " + c.condition(depth-1)
	case 3:
		return "(" + c.condition(depth-1) + ")"
	case 4:
		return "(" + c.condition(depth-1) + ") IS " + c.pick("not", []string{"", "NOT "}) + c.pick("truth", []string{"TRUE", "FALSE", "UNKNOWN", "NULL"})
	case 5:
		return c.pick("constant", []string{"TRUE", "false", "NULL"}) + " OR " + c.condition(depth-1)
	}
	return c.predicate()
}

// What Match says of a row, Postgres says of it too: of the SQL that the filter
// compiles to, and so far as Postgres orders by bytes, of the clause itself.
func TestMatchDecidesAsPostgres(t *testing.T) {
	t.Parallel()
	conn := pgtest.Empty(t).Conn(t)
	ctx := t.Context()
	if _, err := conn.Exec(ctx, `set timezone = 'UTC'; create temp table t (url text collate "C", status text collate "C", n integer, big bigint, at timestamptz, wake uuid, tags jsonb)`); err != nil {
		t.Fatal(err)
	}
	all := [][]string{texts, texts, ints, bigs, times, uuids, docs}
	rapid.Check(t, func(rt *rapid.T) {
		c := &clause{t: rt, params: map[int]string{}}
		src := c.condition(rapid.IntRange(0, 4).Draw(rt, "depth"))
		f, err := Parse(src, c.params, find)
		if err != nil {
			rt.Fatalf("%s: %v", src, err)
		}
		var cells []Cell
		row := make([]any, len(columns))
		for i, from := range all {
			cell := Cell{Null: rapid.IntRange(0, 3).Draw(rt, "null") == 0}
			if !cell.Null {
				cell.Text = rapid.SampledFrom(from).Draw(rt, "cell")
				row[i] = cell.Text
			}
			cells = append(cells, cell)
		}
		args := slices.Clone(row)
		compiled := f.SQL(&args)
		var want, stored bool
		var printed [7]*string
		err = conn.QueryRow(ctx, `select coalesce(`+compiled+`, false), true, t.url, t.status, t.n::text, t.big::text, t.at::text, t.wake::text, t.tags::text
			from (select $1::text collate "C", $2::text collate "C", $3::text::integer, $4::text::bigint, $5::text::timestamptz, $6::text::uuid, $7::text::jsonb) t (url, status, n, big, at, wake, tags)`, args...).
			Scan(&want, &stored, &printed[0], &printed[1], &printed[2], &printed[3], &printed[4], &printed[5], &printed[6])
		if err != nil {
			rt.Fatalf("%s\n%s: %v", src, compiled, err)
		}
		for i, p := range printed {
			if p != nil {
				cells[i].Text = *p
			}
		}
		if got := f.Match(func(i int) Cell { return cells[i] }); got != want {
			rt.Fatalf("%s\nparams %v\ncompiled to %s\nof %v: %v here, %v in Postgres", src, c.params, compiled, cells, got, want)
		}
		// The clause as it was written means the same to Postgres.
		direct := src
		for n := len(c.params); n >= 1; n-- {
			direct = strings.ReplaceAll(direct, fmt.Sprintf("$%d", n), quote(c.params[n]))
		}
		var said bool
		err = conn.QueryRow(ctx, `select coalesce(`+direct+`, false) from (select $1::text collate "C", $2::text collate "C", $3::text::integer, $4::text::bigint, $5::text::timestamptz, $6::text::uuid, $7::text::jsonb) t (url, status, n, big, at, wake, tags)`, row...).Scan(&said)
		if err == nil && said != want && !strings.Contains(direct, "::text") {
			rt.Fatalf("%s\nof %v: %v, and %v as Postgres reads it", direct, cells, want, said)
		}
	})
}

func TestClausesThatAreRefused(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("(", 70) + "n = 1" + strings.Repeat(")", 70)
	for name, src := range map[string]string{
		"empty": " ", "no condition": "n", "unknown column": "secret = 'x'", "hidden column": "service_id = 1", "open quote": "url = 'x", "open parenthesis": "(n = 1",
		"closing parenthesis": "n = 1)", "comment": "n = 1 -- x", "comment inside": "n = 1 /* x */", "second statement": "n = 1; drop table t",
		"function": "pg_sleep(1) is null", "subquery": "n in (select 1)", "union": "n = 1 union select 1", "cast to another": "n = 1::regclass", "operator": "url || 'x' = 'y'",
		"number as text": "url = 1", "text as number": "n = 'x'", "number too large": "n = 99999999999999999999", "fraction": "n = 1.5", "json": "tags = '{}'",
		"bad uuid": "wake = 'x'", "bad time": "at > 'yesterday'", "missing parameter": "n = $9", "no parameter number": "n = $", "empty list": "n in ()",
		"escape at the end": `url like 'a\'`, "pattern of a column": "url like status", "long pattern": "url like '" + strings.Repeat("%a", 200) + "'", "deep": deep, "long": "url = '" + strings.Repeat("x", MaxLength) + "'",
		"zero byte": "url = 'a\x00b'", "not utf-8": "url = '\xff'", "dollar quote": "url = $$x$$", "qualified": "t.url = 'x'", "unicode quote": "url = U&'x'", "escape string": "url = E'x'",
		"any of a column": "n = any (n)", "bad array": "n = any ('1,2')", "column in a list": "n in (n)", "not a condition": "not n", "chain": "n = 1 = 2", "star": "*", "cast of a condition": "(n = 1)::text = 'true'",
	} {
		_, err := Parse(src, map[int]string{1: "1"}, find)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %q: %v", name, src[:min(len(src), 40)], err)
		}
	}
}

// Nothing that a client sends is part of the SQL.
func TestValuesAreNeverPartOfTheSQL(t *testing.T) {
	t.Parallel()
	const evil = `x'; drop table entities; --`
	f, err := Parse(`url = $1 or status in ('`+strings.ReplaceAll(evil, "'", "''")+`') or url like $1 or n = any ($2) or at > '2026-01-01T00:00:00Z'`, map[int]string{1: evil, 2: "{1,2}"}, find)
	if err != nil {
		t.Fatal(err)
	}
	var args []any
	sql := f.SQL(&args)
	if strings.ContainsAny(sql, "';-") || strings.Contains(sql, "drop") || len(args) != 5 {
		t.Errorf("%s %v", sql, args)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"n = 1", "url like 'a%' and not (at between '2026-01-01' and $1)", `"url" = any('{a,"b"}')`, "a is not distinct from"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		p, err := Parse(src, map[int]string{1: "2026-01-01"}, find)
		if err != nil {
			return
		}
		var args []any
		_ = p.SQL(&args)
		_ = p.Match(func(int) Cell { return Cell{Null: true} })
	})
}

func TestPinnedColumns(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"url = 'a'": "a", "'a' = url and n > 1": "a", "n > 1 and (status = 'x' and url in ('a', 'b', null))": "a b", "url = any ('{c}')": "c",
		"url = 'a' or n = 1": "-", "not (url = 'a')": "-", "url <> 'a'": "-", "url > 'a'": "-", "status = 'a'": "-", "url = status": "-", "url is null": "-", "url = null": "-", "url not in ('a')": "-",
	} {
		f, err := Parse(src, nil, find)
		if err != nil {
			t.Fatal(err)
		}
		got := "-"
		if vs, ok := f.Pinned(0); ok {
			got = strings.Join(vs, " ")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", src, got, want)
		}
	}
}

func TestMillisAreRoundedDown(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"2026-11-30 00:36:29.606999+00": 1795998989606, "1970-01-01 00:00:00+00": 0,
		"1970-01-01 02:00:00.001+02": 1, "1969-12-31 23:59:59.9999+00": -1, "1969-12-31 23:59:59+00": -1000,
	} {
		if got, err := Millis(in); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"infinity", "-infinity", "", "yesterday"} {
		if got, err := Millis(in); err == nil {
			t.Errorf("%s: %d", in, got)
		}
	}
}
