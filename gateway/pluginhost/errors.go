package pluginhost

import (
	"errors"
	"fmt"
)

// The codes of what is wrong with a plugin, stable for ever.
const (
	CodeNotFound      = "PLUGIN_NOT_FOUND"       // the file cannot be opened
	CodeSymlink       = "PLUGIN_SYMLINK"         // the path leads through a link at its end
	CodeWritable      = "PLUGIN_WRITABLE"        // others may write the file or its folder
	CodeChecksum      = "PLUGIN_CHECKSUM"        // the file has other bytes than those pinned
	CodeStartFailed   = "PLUGIN_START_FAILED"    // it ended or spoke nonsense before it was there
	CodeStartTimeout  = "PLUGIN_START_TIMEOUT"   // it was not there in time
	CodeVersion       = "PLUGIN_VERSION"         // it speaks no contract that this gateway speaks
	CodeDescription   = "PLUGIN_DESCRIPTION"     // what it says of itself cannot be used
	CodeConfigRefused = "PLUGIN_CONFIG_REFUSED"  // it refuses its settings
	CodeCrashed       = "PLUGIN_CRASHED"         // its process ended
	CodeHung          = "PLUGIN_HUNG"            // it does not answer when asked for its health
	CodeMemory        = "PLUGIN_MEMORY"          // it uses more memory than it may
	CodeUnhealthy     = "PLUGIN_UNHEALTHY"       // it says that it cannot work now
	CodeCircuitOpen   = "PLUGIN_CIRCUIT_OPEN"    // it failed too often and is left alone for a while
	CodeStarting      = "PLUGIN_STARTING"        // it is not there yet
	CodeStopped       = "PLUGIN_STOPPED"         // it has been ended or taken out of the configuration
	CodeReloadFailed  = "PLUGIN_RELOAD_FAILED"   // its changed entry does not work; the one before it runs on
	CodeConfiguration = "PLUGIN_CONFIGURATION"   // the plugins file cannot be read
	CodeRubbish       = "PLUGIN_ANSWER"          // an answer is not one
	CodeTimeout       = "PLUGIN_TIMEOUT"         // a call was not answered in time
	CodeCallFailed    = "PLUGIN_CALL_FAILED"     // a call broke off
	CodeTooLarge      = "PLUGIN_MESSAGE_TOO_BIG" // a message is greater than the contract allows
)

// Error is what is wrong with a plugin. Its text holds no secret.
type Error struct {
	Code  string
	Text  string
	cause error
}

func (e *Error) Error() string {
	if e.cause != nil {
		return e.Text + ": " + e.cause.Error()
	}
	return e.Text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

func errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

func wrap(code string, cause error, text string) *Error {
	return &Error{Code: code, Text: text, cause: cause}
}

// CodeOf gives the code of an error of this package, or "".
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
