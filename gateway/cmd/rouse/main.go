// Command rouse is the whole product in one binary; package cli says what it can do.
package main

import (
	"context"
	"os"

	"github.com/rouse-run/rouse/gateway/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(),
		Self: []string{"rouse", "plugin-serve"}}))
}
