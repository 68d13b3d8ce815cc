package access

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/signin"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// column is how a request is made. Where an operation is about a claim, hold or
// write token, the columns are about that: see [row].
type column string

const (
	nobody    column = "no credentials"
	byName    column = "a name alone"
	garbled   column = "garbled credentials"
	unknown   column = "a token that nobody knows"
	expired   column = "expired credentials"
	another   column = "another user"
	posing    column = "another user by the owner's name"
	stranger  column = "a third user's token of the file"
	elsewhere column = "the wrong service"
	nowhere   column = "a service that does not exist"
	lost      column = "no credentials for a service that does not exist"
	roleless  column = "a right user whom the policy does not know"
	right     column = "right"
)

var columns = []column{nobody, byName, garbled, unknown, expired, another, posing, stranger, elsewhere, nowhere, lost, roleless, right}

// cell is what a column must answer.
type cell struct {
	status int
	code   string
	// open: an answer that lets somebody else in may show what the owner has.
	open bool
}

func (c cell) refused() bool { return c.status >= 400 }

func no(status int, code string) cell { return cell{status: status, code: code} }
func shows(status int) cell           { return cell{status: status, open: true} }
func hides(status int) cell           { return cell{status: status} }

// kind is what the columns of an operation answer, unless its row says otherwise.
type kind map[column]cell

// with is the kind but for some columns.
func (k kind) with(more kind) kind {
	out := maps.Clone(k)
	maps.Copy(out, more)
	return out
}

// users is the same for everybody else's credentials.
func users(c cell) kind { return kind{another: c, posing: c, stranger: c} }

// everybody is the same whoever asks.
func everybody(c cell) kind {
	return users(c).with(kind{nobody: c, byName: c, garbled: c, unknown: c, expired: c, elsewhere: c, roleless: c, nowhere: no(404, "SERVICE_NOT_FOUND"), lost: no(401, "UNAUTHORIZED")})
}

