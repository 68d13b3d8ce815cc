// Package call owns what every caller of a gateway needs around a request: turning an answer into a value or into an
// [Error] with the gateway's stable code, telling a passing failure from a refusal, and waiting before the next try.
//
// It promises that bodies are always closed and bounded, and that no answer, however malformed, is taken for success. It
// must not know which route was called.
package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Bounds of what is read of one answer, in bytes.
const (
	maxBody    = 256 << 20
	maxProblem = 1 << 20
)

// Error is a refusal or failure that a gateway answered.
type Error struct {
	// Status is the HTTP status; Code is stable, empty when the answer carried none.
	Status int
	Code   string
	Title  string
	Detail string
	// Fields point at invalid parts of the request.
	Fields []Field
	// RetryAfter is how long the gateway asks to wait; zero = it does not say.
	RetryAfter time.Duration
	// Request is the gateway's id of the request, for its log.
	Request string
	// Raw is the whole body when it was JSON.
	Raw json.RawMessage
}

// Field is one invalid part of a request: a JSON pointer, or a name such as "query.offset".
type Field struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if text == "" {
		text = http.StatusText(e.Status)
	}
	if e.Code == "" {
		return fmt.Sprintf("HTTP %d: %s", e.Status, text)
	}
	return e.Code + ": " + text
}

// ErrTooLarge says that an answer passed the bound on what is read of it.
var ErrTooLarge = errors.New("the answer is larger than 256 MiB")

// Check answers nil for a success and the [Error] of anything else, whose body it closes. The body of a success stays
// open and is the caller's.
func Check(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	return problem(resp, body)
}

// problem reads an answer that is no success: problem+json, the member "error" alone, or anything else.
func problem(resp *http.Response, body []byte) *Error {
	e := &Error{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode)}
	var p struct {
		Title        string  `json:"title"`
		Detail       string  `json:"detail"`
		Instance     string  `json:"instance"`
		Code         string  `json:"code"`
		RetryAfterMS int64   `json:"retry_after_ms"`
		Errors       []Field `json:"errors"`
		Error        struct {
			Code    string  `json:"code"`
			Message string  `json:"message"`
			Details []Field `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &p) == nil {
		e.Code, e.Detail, e.Fields, e.Request = p.Code, p.Detail, p.Errors, p.Instance
		if p.Title != "" {
			e.Title = p.Title
		}
		if e.Code == "" {
			e.Code, e.Detail, e.Fields = p.Error.Code, p.Error.Message, p.Error.Details
		}
		e.RetryAfter = time.Duration(p.RetryAfterMS) * time.Millisecond
		e.Raw = body
	}
	if e.RetryAfter <= 0 {
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 && s < 3600 {
			e.RetryAfter = time.Duration(s) * time.Second
		}
	}
	return e
}

// Decode reads the JSON of a success into out (nil = the body is thrown away) and closes the body.
func Decode(resp *http.Response, err error, out any) error {
	body, err := Bytes(resp, err)
	if err != nil || out == nil || len(body) == 0 {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the gateway's answer cannot be read: %w", err)
	}
	return nil
}

// Bytes reads the body of a success and closes it.
func Bytes(resp *http.Response, err error) ([]byte, error) {
	if err := Check(resp, err); err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = ErrTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return body, nil
}

// Code is the stable code of err, "" when it carries none.
func Code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Status is the HTTP status of err, 0 when no answer came.
func Status(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// Passing says that the same call may succeed later: no answer came, or one that says so by its status. A context that
// has ended is not passing.
func Passing(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrTooLarge) {
		return false
	}
	switch s := Status(err); {
	case s == 0, s >= 500:
		return true
	default:
		return s == http.StatusRequestTimeout || s == http.StatusTooEarly || s == http.StatusTooManyRequests
	}
}
