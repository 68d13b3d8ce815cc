package pluginhost

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rpcError says what broke a call, in our words: a status's text is the
// plugin's.
func rpcError(err error) *Error {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled:
		return errorf(CodeTimeout, "the plugin did not answer in time")
	case codes.ResourceExhausted:
		return errorf(CodeTooLarge, "a message is greater than the contract allows")
	case codes.Unimplemented:
		return errorf(CodeDescription, "the plugin does not know this call")
	case codes.Unavailable:
		return errorf(CodeCallFailed, "the plugin's process ended or refused the call")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errorf(CodeTimeout, "the plugin did not answer in time")
	}
	return errorf(CodeCallFailed, "the call broke off")
}

// notDescribed tells a plugin of the other kind from one that is broken.
func notDescribed(err error, kind string) error {
	if status.Code(err) == codes.Unimplemented {
		return errorf(CodeVersion, "the plugin is no %s", kind)
	}
	return wrap(CodeStartFailed, rpcError(err), "the plugin does not describe itself")
}
