package control

import (
	"maps"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// describeStreams documents the Durable Streams routes, whose handlers are not
// huma's. They are described at /v1/stream/{path}; the same streams answer at
// the root.
func (c *Control) describeStreams() {
	str := func(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: doc} }
	header := func(name, doc string) *huma.Param {
		return &huma.Param{Name: name, In: "header", Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	path := &huma.Param{Name: "path", In: "path", Required: true, Schema: str("The stream's name; it may hold slashes, escaped or not.")}
	service := &huma.Param{Name: "service", In: "query", Description: "The service; default is \"default\".", Schema: &huma.Schema{Type: huma.TypeString}}
	bytesOf := func() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "binary"} }
	raw := func() map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/octet-stream": {Schema: bytesOf()}}
	}
	problems := func(codes ...string) map[string]*huma.Response {
		out := map[string]*huma.Response{"default": {Description: "A refusal or failure.",
			Content: map[string]*huma.MediaType{"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}}}
		for _, code := range codes {
			out[code] = &huma.Response{Description: http.StatusText(atoi(code))}
		}
		return out
	}
	offsets := map[string]*huma.Param{
		"Stream-Next-Offset": {Description: "Where to read on, or where the append ended.", Schema: &huma.Schema{Type: huma.TypeString}},
	}
	withOffset := func(rs map[string]*huma.Response, codes ...string) map[string]*huma.Response {
		for _, code := range codes {
			rs[code].Headers = offsets
		}
		return rs
	}
	token := header("Electric-Claim-Token", "The write token, to append to an entity's stream. Authorization: Bearer is taken too.")
	producer := []*huma.Param{header("Producer-Id", "Idempotent producer."), header("Producer-Epoch", "Its epoch."), header("Producer-Seq", "The sequence in it."),
		header("Stream-Seq", "Refuses an append that does not come behind this in byte order.")}
	tags := []string{"streams"}
	const at = "/v1/stream/{path}"
	ops := []*huma.Operation{
		{OperationID: "createStream", Method: http.MethodPut, Summary: "Create a stream",
			Description: "Its content type is the request's; application/json makes it a stream of messages.",
			Parameters: []*huma.Param{path, service, header("Stream-TTL", "Seconds without a read or write until it expires."), header("Stream-Expires-At", "RFC 3339 time of expiry."),
				header("Stream-Retention", "Limits of what is kept, such as age=7d; bytes=100000000; count=10000."),
				header("Stream-Closed", "true: closed from the start."), header("Stream-Forked-From", "Path of the stream to fork."),
				header("Stream-Fork-Offset", "Where to fork it."), header("Stream-Fork-Sub-Offset", "How many messages behind that offset.")},
			RequestBody: &huma.RequestBody{Content: raw()}, Responses: withOffset(problems("200", "201"), "200", "201")},
		{OperationID: "appendToStream", Method: http.MethodPost, Summary: "Append to a stream, or close it",
			Parameters:  append([]*huma.Param{path, service, header("Stream-Closed", "true: close it, with this append or without a body."), token}, producer...),
			RequestBody: &huma.RequestBody{Content: raw()}, Responses: withOffset(problems("200", "204"), "200", "204")},
		{OperationID: "readStream", Method: http.MethodGet, Summary: "Read a stream, and wait for more",
			Parameters: []*huma.Param{path, service,
				{Name: "offset", In: "query", Description: "From Stream-Next-Offset; -1 is the start of what is kept, now is the tail.", Schema: &huma.Schema{Type: huma.TypeString}},
				{Name: "live", In: "query", Description: "long-poll or sse.", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"long-poll", "sse"}}},
				{Name: "cursor", In: "query", Description: "From Stream-Cursor.", Schema: &huma.Schema{Type: huma.TypeString}},
				header("If-None-Match", "From ETag.")},
			Responses: withOffset(problems("200", "204", "304", "410"), "200", "204")},
		{OperationID: "headStream", Method: http.MethodHead, Summary: "A stream's tail and configuration",
			Parameters: []*huma.Param{path, service}, Responses: withOffset(problems("200"), "200")},
		{OperationID: "deleteStream", Method: http.MethodDelete, Summary: "Delete a stream",
			Parameters: []*huma.Param{path, service}, Responses: problems("204")},
	}
	kept := maps.Clone(offsets)
	kept["Stream-Earliest-Offset"] = &huma.Param{Description: "Where what is kept begins, if something is missing before it.", Schema: &huma.Schema{Type: huma.TypeString}}
	for _, op := range ops {
		op.Path, op.Tags = at, tags
		if op.OperationID == "readStream" || op.OperationID == "headStream" {
			op.Responses["200"].Headers = kept
		}
		if op.OperationID == "readStream" {
			op.Responses["200"].Content = raw()
			op.Responses["200"].Content["application/json"] = &huma.MediaType{Schema: &huma.Schema{}}
			op.Responses["200"].Content["text/event-stream"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		}
		c.api.OpenAPI().AddOperation(op)
	}
}

func atoi(s string) (n int) {
	for i := range len(s) {
		n = n*10 + int(s[i]-'0')
	}
	return n
}
