package shapes

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// served is what may be synced: table and columns, by agents-wire §11.
var served = map[string]string{
	"entities":                     "tenant_id,url,type,status,dispatch_policy,tags,spawn_args,sandbox,parent,created_by,type_revision,inbox_schemas,state_schemas,created_at,updated_at",
	"entity_types":                 "tenant_id,name,description,creation_schema,inbox_schemas,state_schemas,slash_commands,serve_endpoint,default_dispatch_policy,revision,created_at,updated_at",
	"runners":                      "tenant_id,id,owner_principal,label,kind,admin_status,wake_stream,sandbox_profiles,created_at,updated_at",
	"runner_runtime_diagnostics":   "tenant_id,runner_id,owner_principal,wake_stream_offset,last_seen_at,liveness_lease_expires_at,diagnostics,updated_at",
	"users":                        "tenant_id,id,display_name,email,avatar_url,created_at,updated_at",
	"entity_effective_permissions": "tenant_id,id,entity_url,source_entity_url,source_grant_id,permission,subject_kind,subject_value,expires_at,created_at",
	"entity_dispatch_state": "tenant_id,entity_url,pending_source_streams,pending_reason,pending_since,outstanding_wake_id,outstanding_wake_target,outstanding_wake_created_at," +
		"active_consumer_id,active_runner_id,active_epoch,active_claimed_at,active_lease_expires_at,last_wake_id,last_claimed_at,last_released_at,last_completed_at,last_error,updated_at",
	"wake_notifications": "tenant_id,wake_id,entity_url,target_type,target_runner_id,target_webhook_url,target,runner_wake_stream,runner_wake_stream_offset,notification_public," +
		"delivery_status,claim_status,created_at,delivered_at,claimed_at,resolved_at,target_pool_id,target_index,attempt",
	"consumer_claims":     "tenant_id,consumer_id,epoch,wake_id,entity_url,stream_path,runner_id,status,claimed_at,last_heartbeat_at,lease_expires_at,released_at,acked_streams,updated_at,pool_id",
	"worker_pools":        "tenant_id,id,owner_principal,name,admin_status,wake_stream,max_concurrent_claims_per_runner,max_total_claims,created_at,updated_at",
	"worker_pool_members": "tenant_id,pool_id,runner_id,owner_principal,status,added_by,created_at,updated_at",
}

