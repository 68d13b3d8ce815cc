package control

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// describeShapes documents the Shape endpoint, whose handler is not huma's.
func (c *Control) describeShapes() {
	query := func(name, doc string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	table := query("table", "entities, entity_types, runners, runner_runtime_diagnostics, worker_pools, worker_pool_members, users, entity_effective_permissions, entity_dispatch_state, wake_notifications or consumer_claims.")
	table.Required = true
	shape := []*huma.Param{table, query("service", "The service; default is \"default\"."),
		query("where", "Which rows, as SQL has it: comparisons, IN, LIKE, BETWEEN, IS NULL, AND, OR, NOT on columns, literals and $1 …"),
		query("params", "The values of $1 …, a JSON object by number or an array; params[1]=… is taken too."),
		query("columns", "Names, separated by commas; all without it."),
		query("replica", "full: whole rows with each change."),
		query("log", "changes_only: no first rows.")}
	header := func(doc string) *huma.Param {
		return &huma.Param{Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	anything := func() *huma.MediaType { return &huma.MediaType{Schema: &huma.Schema{}} }
	answers := func() map[string]*huma.Response {
		return map[string]*huma.Response{
			"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{"application/json": anything()},
				Headers: map[string]*huma.Param{"Electric-Handle": header("Names the shape in the next request."), "Electric-Offset": header("Where the next request goes on."),
					"Electric-Schema": header("The columns' types, as JSON."), "Electric-Cursor": header("Goes into the next live request."), "Electric-Up-To-Date": header("Present: this is all there is now.")}},
			"409":     {Description: "Fetch the shape anew, from offset -1: the body's only message says must-refetch."},
			"default": {Description: "A refusal or failure.", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}},
		}
	}
	read, part := answers(), answers()
	read["200"].Content["text/event-stream"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	read["304"] = &huma.Response{Description: http.StatusText(http.StatusNotModified)}
	const path = "/_electric/electric/v1/shape"
	api := c.api.OpenAPI()
	api.AddOperation(&huma.Operation{OperationID: "readShape", Method: http.MethodGet, Path: path, Tags: []string{"sync"}, Summary: "A table's rows that the caller may see, and every change of them",
		Parameters: append(shape, query("offset", "-1: the rows as they are; now: none of them; else from Electric-Offset."), query("handle", "From Electric-Handle."),
			query("live", "true: wait for a change."), query("live_sse", "true: send changes as events."), query("cursor", "From Electric-Cursor.")),
		Responses: read})
	api.AddOperation(&huma.Operation{OperationID: "readShapeSubset", Method: http.MethodPost, Path: path, Tags: []string{"sync"}, Summary: "Some of a shape's rows, and the snapshot that they are from",
		Description: "The body may hold where, params, order_by, limit and offset. GET with subset__where and so on does the same.",
		Parameters:  shape, RequestBody: &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": anything()}}, Responses: part})
}
