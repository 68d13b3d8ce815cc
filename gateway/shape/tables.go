package shape

import (
	"slices"
	"strings"

	"github.com/rouse-run/rouse/gateway/shape/where"
)

// schema is where the tables are.
const schema = "rouse"

// column of a table as it is served.
type column struct {
	name string
	typ  where.Type
	// pg is the type's name for clients.
	pg string
	// sql is the column in a query over the table t. The tenant's is a parameter.
	sql string
	// millis: an instant that is served as milliseconds since 1970.
	millis bool
	// fixed columns keep their value as long as the row lives.
	fixed bool
	// notNull is told to clients.
	notNull bool
}

// scope is how a caller's rights choose rows; system principals see all of a
// service.
type scope uint8

const (
	// everybody sees all rows.
	everybody scope = iota
	// owners see what names them in the column owner.
	owners
	// readers see what belongs to an entity that they may read; the column url
	// names it.
	readers
	// spawners see the types they may spawn.
	spawners
	// subjects see the grants to them.
	subjects
	// sharers see the worker pools that they own or have a runner in.
	sharers
)

// table is one table that may be synced, or one that decides what may.
type table struct {
	name    string
	columns []column
	// key are the columns of the primary key, in the key's order.
	key []int
	// scope and the column that it looks at.
	scope scope
	by    int
	// creator is the column that names who created the entity, or owns the pool or
	// its member, or -1.
	creator int
	// subject is the column that names whom a row of a table that decides lets see
	// more; elsewhere it is by.
	subject int
	// consumer: rows are those of a mutex, by whose name they are found; an
	// entity's url says which.
	consumer bool
	// number counts the tables.
	number int
	hidden bool
}

const tenant = "tenant_id"

func text(name string) column    { return column{name: name, typ: where.Text, pg: "text"} }
func jsonb(name string) column   { return column{name: name, typ: where.JSON, pg: "jsonb"} }
func instant(name string) column { return column{name: name, typ: where.Time, pg: "timestamptz"} }
func id(name string) column      { return column{name: name, typ: where.UUID, pg: "uuid"} }
func int4col(name string) column { return column{name: name, typ: where.Int, pg: "int4"} }
func int8col(name string) column { return column{name: name, typ: where.Int, pg: "int8"} }

// millis are instants that clients of the ecosystem read as numbers.
func millis(name string) column {
	return column{name: name, typ: where.Int, pg: "int8", sql: "floor(extract(epoch from t." + name + ") * 1000)::bigint", millis: true}
}

// fixed columns do not change; of a key they are not null either.
func fixed(c column) column { c.fixed = true; return c }
func must(c column) column  { c.fixed, c.notNull = true, true; return c }

func define(name string, s scope, by, creator string, key []string, columns ...column) *table {
	t := &table{name: name, scope: s, by: -1, creator: -1}
	t.columns = append([]column{must(text(tenant))}, columns...)
	for i := range t.columns {
		c := &t.columns[i]
		switch {
		case c.name == tenant:
			c.sql = "$2::text"
		case c.sql == "":
			c.sql = "t." + c.name
		}
		if c.name == by {
			t.by = i
		}
		if c.name == creator {
			t.creator = i
		}
	}
	t.subject = t.by
	for _, k := range append([]string{tenant}, key...) {
		t.key = append(t.key, slices.IndexFunc(t.columns, func(c column) bool { return c.name == k }))
	}
	return t
}