var (
	// guarded is what every operation answers those who show no credentials that
	// count.
	guarded = kind{nobody: no(401, "UNAUTHORIZED"), lost: no(401, "UNAUTHORIZED"), byName: no(401, "UNAUTHORIZED"), garbled: no(401, "UNAUTHENTICATED"), unknown: no(401, "UNAUTHENTICATED"),
		expired: no(401, "UNAUTHENTICATED"), nowhere: no(404, "SERVICE_NOT_FOUND"), roleless: no(403, "FORBIDDEN")}
	// An operation on one thing.
	ofEntity       = guarded.with(users(no(401, "UNAUTHORIZED"))).with(kind{elsewhere: no(404, "UNKNOWN_ENTITY_TYPE")})
	ofType         = guarded.with(users(no(401, "UNAUTHORIZED"))).with(kind{elsewhere: no(404, "NOT_FOUND")})
	ofRunner       = guarded.with(users(no(403, "RUNNER_FORBIDDEN"))).with(kind{elsewhere: no(404, "NOT_FOUND")})
	ofWake         = guarded.with(users(no(401, "UNAUTHORIZED"))).with(kind{elsewhere: no(404, "WAKE_CALLBACK_NOT_FOUND")})
	ofSubscription = guarded.with(users(no(401, "UNAUTHORIZED"))).with(kind{elsewhere: no(404, "SUBSCRIPTION_NOT_FOUND")})
	// guardedStream is a stream that belongs to an entity, plainStream one that
	// belongs to nobody: whoever has credentials may use it.
	guardedStream = guarded.with(users(no(401, "UNAUTHORIZED"))).with(kind{elsewhere: no(404, "STREAM_NOT_FOUND")})
	plainStream   = guarded.with(users(shows(200))).with(kind{elsewhere: no(404, "STREAM_NOT_FOUND")})
	reservedPath  = everybody(no(403, "PATH_RESERVED"))
	// ofEverybody is what each may do, and sees the own things of.
	ofEverybody = guarded.with(users(hides(200))).with(kind{elsewhere: hides(200)})
	// ofSystem is for system principals only, and about no service's things. A name
	// beside their credentials counts, and is a user's.
	ofSystem = guarded.with(users(no(403, "FORBIDDEN"))).with(kind{elsewhere: shows(200)})
	// public asks nobody who he is.
	public = everybody(shows(200)).with(kind{nowhere: shows(200), lost: shows(200)})
	// byToken is an operation for whoever shows the token of a lease. Expired is
	// one whose claim is over, another's is a good one of something else.
	byToken = kind{nobody: no(401, "UNAUTHORIZED"), lost: no(401, "UNAUTHORIZED"), garbled: no(401, "CLAIM_TOKEN_INVALID"), unknown: no(401, "CLAIM_TOKEN_INVALID"), expired: no(409, "EPOCH_STALE"),
		another: no(401, "CLAIM_TOKEN_INVALID"), elsewhere: no(401, "CLAIM_TOKEN_INVALID"), nowhere: no(404, "SERVICE_NOT_FOUND")}
	byTurn = kind{nobody: no(401, "TOKEN_INVALID"), lost: no(401, "UNAUTHORIZED"), garbled: no(401, "TOKEN_INVALID"), unknown: no(401, "TOKEN_INVALID"), expired: no(409, "FENCED"),
		another: no(401, "TOKEN_INVALID"), elsewhere: no(404, "SUBSCRIPTION_NOT_FOUND"), nowhere: no(404, "SERVICE_NOT_FOUND")}
	byWriteToken = kind{nobody: no(401, "UNAUTHORIZED"), lost: no(401, "UNAUTHORIZED"), garbled: no(401, "UNAUTHORIZED"), unknown: no(401, "UNAUTHORIZED"), expired: no(401, "UNAUTHORIZED"),
		another: no(401, "UNAUTHORIZED"), elsewhere: no(404, "STREAM_NOT_FOUND"), nowhere: no(404, "SERVICE_NOT_FOUND")}
)

// row is how an operation is asked for and what its columns answer.
type row struct {
	operation string
	name      string // tells the rows of one operation apart
	kind      kind
	right     cell
	// prepare makes what the operation is about, and says how to ask for it.
	prepare func(*world) ask
}

// ask is a request but for its credentials. In path parameters, the query and
// the body, {column} stands for a word that is another one for each column.
type ask struct {
	path   map[string]string
	query  string
	body   string
	header []string
	// tokens, if the operation is about them, take the place of users' credentials.
	tokens *tokens
	// system: right are the credentials of a system principal.
	system bool
}

// tokens are those of one lease: the good one, one that is over, and another
// user's own.
type tokens struct{ good, over, another string }

// Each operation that the gateway describes, with every kind of credentials:
// what is refused has no effect and tells nothing.
func TestAuthorisationMatrix(t *testing.T) {
	t.Parallel()
	for _, policy := range []bool{false, true} {
		t.Run(map[bool]string{false: "built-in rules", true: "a policy that refuses by default"}[policy], func(t *testing.T) {
			t.Parallel()
			matrix(t, policy)
		})
	}
}

