package cli

import (
	"context"
	"os"
	"path/filepath"

	"github.com/rouse-run/rouse/gateway/control"
)

// openapiCmd writes the description that clients are generated from.
type openapiCmd struct {
	Dir  string `help:"Write openapi.yaml (3.1) and openapi-3.0.yaml into this directory." type:"path" placeholder:"DIR"`
	Old  bool   `name:"3.0" help:"Print OpenAPI 3.0 instead of 3.1."`
	JSON bool   `help:"Print JSON instead of YAML."`
}

func (c openapiCmd) Run(r *run) error {
	api := control.New(r.ctx, control.Config{})
	defer func() { _ = api.Stop(context.WithoutCancel(r.ctx)) }() // nothing is under way
	v31, v30, err := api.DescriptionYAML()
	if err != nil {
		return err
	}
	if c.Dir != "" {
		if err := os.MkdirAll(c.Dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(c.Dir, "openapi.yaml"), v31, 0o644); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(c.Dir, "openapi-3.0.yaml"), v30, 0o644)
	}
	if c.JSON {
		if v31, v30, err = api.Description(); err != nil {
			return err
		}
	}
	if c.Old {
		v31 = v30
	}
	_, err = r.io.Out.Write(v31)
	return err
}