// tables by name: agents-wire §11. What is not here is not synced.
//
// The log says what a row was before of those tables only that seldom change. Of
// entities, dispatch states, wakes and claims it would make a wake cycle's log
// 40 % longer (12.2 to 17.2 kB, measured on Postgres 15); see follower.update
// for how they do without.
var tables = func() map[string]*table {
	permissions := define("entity_effective_permissions", subjects, "subject_value", "", []string{"id"},
		must(int8col("id")), must(text("entity_url")), must(text("source_entity_url")), must(int8col("source_grant_id")), must(text("permission")),
		must(text("subject_kind")), must(text("subject_value")), instant("expires_at"), must(instant("created_at")))
	typeGrants := define("entity_type_grants", subjects, "subject_value", "", []string{"id"},
		must(int8col("id")), must(text("permission")), must(text("subject_value")))
	typeGrants.hidden = true
	members := define("worker_pool_members", sharers, "pool_id", "owner_principal", []string{"pool_id", "runner_id"},
		must(text("pool_id")), must(text("runner_id")), must(text("owner_principal")), text("status"), text("added_by"), must(instant("created_at")), instant("updated_at"))
	members.subject = members.creator
	byConsumer := func(t *table) *table { t.consumer = true; return t }
	all := []*table{
		define("entities", readers, "url", "created_by", []string{"url"},
			must(text("url")), must(text("type")), text("status"), jsonb("dispatch_policy"), jsonb("tags"), jsonb("spawn_args"), jsonb("sandbox"),
			fixed(text("parent")), must(text("created_by")), int4col("type_revision"), jsonb("inbox_schemas"), jsonb("state_schemas"),
			must(millis("created_at")), millis("updated_at")),
		define("entity_types", spawners, "name", "", []string{"name"},
			must(text("name")), text("description"), jsonb("creation_schema"), jsonb("inbox_schemas"), jsonb("state_schemas"), jsonb("slash_commands"),
			text("serve_endpoint"), jsonb("default_dispatch_policy"), int4col("revision"), instant("created_at"), instant("updated_at")),
		define("runners", owners, "owner_principal", "", []string{"id"},
			must(text("id")), text("owner_principal"), text("label"), text("kind"), text("admin_status"), text("wake_stream"), jsonb("sandbox_profiles"),
			instant("created_at"), instant("updated_at")),
		define("runner_runtime_diagnostics", owners, "owner_principal", "", []string{"runner_id"},
			must(text("runner_id")), text("owner_principal"), text("wake_stream_offset"), instant("last_seen_at"), instant("liveness_lease_expires_at"),
			jsonb("diagnostics"), instant("updated_at")),
		define("worker_pools", sharers, "id", "owner_principal", []string{"id"},
			must(text("id")), must(text("owner_principal")), text("name"), text("admin_status"), text("wake_stream"),
			int4col("max_concurrent_claims_per_runner"), int4col("max_total_claims"), must(instant("created_at")), instant("updated_at")),
		members,
		define("users", everybody, "", "", []string{"id"},
			must(text("id")), text("display_name"), text("email"), text("avatar_url"), instant("created_at"), instant("updated_at")),
		define("entity_dispatch_state", readers, "entity_url", "", []string{"entity_url"},
			must(text("entity_url")), jsonb("pending_source_streams"), text("pending_reason"), instant("pending_since"),
			id("outstanding_wake_id"), jsonb("outstanding_wake_target"), instant("outstanding_wake_created_at"),
			text("active_consumer_id"), text("active_runner_id"), int8col("active_epoch"), instant("active_claimed_at"), instant("active_lease_expires_at"),
			id("last_wake_id"), instant("last_claimed_at"), instant("last_released_at"), instant("last_completed_at"), text("last_error"), instant("updated_at")),
		byConsumer(define("wake_notifications", readers, "entity_url", "", []string{"wake_id"},
			must(id("wake_id")), fixed(text("entity_url")), text("target_type"), text("target_runner_id"), text("target_webhook_url"), jsonb("target"),
			text("runner_wake_stream"), text("runner_wake_stream_offset"), jsonb("notification_public"), text("delivery_status"), text("claim_status"),
			must(instant("created_at")), instant("delivered_at"), instant("claimed_at"), instant("resolved_at"),
			text("target_pool_id"), int4col("target_index"), int4col("attempt"))),
		byConsumer(define("consumer_claims", readers, "entity_url", "", []string{"consumer_id", "epoch"},
			must(text("consumer_id")), must(int8col("epoch")), id("wake_id"), fixed(text("entity_url")), must(text("stream_path")), text("runner_id"), text("status"),
			instant("claimed_at"), instant("last_heartbeat_at"), instant("lease_expires_at"), instant("released_at"), jsonb("acked_streams"), instant("updated_at"),
			text("pool_id"))),
		permissions, typeGrants,
	}
	out := make(map[string]*table, len(all))
	for i, t := range all {
		t.number = i
		out[t.name] = t
	}
	return out
}()

// tableNames lists the tables that can be asked for.
func tableNames() string {
	var names []string
	for name, t := range tables {
		if !t.hidden {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// The tables whose changes change what others may see.
var (
	entities    = tables["entities"]
	permissions = tables["entity_effective_permissions"]
	typeGrants  = tables["entity_type_grants"]
	workerPools = tables["worker_pools"]
	poolMembers = tables["worker_pool_members"]
	// grantedURL is the column of permissions that names the entity.
	grantedURL = permissions.find("entity_url")
)

// find answers the index of a column, or -1.
func (t *table) find(name string) int {
	return slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
}

// filterColumn is what a clause may name.
func (t *table) filterColumn(name string) (where.Column, bool) {
	i := t.find(name)
	if i < 0 {
		return where.Column{}, false
	}
	return where.Column{Name: name, Type: t.columns[i].typ, Index: i, SQL: t.columns[i].sql}, true
}
