package control

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/problem"
)

// wireError is a problem as huma writes it.
type wireError struct {
	e        *problem.Error
	instance string
}

var (
	_ huma.StatusError       = (*wireError)(nil)
	_ huma.HeadersError      = (*wireError)(nil)
	_ huma.ContentTypeFilter = (*wireError)(nil)
)

func (w *wireError) Error() string                { return w.e.Error() }
func (w *wireError) Unwrap() error                { return w.e }
func (w *wireError) GetStatus() int               { return w.e.Status() }
func (w *wireError) ContentType(string) string    { return "application/problem+json" }
func (w *wireError) MarshalJSON() ([]byte, error) { return json.Marshal(w.e.Body(w.instance)) }

// Schema describes the envelope in the OpenAPI.
func (*wireError) Schema(r huma.Registry) *huma.Schema { return problemSchema(r) }

func (w *wireError) GetHeaders() http.Header {
	h := http.Header{}
	for k, v := range w.e.Header {
		h[k] = v
	}
	h.Set("Cache-Control", "no-store")
	after := w.e.RetryAfter
	if after == 0 {
		after = w.e.Code.Info().RetryAfter
	}
	if after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	return h
}

// humaOnce guards huma's process-wide hooks: they are the same for every
// gateway of a process.
var humaOnce sync.Once

func setupHuma() {
	humaOnce.Do(func() {
		huma.DefaultArrayNullable = false
		huma.ValidateStrictCasing = true
		huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
			return &wireError{e: fromHuma(status, errs)}
		}
		huma.NewErrorWithContext = func(ctx huma.Context, status int, _ string, errs ...error) huma.StatusError {
			return &wireError{e: fromHuma(status, errs), instance: obs.RequestID(ctx.Context())}
		}
	})
}

// fromHuma turns huma's findings into a problem. Only places and the names of
// rules are kept: huma's own texts and details can hold the value.
func fromHuma(status int, errs []error) *problem.Error {
	if status >= 500 {
		return problem.New(problem.Internal, "The server could not complete the request. Give the request id to the operator.")
	}
	code, text := problem.InvalidRequest, "The request is not valid. See errors for the places."
	switch status {
	case http.StatusRequestEntityTooLarge:
		code, text = problem.PayloadTooLarge, "The body is too large. Send less."
	case http.StatusRequestTimeout:
		code, text = problem.RequestTimeout, "The body did not arrive in time. Send it again."
	case http.StatusNotAcceptable:
		code, text = problem.NotAcceptable, "Only application/json is answered here."
	}
	e := problem.New(code, text)
	for _, err := range errs {
		d, ok := err.(huma.ErrorDetailer)
		if !ok {
			continue
		}
		detail := d.ErrorDetail()
		e.WithDetails(problem.Detail{Path: pointer(detail.Location), Message: rule(detail.Message)})
	}
	return e
}

// pointer turns body.a[0].b into /a/0/b; other places keep their name.
func pointer(loc string) string {
	rest, ok := strings.CutPrefix(loc, "body")
	if !ok {
		return loc
	}
	rest = strings.NewReplacer("[", "/", "]", "", ".", "/").Replace(rest)
	if rest == "" {
		return "/"
	}
	if rest[0] != '/' {
		return "/" + rest
	}
	return rest
}

// rule keeps huma's text when it is made of the schema alone.
func rule(msg string) string {
	for _, safe := range []string{"expected ", "unexpected ", "required ", "invalid ", "validation failed"} {
		if strings.HasPrefix(msg, safe) {
			return msg
		}
	}
	return "is not valid"
}
