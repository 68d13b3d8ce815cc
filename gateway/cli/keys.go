package cli

import (
	"fmt"

	"github.com/rouse-run/rouse/gateway/claims"
)

type keysCmd struct {
	New keysNewCmd `cmd:"" help:"Print a ring with one fresh key: set ROUSE_KEYS to it, or to a file that holds it, on every gateway of a database."`
}

type keysNewCmd struct{}

func (keysNewCmd) Run(r *run) error {
	_, err := fmt.Fprint(r.io.Out, claims.NewKeys())
	return err
}
