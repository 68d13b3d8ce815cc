package shape

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/shape/where"
)

// definition is what makes two shapes the same: table, rows, columns, and who
// looks.
type definition struct {
	table   *table
	service int32
	tenant  string
	caller  auth.Principal
	// me is the caller's URL.
	me string
	// all: the caller may see every row of the service.
	all bool
	// columns are those wanted, by index.
	columns []int
	filter  *where.Filter
	// full: changes carry whole rows, and old values where the log has them.
	full bool
	// changesOnly: the first rows are not sent.
	changesOnly bool
	// id identifies the shape in handles.
	id string
	// drifts: a row can come to match the filter, or cease to.
	drifts bool
}

// Limits of a request.
const (
	maxParams = 1000
	maxQuery  = 64 << 10
)

func bad(name, message string) error {
	return problem.New(problem.InvalidRequest, "The query is not valid.").WithDetails(problem.Detail{Path: "query." + name, Message: message})
}

// one reads a query parameter that may be given once.
func one(q url.Values, name string) (string, error) {
	vs := q[name]
	switch len(vs) {
	case 0:
		return "", nil
	case 1:
		return vs[0], nil
	}
	return "", bad(name, "it is given more than once")
}

// define reads a definition but for who looks.
func readDefinition(q url.Values) (*definition, error) {
	if len(q["table"]) != 1 || tables[q["table"][0]] == nil || tables[q["table"][0]].hidden {
		return nil, problem.New(problem.TableNotAllowed, "Name one table that can be synced.").
			WithDetails(problem.Detail{Path: "query.table", Message: "must be one of " + tableNames()})
	}
	d := &definition{table: tables[q["table"][0]]}
	src, err := one(q, "where")
	if err != nil {
		return nil, err
	}
	params, err := readParams(q, "params")
	if err != nil {
		return nil, err
	}
	if d.filter, err = d.parse(src, params); err != nil {
		return nil, err
	}
	list, err := one(q, "columns")
	if err != nil {
		return nil, err
	}
	if d.columns, err = d.readColumns(list); err != nil {
		return nil, err
	}
	replica, err := one(q, "replica")
	if err != nil {
		return nil, err
	}
	if replica != "" && replica != "default" && replica != "full" {
		return nil, bad("replica", "default or full")
	}
	d.full = replica == "full"
	mode, err := one(q, "log")
	if err != nil {
		return nil, err
	}
	if mode != "" && mode != "full" && mode != "changes_only" {
		return nil, bad("log", "full or changes_only")
	}
	d.changesOnly = mode == "changes_only"
	for _, i := range d.filter.Columns() {
		d.drifts = d.drifts || !d.table.columns[i].fixed
	}
	keys := make([]string, 0, len(params))
	for k, v := range params {
		keys = append(keys, strconv.Itoa(k)+"="+v)
	}
	slices.Sort(keys)
	d.id = fmt.Sprintf("%q %q %q %s %v %v", d.table.name, src, keys, d.describe(), d.full, d.changesOnly)
	return d, nil
}

// belongs adds who looks. With openTypes everybody may spawn, and so see, every
// type.
func (d *definition) belongs(service int32, tenant string, p auth.Principal, openTypes bool) {
	d.service, d.tenant, d.caller, d.me = service, tenant, p, p.URL()
	d.all = p.Trusted() || openTypes && d.table.scope == spawners
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %q", d.id, service, d.me))
	d.id = strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

func (d *definition) parse(src string, params map[int]string) (*where.Filter, error) {
	if strings.TrimSpace(src) == "" {
		return nil, nil
	}
	f, err := where.Parse(src, params, d.table.filterColumn)
	if err != nil {
		return nil, problem.New(problem.InvalidWhere, "The where clause is not valid: "+err.Error()+".")
	}
	return f, nil
}

// readParams reads the values of $1, $2 … from name[1]=…, or from JSON.
func readParams(q url.Values, name string) (map[int]string, error) {
	out := map[int]string{}
	list, err := one(q, name)
	if err != nil {
		return nil, err
	}
	if list != "" {
		if err := paramsFromJSON([]byte(list), out); err != nil {
			return nil, bad(name, "a JSON object of values by number, or an array")
		}
	}
	for key := range q {
		n, ok := strings.CutPrefix(key, name+"[")
		if !ok {
			continue
		}
		i, ok := number(strings.TrimSuffix(n, "]"))
		if !ok || !strings.HasSuffix(n, "]") {
			return nil, bad(name, "parameters are numbered from 1")
		}
		if out[i], err = one(q, key); err != nil {
			return nil, err
		}
	}
	if len(out) > maxParams {
		return nil, bad(name, "there are too many parameters")
	}
	return out, nil
}

// number reads a parameter's number. There is one way to write it, so that none is
// given twice in one place: which one counted would be chance.
func number(s string) (n int, ok bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1 && strconv.Itoa(n) == s
}

func paramsFromJSON(raw []byte, out map[int]string) error {
	var byNumber map[string]any
	var list []any
	decode := func(v any) error {
		d := json.NewDecoder(strings.NewReader(string(raw)))
		d.UseNumber()
		return d.Decode(v)
	}
	if decode(&list) == nil {
		byNumber = map[string]any{}
		for i, v := range list {
			byNumber[strconv.Itoa(i+1)] = v
		}
	} else if err := decode(&byNumber); err != nil {
		return err
	}
	for key, v := range byNumber {
		i, ok := number(key)
		if !ok {
			return strconv.ErrSyntax
		}
		switch v := v.(type) {
		case string:
			out[i] = v
		case json.Number:
			out[i] = v.String()
		case bool:
			out[i] = strconv.FormatBool(v)
		default:
			return strconv.ErrSyntax
		}
	}
	return nil
}

// readColumns reads a list of names, which may be quoted; none means all. Names
// that the table does not have are passed over as long as one is its own: a client
// of another version asks for what has moved to another table since, or is not
// here yet.
func (d *definition) readColumns(list string) ([]int, error) {
	if list == "" {
		all := make([]int, len(d.table.columns))
		for i := range all {
			all[i] = i
		}
		return all, nil
	}
	var out []int
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if len(name) >= 2 && name[0] == '"' && name[len(name)-1] == '"' {
			name = name[1 : len(name)-1]
		}
		if !plain(name) {
			return nil, bad("columns", "names, with commas between them")
		}
		if i := d.table.find(name); i >= 0 {
			out = append(out, i)
		}
	}
	if len(out) == 0 {
		return nil, bad("columns", "none is a column of this table")
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// plain reports whether a name is one that columns have.
func plain(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// describe answers the header electric-schema.
func (d *definition) describe() string {
	type about struct {
		Type    string `json:"type"`
		NotNull bool   `json:"not_null,omitempty"`
		PKIndex *int   `json:"pk_index,omitempty"`
	}
	out := make(map[string]about, len(d.columns))
	for _, i := range d.columns {
		c := d.table.columns[i]
		a := about{Type: c.pg, NotNull: c.notNull}
		if at := slices.Index(d.table.key, i); at >= 0 {
			a.PKIndex = &at
		}
		out[c.name] = a
	}
	b, _ := json.Marshal(out)
	return string(b)
}
