package control

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
)

// APIVersion is the version of the described API, which moves with it and not
// with the binary.
const APIVersion = "0.1.0"

func openAPI() *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:   "Rouse",
			Version: APIVersion,
			Description: "Durable streams and exactly one owner at a time for each entity, on your own Postgres. " +
				"Every refusal is application/problem+json with a stable `code`.",
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Servers: []*huma.Server{{URL: "/"}},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"bearer": {Type: "http", Scheme: "bearer", Description: "A user's token. In `rouse dev` none is needed; the header electric-principal says who acts."},
			},
		},
		Security: []map[string][]string{{"bearer": {}}, {}},
		Tags: []*huma.Tag{
			{Name: "entities", Description: "Addressable things with a stream and one owner at a time."},
			{Name: "entity types", Description: "What an entity is, without how it is delivered."},
			{Name: "runners", Description: "Machines that claim and do entities' work."},
			{Name: "claims", Description: "The mutex: acquire, heartbeat, ack, release."},
			{Name: "streams", Description: "The Durable Streams protocol. Streams live at the root and, for clients, under /v1/stream."},
			{Name: "server", Description: "The server itself."},
		},
	}
}

// named registers t's schema under a fixed name and returns a reference to it.
func named(r huma.Registry, t reflect.Type, name string) *huma.Schema {
	if _, ok := r.Map()[name]; !ok {
		r.Map()[name] = &huma.Schema{} // stops a recursion while it is made
		s := huma.SchemaFromType(r, t)
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// describeJSON tells generators of Go clients to keep members that take any
// JSON as they came: numbers too large for a float among them.
func describeJSON(r huma.Registry) {
	for _, s := range r.Map() {
		markJSON(s)
	}
}

func markJSON(s *huma.Schema) {
	if s == nil {
		return
	}
	for _, p := range s.Properties {
		markJSON(p)
	}
	markJSON(s.Items)
	if extra, ok := s.AdditionalProperties.(*huma.Schema); ok {
		markJSON(extra)
	}
	if s.Type == "" && s.Ref == "" && s.Properties == nil && len(s.OneOf)+len(s.AnyOf)+len(s.AllOf) == 0 {
		s.Extensions = map[string]any{"x-go-type": "json.RawMessage"}
	}
}

// problemDoc is the envelope of every refusal, for the description.
type problemDoc struct {
	_          struct{}        `additionalProperties:"true"`
	Type       string          `json:"type" doc:"The address of the code's page."`
	Title      string          `json:"title"`
	Status     int             `json:"status"`
	Detail     string          `json:"detail,omitempty" doc:"What happened and what to do."`
	Instance   string          `json:"instance,omitempty" doc:"The request's id."`
	Code       string          `json:"code" doc:"Stable. Match on it."`
	Retryable  bool            `json:"retryable" doc:"Whether the same request can succeed later."`
	RetryAfter int64           `json:"retry_after_ms,omitempty"`
	Errors     []problemDetail `json:"errors,omitempty"`
	Error      problemError    `json:"error" doc:"The same for clients of the Electric Agents wire."`
}

type problemDetail struct {
	Path    string `json:"path" doc:"A JSON pointer into the body, or header.NAME, query.NAME."`
	Message string `json:"message"`
}

type problemError struct {
	_       struct{}        `additionalProperties:"true"`
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Details []problemDetail `json:"details,omitempty"`
}

func problemSchema(r huma.Registry) *huma.Schema {
	return named(r, reflect.TypeFor[problemDoc](), "Problem")
}

// describeErrors lists an operation's codes: the statuses as responses, the
// codes in the extension x-codes.
func describeErrors(op *huma.Operation, codes []problem.Code) {
	seen := map[int][]string{}
	for _, code := range append(codes, problem.InvalidRequest, problem.InvalidPath) {
		st := code.Info().Status
		if !slices.Contains(seen[st], string(code)) {
			seen[st] = append(seen[st], string(code))
		}
	}
	if op.Extensions == nil {
		op.Extensions = map[string]any{}
	}
	byStatus := map[string][]string{}
	for st, list := range seen {
		slices.Sort(list)
		byStatus[strconv.Itoa(st)] = list
	}
	op.Extensions["x-codes"] = byStatus
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{
		Description: "A refusal or failure.",
		Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}},
		},
	}
}

// apiDocs are the rendered descriptions, made when first asked for.
type apiDocs struct {
	once     sync.Once
	v31, v30 []byte
	err      error
}

// Description renders the API as OpenAPI 3.1 and 3.0, in JSON.
func (c *Control) Description() (v31, v30 []byte, err error) {
	c.docs.once.Do(func() {
		if c.docs.v31, c.docs.err = json.Marshal(c.api.OpenAPI()); c.docs.err == nil {
			c.docs.v30, c.docs.err = c.api.OpenAPI().Downgrade()
		}
	})
	return c.docs.v31, c.docs.v30, c.docs.err
}

// DescriptionYAML renders the API as OpenAPI 3.1 and 3.0, in YAML.
func (c *Control) DescriptionYAML() (v31, v30 []byte, err error) {
	if v31, err = c.api.OpenAPI().YAML(); err != nil {
		return nil, nil, err
	}
	v30, err = c.api.OpenAPI().DowngradeYAML()
	return v31, v30, err
}

func (c *Control) serveDocs(w http.ResponseWriter, r *http.Request, name string) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return problem.New(problem.MethodNotAllowed, "Only GET and HEAD are answered here.").WithHeader("Allow", "GET, HEAD, OPTIONS")
	}
	v31, v30, err := c.Description()
	if err != nil {
		return err
	}
	body := v31
	if strings.Contains(name, "3.0") {
		body = v30
	}
	w.Header().Set("Content-Type", "application/vnd.oai.openapi+json")
	w.Header().Set("Cache-Control", "public, max-age=60")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // a client that went away needs no answer
	return nil
}
