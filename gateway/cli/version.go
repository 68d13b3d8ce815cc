package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set at link time (-X); release builds carry a tag, others what the toolchain knows.
var release string

// Release of this binary, as in "v1.2.3", or "devel" with the revision it was built from.
func Release() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

type versionCmd struct {
	JSON bool `help:"Print JSON."`
}

func (c *versionCmd) Run(r *run) error {
	if c.JSON {
		return r.printJSON(map[string]string{"release": Release(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
	}
	_, err := fmt.Fprintln(r.io.Out, versionLine())
	return err
}

func versionLine() string {
	return fmt.Sprintf("rouse %s (%s %s/%s)", Release(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