func matrix(t *testing.T, policy bool) {
	issuer := signin.New(t)
	file, known := tokenFile(t, "user:moe", "system:framework")
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.TokensFile, c.TypeSpawn = false, file, "registrar"
		c.LeaseTTL, c.OutstandingAfter, c.LongPollTimeout, c.SSEMaxAge = 5*time.Minute, 5*time.Minute, 100*time.Millisecond, time.Second
		c.Auth.Hooks = []config.AuthHook{issuer.Hook()}
		if policy {
			c.Auth.Authorizers, c.Auth.DenyByDefault = signin.PolicyFile(t, signin.Policy), true
		}
	}})
	w := &world{T: t, url: gw.URL, client: plain(t), policy: policy,
		kyle: issuer.Token(t, "kyle", time.Hour, "role", "author"), mallory: issuer.Token(t, "mallory", time.Hour, "role", "author"),
		roleless: issuer.Token(t, "kyle", time.Hour), expired: issuer.Token(t, "kyle", -time.Minute, "role", "author"),
		stranger: known["user:moe"], system: known["system:framework"]}
	pool := gw.DB.Pool(t)

	operations := described(t, w)
	rows := operationRows()
	for _, r := range rows {
		if _, ok := operations[r.operation]; !ok {
			t.Errorf("the row %s is of no operation", r.operation)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(operations)) {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.operation == id }) {
			t.Errorf("the operation %s has no row", id)
		}
	}
	w.found()
	asks := make([]ask, len(rows))
	for i, r := range rows {
		asks[i] = r.prepare(w)
	}
	if t.Failed() {
		return
	}
	quiet(t, pool)

	each := func(phase string, f func(t *testing.T, r row, a ask, op operation)) {
		for i, r := range rows {
			name := r.operation
			if r.name != "" {
				name += " of " + r.name
			}
			if op, ok := operations[r.operation]; ok {
				t.Run(name+"/"+phase, func(t *testing.T) { f(t, r, asks[i], op) })
			}
		}
	}
	cells := func(r row, a ask, of func(column, cell) bool, f func(column, cell)) {
		for _, c := range columns {
			want, ok := r.kind[c]
			switch {
			case c == right:
				want, ok = r.right, true
			case c == roleless && !policy:
				ok = false
			case c == stranger && ok && policy && r.kind[roleless].code == "FORBIDDEN": // a token of the file says nothing of roles
				want = no(403, "FORBIDDEN")
			}
			if ok && of(c, want) {
				f(c, want)
			}
		}
	}
	before := tables(t, pool, "")
	each("refused", func(t *testing.T, r row, a ask, op operation) {
		cells(r, a, func(_ column, c cell) bool { return c.refused() }, func(c column, want cell) {
			for _, path := range op.mounts() {
				w.check(t, op.method, path, a, c, want)
				if op.method == http.MethodGet && c != right { // HEAD is refused likewise
					w.check(t, http.MethodHead, path, a, c, want)
				}
			}
		})
		after := tables(t, pool, "")
		if changed := differing(before, after); len(changed) > 0 {
			t.Errorf("what was refused changed %v", changed)
		}
		before = after
	})
	each("elsewhere", func(t *testing.T, r row, a ask, op operation) {
		cells(r, a, func(c column, want cell) bool { return c == elsewhere && !want.refused() }, func(c column, want cell) {
			before := tables(t, pool, "default")
			w.check(t, op.method, op.path, a, c, want)
			if changed := differing(before, tables(t, pool, "default")); len(changed) > 0 {
				t.Errorf("what was done in another service changed %v of this one", changed)
			}
		})
	})
	each("let in", func(t *testing.T, r row, a ask, op operation) {
		cells(r, a, func(c column, want cell) bool { return c != elsewhere && c != right && !want.refused() }, func(c column, want cell) {
			w.check(t, op.method, op.path, a, c, want)
		})
	})
	each("right", func(t *testing.T, r row, a ask, op operation) {
		cells(r, a, func(c column, want cell) bool { return c == right && !want.refused() }, func(c column, want cell) {
			w.check(t, op.method, op.path, a, c, want)
		})
	})
	t.Run("what is not described", func(t *testing.T) {
		for _, path := range []string{"/livez", "/readyz", "/metrics", "/openapi.json", "/openapi-3.0.json"} {
			if a := must(t, 200, w.client, "GET", w.url+path, ""); strings.Contains(a.body, owners) || strings.Contains(a.body, hidden) {
				t.Errorf("%s shows what is somebody's", path)
			}
		}
		for _, path := range []string{"/x", "/_x", "/_electric", "/_electric/x", "/_electric/shared-state", "/_electric/shared-state/x", "/__ds", "/__ds/x", "/v1", "/v1/stream", "/v1/stream/x", "/api/x",
			"/.well-known/x", "/debug/pprof/", "/runners", "/worker-pools/x", "/principal/x", "/_cron/x", "/_entities/x", "/_electric%2Fentities", "/_electric/entities/", "//", "/_electric//entities"} {
			for _, method := range []string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "QUERY"} {
				if a := do(t, w.client, method, w.url+path, ""); a.status < 400 || a.status >= 500 || a.header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("%s %s without credentials: %d %s", method, path, a.status, a.body)
				}
			}
		}
	})
}

