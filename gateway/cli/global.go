package cli

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// globals are the flags of every command that asks a gateway (clientFlags), which people write before the command too,
// and whether each has a value.
var globals = map[string]bool{"--server": true, "--service": true, "--as": true, "--token": true, "--json": false}

// inPlace moves globals that stand before a command, or within its name, behind it, where the parser knows them. Those
// that no command follows, or only the first part of its name, mean nothing and go.
func inPlace(node *kong.Node, args []string) []string {
	var name, moved []string
	rest := args
	for len(rest) > 0 {
		flag, _, joined := strings.Cut(rest[0], "=")
		if valued, global := globals[flag]; global {
			n := 1
			if valued && !joined {
				n = min(2, len(rest))
			}
			moved, rest = append(moved, rest[:n]...), rest[n:]
			continue
		}
		at := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == rest[0] || slices.Contains(c.Aliases, rest[0]) })
		if at < 0 {
			break
		}
		node, name, rest = node.Children[at], append(name, rest[0]), rest[1:]
	}
	if len(node.Children) > 0 {
		moved = nil
	}
	return slices.Concat(name, moved, rest)
}
