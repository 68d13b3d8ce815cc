package devpg

import "github.com/rouse-run/rouse/gateway/failure"

// Code names one way in which a private server cannot be had. Codes are stable: scripts and the CLI's exit codes use them.
type Code string

// The codes of this package.
const (
	// CodeInUse: another live process holds the data directory.
	CodeInUse Code = "DATA_DIR_IN_USE"
	// CodeNotReachable: the user that Postgres runs as cannot get to the data directory.
	CodeNotReachable Code = "DATA_DIR_NOT_REACHABLE"
	// CodeDataDir: the data directory cannot be made, read or understood.
	CodeDataDir Code = "DATA_DIR_INVALID"
	// CodeNotFound: no usable Postgres programs on this machine, and none could be downloaded.
	CodeNotFound Code = "POSTGRES_NOT_FOUND"
	// CodeVersion: the data directory was written by a major version for which there are no programs here.
	CodeVersion Code = "POSTGRES_VERSION_MISMATCH"
	// CodeInit: initdb failed.
	CodeInit Code = "POSTGRES_INIT_FAILED"
	// CodeStart: the server did not come up.
	CodeStart Code = "POSTGRES_START_FAILED"
	// CodeStop: the server did not go down in time.
	CodeStop Code = "POSTGRES_STOP_FAILED"
)

// Error is what every exported function of this package fails with.
type Error = failure.Error[Code]

// CodeOf gives the code of err, or "" when err is not from this package.
func CodeOf(err error) Code { return failure.CodeOf[Code](err) }
