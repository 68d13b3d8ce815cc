// Package problem owns the stable error codes of Rouse and their wire form.
//
// It promises that every code keeps its status and meaning for ever, that an
// [Error] written to a client carries only text meant for the client (never
// the private cause, never an offending value), and that both readers of the
// wire find what they know: RFC 9457 members, and the member "error" that
// Electric's clients read. It imports the standard library only, so that every
// other package may use it.
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Detail points at one invalid part of a request. It never holds the value.
type Detail struct {
	// Path is a JSON pointer into the body ("/" for the root), or a name such
	// as "header.Stream-TTL" or "query.offset".
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Error is a refusal or failure with a stable code. Public is shown to the
// client and tells what to do next; the cause is for the log only.
type Error struct {
	Code    Code
	Public  string
	Details []Detail
	// Meta holds extra members of the wire's error object, such as
	// current_holder or generation.
	Meta map[string]any
	// Header is added to the response, for protocols that answer in headers.
	Header http.Header
	// RetryAfter is how long a client waits before it tries again; zero means
	// the code's own default.
	RetryAfter time.Duration
	cause      error
}

// New makes an error with a code and a text for the client.
func New(code Code, public string) *Error { return &Error{Code: code, Public: public} }

// Newf is New with formatting. Arguments reach the client: never a secret.
func Newf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Public: fmt.Sprintf(format, args...)}
}

// Wrap keeps cause for the log and shows public to the client.
func Wrap(code Code, cause error, public string) *Error {
	return &Error{Code: code, Public: public, cause: cause}
}

// WithDetails adds validation details.
func (e *Error) WithDetails(d ...Detail) *Error { e.Details = append(e.Details, d...); return e }

// WithMeta adds one member to the wire's error object.
func (e *Error) WithMeta(key string, value any) *Error {
	if e.Meta == nil {
		e.Meta = map[string]any{}
	}
	e.Meta[key] = value
	return e
}

// WithHeader adds a response header.
func (e *Error) WithHeader(key, value string) *Error {
	if e.Header == nil {
		e.Header = http.Header{}
	}
	e.Header.Set(key, value)
	return e
}

// WithRetryAfter sets how long a client should wait.
func (e *Error) WithRetryAfter(d time.Duration) *Error { e.RetryAfter = d; return e }

func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Public, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Public)
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.cause }

// Is matches by code, so that errors.Is(err, problem.New(problem.EpochHeld, ""))
// holds whatever the text is.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Status is the HTTP status of the code.
func (e *Error) Status() int { return e.Code.Info().Status }

// From finds the Error in err's chain; anything else becomes INTERNAL with the
// cause kept private.
func From(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Wrap(Internal, err, "The server could not complete the request. Try again; if it persists, give the request id to the operator.")
}

// CodeOf returns the code of err, or "" when err carries none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Body is the wire form: application/problem+json (RFC 9457) plus the member
// that Electric's clients read.
type Body struct {
	Type         string   `json:"type"`
	Title        string   `json:"title"`
	Status       int      `json:"status"`
	Detail       string   `json:"detail,omitempty"`
	Instance     string   `json:"instance,omitempty"`
	Code         Code     `json:"code"`
	Retryable    bool     `json:"retryable"`
	RetryAfterMS int64    `json:"retry_after_ms,omitempty"`
	Errors       []Detail `json:"errors,omitempty"`
	Err          WireErr  `json:"error"`
}

// WireErr is the member "error" of [Body].
type WireErr struct {
	Code    Code
	Message string
	Details []Detail
	Meta    map[string]any
}

// MarshalJSON lays Meta beside code, message and details.
func (w WireErr) MarshalJSON() ([]byte, error) {
	m := make(map[string]any, len(w.Meta)+3)
	for k, v := range w.Meta {
		m[k] = v
	}
	m["code"], m["message"] = w.Code, w.Message
	if len(w.Details) > 0 {
		m["details"] = w.Details
	}
	return json.Marshal(m)
}

// Body renders e; instance is the request id.
func (e *Error) Body(instance string) Body {
	info := e.Code.Info()
	return Body{
		Type: "https://rouse.run/problems/" + string(e.Code), Title: info.Title, Status: info.Status,
		Detail: e.Public, Instance: instance, Code: e.Code, Retryable: info.Retryable,
		RetryAfterMS: e.retryAfter().Milliseconds(), Errors: e.Details,
		Err: WireErr{Code: e.Code, Message: e.Public, Details: e.Details, Meta: e.Meta},
	}
}

func (e *Error) retryAfter() time.Duration {
	if e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return e.Code.Info().RetryAfter
}

// Write answers err on w. It sets no header that the caller has set already,
// except the content type.
func Write(w http.ResponseWriter, instance string, err error) {
	e := From(err)
	h := w.Header()
	for k, v := range e.Header {
		h[k] = v
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	h.Del("Content-Length")
	if after := e.retryAfter(); after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	body, merr := json.Marshal(e.Body(instance))
	if merr != nil { // Meta holds something JSON cannot say: drop it, keep the code.
		stripped := *e
		stripped.Meta = nil
		body, _ = json.Marshal(stripped.Body(instance))
	}
	w.WriteHeader(e.Status())
	_, _ = w.Write(body)
}