func tablesAndColumns(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	c := as(t, "", in.URL)
	for table, want := range served {
		a := c.must(200, "GET", endpoint+"?offset=-1&table="+table, "")
		var schema map[string]struct {
			Type string
			PK   *int `json:"pk_index"`
		}
		if err := json.Unmarshal([]byte(a.header.Get("Electric-Schema")), &schema); err != nil {
			t.Fatal(err)
		}
		var got, names []string
		keys := 0
		for name, s := range schema {
			got = append(got, name)
			if s.PK != nil {
				keys++
			}
			if s.Type == "" {
				t.Errorf("%s.%s has no type", table, name)
			}
		}
		names = strings.Split(want, ",")
		slices.Sort(got)
		slices.Sort(names)
		if !slices.Equal(got, names) || keys < 2 {
			t.Errorf("%s: %v, want %v; %d keys", table, got, names, keys)
		}
	}
	// Columns that a table does not have, or has and does not serve, are passed
	// over: a client of another version asks for what has moved.
	for columns, want := range map[string]string{
		"id,label,last_seen_at": `{"id":"r","label":"R"}`, `"id", "service_id","last_seen_at","kind"`: `{"id":"r","kind":"local"}`,
	} {
		c.must(201, "POST", "/_electric/runners", `{"id":"r","label":"R"}`)
		if a := c.must(200, "GET", endpoint+"?offset=-1&table=runners&columns="+url.QueryEscape(columns), ""); !strings.Contains(a.body, `"value":`+want) {
			t.Errorf("%s: %s", columns, a.body)
		}
	}
	// A database of the gateway has more tables; none of them is for shapes.
	rows, err := in.DB.Conn(t).Query(t.Context(), `select table_name from information_schema.tables where table_schema = 'rouse'`)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	if rows.Err() != nil || len(all) < 15 {
		t.Fatal(rows.Err(), all)
	}
	for _, name := range append(all, "rouse.entities", `"entities"`, "entities t", "entities;", "pg_catalog.pg_class", "pg_authid", "Entities", "entities,users") {
		if served[name] == "" {
			if a := c.do("GET", endpoint+"?offset=-1&table="+url.QueryEscape(name), ""); a.status != 403 || a.code() != "TABLE_NOT_ALLOWED" {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
	}
}

// Trap 11: what goes beyond the caller's rows and columns is refused, and says
// nothing of what it held.
func refusals(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	c := as(t, "user:kyle", in.URL)
	c.chat("1")
	one := c.shape("entities")
	one.step(false)
	if a := c.do("GET", endpoint+"?offset=-1&table=entity", ""); !strings.Contains(a.body, "consumer_claims, entities, entity_dispatch_state") || strings.Contains(a.body, "entity_type_grants") {
		t.Errorf("which tables there are: %s", a.body)
	}
	for _, q := range []struct {
		name, query string
		status      int
		code        string
	}{
		{"no table", "offset=-1", 403, "TABLE_NOT_ALLOWED"},
		{"two tables", "table=entities&table=streams&offset=-1", 403, "TABLE_NOT_ALLOWED"},
		{"parentheses", "table=entities&where=" + url.QueryEscape("true) or (true"), 400, "INVALID_WHERE"},
		{"a comment", "table=entities&where=" + url.QueryEscape("true -- secretvalue"), 400, "INVALID_WHERE"},
		{"a quote", "table=entities&where=" + url.QueryEscape("url = 'secretvalue"), 400, "INVALID_WHERE"},
		{"a subquery", "table=entities&where=" + url.QueryEscape("url in (select path from rouse.streams)"), 400, "INVALID_WHERE"},
		{"a function", "table=entities&where=" + url.QueryEscape("pg_sleep(10) is null"), 400, "INVALID_WHERE"},
		{"a hidden column", "table=users&where=" + url.QueryEscape("auth_subject = 'secretvalue'"), 400, "INVALID_WHERE"},
		{"a value of another type", "table=runners&where=" + url.QueryEscape("created_at > 'secretvalue'"), 400, "INVALID_WHERE"},
		{"no parameter", "table=entities&where=" + url.QueryEscape("url = $1"), 400, "INVALID_WHERE"},
		{"a subset's clause", "table=entities&subset__where=" + url.QueryEscape("true) or (true"), 400, "INVALID_WHERE"},
		{"a subset's order", "table=entities&subset__order_by=" + url.QueryEscape("url; drop table x"), 400, "INVALID_REQUEST"},
		{"a subset's order by expression", "table=entities&subset__order_by=" + url.QueryEscape("(select 1)"), 400, "INVALID_REQUEST"},
		{"a subset's limit", "table=entities&subset__limit=-1", 400, "INVALID_REQUEST"},
		{"a hidden column wanted", "table=users&columns=auth_subject", 400, "INVALID_REQUEST"},
		{"no column of the table", "table=runners&columns=last_seen_at,diagnostics", 400, "INVALID_REQUEST"},
		{"a column with a wide letter", "table=users&columns=" + url.QueryEscape("id,ü"), 400, "INVALID_REQUEST"},
		{"a name left out", "table=users&columns=id,,email", 400, "INVALID_REQUEST"},
		{"a column by trick", "table=users&columns=" + url.QueryEscape(`id,"a"",b"`), 400, "INVALID_REQUEST"},
		{"offset", "table=entities&offset=yesterday&handle=x", 400, "INVALID_REQUEST"},
		{"no handle", "table=entities&offset=0_0", 400, "INVALID_REQUEST"},
		{"live without an offset", "table=entities&offset=-1&live=true", 400, "INVALID_REQUEST"},
		{"replica", "table=entities&replica=none", 400, "INVALID_REQUEST"},
		{"log", "table=entities&log=none", 400, "INVALID_REQUEST"},
		{"params", "table=entities&params=secretvalue", 400, "INVALID_REQUEST"},
		{"params numbered from zero", "table=entities&" + url.QueryEscape("params[0]") + "=1", 400, "INVALID_REQUEST"},
		{"twice", "table=entities&offset=-1&offset=-1", 400, "INVALID_REQUEST"},
		{"a service that is not there", "table=entities&service=none", 404, "SERVICE_NOT_FOUND"},
		{"an escape that is none", "table=entities&where=%zz", 400, "INVALID_REQUEST"},
		{"a long clause", "table=entities&where=" + strings.Repeat("x", 20_000), 400, "INVALID_WHERE"},
	} {
		a := c.do("GET", endpoint+"?"+q.query, "")
		if a.status != q.status || a.code() != q.code {
			t.Errorf("%s: %d %s", q.name, a.status, a.body)
		}
		if strings.Contains(a.body, "secretvalue") || a.header.Get("Electric-Handle") != "" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v %s", q.name, a.header, a.body)
		}
	}
	// Handles of other shapes, of nobody, and offsets of another log.
	for name, q := range map[string]url.Values{
		"another table": {"table": {"runners"}, "handle": {one.handle}, "offset": {one.offset}},
		"other rows":    {"table": {"entities"}, "where": {"url = '/chat/1'"}, "handle": {one.handle}, "offset": {one.offset}},
		"other columns": {"table": {"entities"}, "columns": {"url"}, "handle": {one.handle}, "offset": {one.offset}},
		"made up":       {"table": {"entities"}, "handle": {"x"}, "offset": {one.offset}},
		"the past":      {"table": {"entities"}, "handle": {one.handle}, "offset": {"1_0"}},
	} {
		if a := c.do("GET", endpoint+"?"+q.Encode(), ""); a.status != 409 || !strings.Contains(a.body, "must-refetch") || a.header.Get("Electric-Handle") == "" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	// Somebody else cannot go on with a handle.
	if a := as(t, "user:mallory", in.URL).do("GET", one.path(false), ""); a.status != 409 || strings.Contains(a.body, "/chat/1") {
		t.Errorf("somebody else's handle: %d %s", a.status, a.body)
	}
	for _, method := range []string{"DELETE", "PUT", "PATCH"} {
		if a := c.do(method, endpoint+"?table=entities", ""); a.status != 405 || a.code() != "METHOD_NOT_ALLOWED" || !strings.Contains(a.header.Get("Allow"), "GET") {
			t.Errorf("%s: %d %v", method, a.status, a.header)
		}
	}
	a := c.must(200, "HEAD", endpoint+"?table=entities&offset=-1", "")
	if a.body != "" || a.header.Get("Electric-Handle") == "" || a.header.Get("Electric-Schema") == "" {
		t.Errorf("HEAD: %v", a.header)
	}
	a = c.must(204, "OPTIONS", endpoint, "", "Origin", "https://app.example", "Access-Control-Request-Method", "GET")
	if a.header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "electric-handle") {
		t.Errorf("a preflight: %v", a.header)
	}
	if a := c.do("POST", endpoint+"?table=entities", "["); a.status != 400 || a.code() != "INVALID_REQUEST" {
		t.Errorf("a body that is none: %d %s", a.status, a.body)
	}
	if a := c.do("POST", endpoint+"?table=entities", `{"where":"`+strings.Repeat("x", 70_000)+`"}`); a.status != 413 {
		t.Errorf("a long body: %d %s", a.status, a.body)
	}
	if a := c.do("GET", endpoint+"?table=entities&where="+strings.Repeat("x", 70_000), ""); a.status != 414 && a.status != 431 {
		t.Errorf("a long query: %d %s", a.status, a.body)
	}
	if a := as(t, "nonsense", in.URL).do("GET", endpoint+"?table=entities", ""); a.status != 400 || a.code() != "INVALID_PRINCIPAL" {
		t.Errorf("a malformed principal: %d %s", a.status, a.body)
	}
}

// A gateway as `serve` runs it: everybody shows a token, and sees their own.
func underServe(t *testing.T, fresh func() *pgtest.DB) {
	file := filepath.Join(t.TempDir(), "tokens.json")
	kyle, mallory := devtoken.NewToken(), devtoken.NewToken()
	for who, token := range map[string]string{"user:kyle": kyle, "user:mallory": mallory} {
		if err := devtoken.Add(file, devtoken.Entry{Principal: who, SHA256: devtoken.Hash(token)}); err != nil {
			t.Fatal(err)
		}
	}
	in := gateway(t, fresh(), func(c *config.Config) { c.Insecure, c.TokensFile, c.TypeSpawn = false, file, "registrar" })
	c := as(t, "", in.URL)
	mine := []string{"Authorization", "Bearer " + kyle}
	hers := []string{"Authorization", "Bearer " + mallory}
	c.must(201, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`, mine...)
	c.must(201, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`, mine...)
	c.must(200, "POST", "/_electric/runners/mac/heartbeat", `{}`, mine...)
	c.must(201, "PUT", "/_electric/worker-pools/coding", `{"name":"Coding"}`, mine...)
	c.must(200, "PUT", "/_electric/worker-pools/coding/members/mac", `{}`, mine...)
	c.must(201, "PUT", "/_electric/entities/chat/1", `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]},"initialMessage":"hi"}`, mine...)
	c.must(200, "GET", "/_electric/entities", ``, hers...)
	for deadline := time.Now().Add(bound); !strings.Contains(c.must(200, "GET", endpoint+"?offset=-1&table=wake_notifications", "", mine...).body, `"/chat/1"`); {
		if time.Now().After(deadline) {
			t.Fatal("no wake comes")
		}
	}
	for table := range served {
		path := endpoint + "?offset=-1&table=" + table
		if a := c.do("GET", path, ""); a.status != 401 || a.code() != "UNAUTHORIZED" {
			t.Errorf("%s, nobody: %d %s", table, a.status, a.body)
		}
		if a := c.do("GET", path, "", "Authorization", "Bearer wrong"); a.status != 401 {
			t.Errorf("%s, a wrong token: %d %s", table, a.status, a.body)
		}
		if a := c.do("GET", path, "", append(slices.Clone(hers), "Electric-Principal", "user:kyle")...); a.status == 200 && table != "users" && strings.Contains(a.body, "kyle") {
			t.Errorf("%s, as somebody else: %d %s", table, a.status, a.body)
		}
		want := 1
		switch table {
		case "consumer_claims", "entity_effective_permissions":
			want = 0
		case "users":
			want = 2
		}
		var rows []message
		if err := json.Unmarshal([]byte(c.must(200, "GET", path, "", mine...).body), &rows); err != nil || len(rows) != want+1 {
			t.Errorf("%s: %v, %d rows, want %d", table, err, len(rows)-1, want)
		}
		if table != "users" {
			want = 0
		}
		if err := json.Unmarshal([]byte(c.must(200, "GET", path, "", hers...).body), &rows); err != nil || len(rows) != want+1 {
			t.Errorf("%s, somebody else: %v, %d rows, want %d", table, err, len(rows)-1, want)
		}
	}
}
