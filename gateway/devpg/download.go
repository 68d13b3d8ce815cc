package devpg

import (
	"context"
	"io"
	"os"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// downloadVersion is the release fetched where none is installed.
const downloadVersion = embeddedpostgres.V17

// Download fetches a Postgres for this machine's system and architecture into dir (kept for later starts) and gives
// where its programs are. mirror replaces the library's default repository when not empty. The error, CodeNotFound,
// says that nothing is installed either and how to install it.
func Download(ctx context.Context, dir, mirror string) (Binaries, error) {
	home := filepath.Join(dir, "postgres-"+string(downloadVersion))
	bin := filepath.Join(home, "bin")
	if b, err := inspect(ctx, bin); err == nil {
		return b, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Binaries{}, &Error{Code: CodeDataDir, Detail: "cannot make " + dir, Cause: err}
	}
	port, err := freePort()
	if err != nil {
		return Binaries{}, &Error{Code: CodeStart, Detail: "no free port on 127.0.0.1", Cause: err}
	}
	scratch, err := os.MkdirTemp(dir, "unpack-")
	if err != nil {
		return Binaries{}, &Error{Code: CodeDataDir, Detail: "cannot write in " + dir, Cause: err}
	}
	cfg := embeddedpostgres.DefaultConfig().Version(downloadVersion).Port(uint32(port)).
		CachePath(dir).BinariesPath(home).
		RuntimePath(filepath.Join(scratch, "run")).DataPath(filepath.Join(scratch, "data")).
		Logger(io.Discard)
	if mirror != "" {
		cfg = cfg.BinaryRepositoryURL(mirror)
	}
	done := make(chan error, 1)
	go func() {
		// The library unpacks as the first half of a start, and has no way to do only that. The trial server it then
		// starts is stopped at once; as root its initdb refuses to run, which is why a failure is judged by what is on
		// disk and not by the error.
		ep := embeddedpostgres.NewDatabase(cfg)
		err := ep.Start()
		if err == nil {
			err = ep.Stop()
		}
		if rmErr := os.RemoveAll(scratch); err == nil {
			err = rmErr
		}
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		// The library takes no context; its goroutine ends with its own HTTP request.
		err = ctx.Err()
	}
	if b, inspectErr := inspect(ctx, bin); inspectErr == nil {
		return b, nil
	}
	return Binaries{}, &Error{Code: CodeNotFound, Cause: err,
		Detail: "no Postgres is installed, and Postgres " + string(downloadVersion) + " could not be downloaded",
		Hint:   installHint(goos)}
}
