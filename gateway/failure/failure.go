// Package failure is the form of what a person at a terminal is told went wrong: a stable code, a sentence, and what to
// do about it. It promises that errors.Is and errors.As see the cause through it. It knows nothing of the codes, which
// their packages own; what clients are told over HTTP is in package problem.
package failure

import "errors"

// Error is a failure with one of the codes C.
type Error[C ~string] struct {
	Code   C
	Detail string // one sentence for a person
	Hint   string // what to do about it; may be empty
	Cause  error  // may be nil
}

func (e *Error[C]) Error() string {
	text := string(e.Code) + ": " + e.Detail
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	if e.Hint != "" {
		text += "\n" + e.Hint
	}
	return text
}

// Unwrap gives the cause, so that errors.Is sees a cancelled context through it.
func (e *Error[C]) Unwrap() error { return e.Cause }

// CodeOf gives the code of err, or "" when it has none of the codes C.
func CodeOf[C ~string](err error) C {
	if e, ok := errors.AsType[*Error[C]](err); ok {
		return e.Code
	}
	return ""
}