// operation is one of the description.
type operation struct{ method, path string }

// mounts are the paths at which it answers.
func (o operation) mounts() []string {
	if rest, ok := strings.CutPrefix(o.path, "/v1/stream"); ok {
		return []string{o.path, rest}
	}
	if strings.HasPrefix(o.path, "/__ds/subscriptions") {
		return []string{o.path, "/v1/stream" + o.path}
	}
	return []string{o.path}
}

// described reads the operations that the gateway says it has, by their ids.
func described(t *testing.T, w *world) map[string]operation {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	raw := must(t, 200, w.client, "GET", w.url+"/openapi.json", "")
	if err := json.Unmarshal([]byte(raw.body), &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]operation{}
	for path, methods := range doc.Paths {
		for method, raw := range methods {
			var op struct{ OperationID string }
			if err := json.Unmarshal(raw, &op); err != nil || op.OperationID == "" {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			out[op.OperationID] = operation{strings.ToUpper(method), path}
		}
	}
	if len(out) < 70 {
		t.Fatalf("%d operations are described", len(out))
	}
	return out
}

// credentials are the headers of a column, and the secrets in them.
func (w *world) credentials(a ask, c column) (header, secrets []string) {
	if a.tokens != nil {
		shown := map[column]string{garbled: flipped(a.tokens.good), unknown: "rouse_ct_" + strings.Repeat("A", 60), expired: a.tokens.over, another: a.tokens.another,
			elsewhere: a.tokens.good, nowhere: a.tokens.good, right: a.tokens.good}[c]
		if shown == "" {
			return nil, nil
		}
		header, secrets = []string{"Electric-Claim-Token", shown}, []string{shown}
		if c == another {
			header, secrets = append(header, bearer(w.mallory)...), append(secrets, w.mallory)
		}
		return header, secrets
	}
	owner := w.kyle
	if a.system {
		owner = w.system
	}
	shown := map[column]string{garbled: flipped(w.kyle), unknown: "rouse_pat_" + strings.Repeat("A", 43), expired: w.expired, another: w.mallory, posing: w.mallory,
		stranger: w.stranger, elsewhere: owner, nowhere: owner, roleless: w.roleless, right: owner}[c]
	if shown != "" {
		header, secrets = bearer(shown), []string{shown}
	}
	if c == byName || c == posing {
		header = append(header, "Electric-Principal", "user:kyle")
	}
	return header, secrets
}

// flipped is a token with one character changed, far from the end, whose last
// bits may count for nothing.
func flipped(token string) string {
	at := len(token) - 10
	with := byte('A')
	if token[at] == with {
		with = 'B'
	}
	return token[:at] + string(with) + token[at+1:]
}

// wording puts a column's own word into a request.
func wording(c column) *strings.Replacer {
	return strings.NewReplacer("{column}", strings.NewReplacer(" ", "-", "'", "").Replace(string(c)))
}

// check makes a column's request and compares what it answers.
func (w *world) check(t *testing.T, method, template string, a ask, c column, want cell) {
	t.Helper()
	word := wording(c)
	path := template
	for name, v := range a.path {
		segs := strings.Split(word.Replace(v), "/")
		for i, s := range segs {
			segs[i] = url.PathEscape(s)
		}
		path = strings.ReplaceAll(path, "{"+name+"}", strings.Join(segs, "/"))
	}
	if strings.Contains(path, "{") {
		t.Fatalf("the row does not fill %s", path)
	}
	query, err := url.ParseQuery(word.Replace(a.query))
	if err != nil {
		t.Fatal(err)
	}
	switch c {
	case elsewhere:
		query.Set("service", "elsewhere")
	case nowhere, lost:
		query.Set("service", "nowhere")
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	header, secrets := w.credentials(a, c)
	got := do(t, w.client, method, w.url+path, word.Replace(a.body), append(slices.Clone(a.header), header...)...)
	if got.status != want.status || method != http.MethodHead && want.refused() && got.code() != want.code {
		t.Errorf("%s: %s %s: %d %s, want %d %s", c, method, path, got.status, got.body[:min(len(got.body), 400)], want.status, want.code)
		return
	}
	if c == right && !want.refused() {
		return
	}
	if !want.refused() {
		if !want.open && strings.Contains(got.body, owners) {
			t.Errorf("%s: %s %s shows what is the owner's: %s", c, method, path, got.body)
		}
		return
	}
	all := got.body
	for k, vs := range got.header {
		all += "\n" + k + ": " + strings.Join(vs, ", ")
	}
	for _, s := range append(secrets, "rouse_ct_", "rouse_wt_", "rouse_pat_", hidden) {
		if strings.Contains(all, s) {
			t.Errorf("%s: %s %s tells a secret: %s", c, method, path, all)
		}
	}
	if got.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: %s %s: a refusal of type %q", c, method, path, got.header.Get("Content-Type"))
	}
	if method == http.MethodHead {
		return
	}
	var p struct {
		Status int
		Code   string
		Error  struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || p.Status != got.status || p.Error.Code != p.Code || p.Code == "" || p.Error.Message == "" {
		t.Errorf("%s: %s %s: not the envelope of a refusal: %s", c, method, path, got.body)
	}
}

// tables is a mark of each table's rows; of one service's rows only if one is
// named, of tables that know of services.
func tables(t *testing.T, pool *pgxpool.Pool, service string) map[string]string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `select c.relname, exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'service_id')
		from pg_class c where c.relnamespace = 'rouse'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for rows.Next() {
		var name string
		var scoped bool
		if err := rows.Scan(&name, &scoped); err != nil {
			t.Fatal(err)
		}
		where := ""
		switch {
		case service == "":
		case scoped:
			where = ` where service_id = 1`
		case name == "messages" || name == "producers" || name == "consumer_streams":
			where = ` where stream_id in (select s.id from rouse.streams s where s.service_id = 1)`
		default:
			continue
		}
		parts = append(parts, `select '`+name+`', md5(coalesce(string_agg(x::text, e'\n' order by x::text), '')) from (select * from rouse.`+name+where+`) x`)
	}
	if err := rows.Err(); err != nil || len(parts) < 20 {
		t.Fatalf("%d tables, %v", len(parts), err)
	}
	marks, err := pool.Query(t.Context(), strings.Join(parts, " union all "))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for marks.Next() {
		var name, mark string
		if err := marks.Scan(&name, &mark); err != nil {
			t.Fatal(err)
		}
		out[name] = mark
	}
	if err := marks.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func differing(a, b map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] != b[name] {
			names = append(names, name)
		}
	}
	return names
}

// quiet waits until what the preparations led to has been done.
func quiet(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last, same := tables(t, pool, ""), 0
	for deadline := time.Now().Add(bound); same < 12; {
		<-tick.C
		next := tables(t, pool, "")
		if same++; len(differing(last, next)) > 0 {
			same = 0
		}
		if last = next; time.Now().After(deadline) {
			t.Fatal("the tables do not come to rest")
		}
	}
}
