package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/rouse-run/rouse/openapi/client"
)

type typeCmd struct {
	Put typePutCmd `cmd:"" help:"Register an entity type, or replace it."`
	Get typeGetCmd `cmd:"" help:"Show an entity type."`
	Ls  typeLsCmd  `cmd:"" aliases:"list" help:"List the types that you may spawn."`
	Rm  typeRmCmd  `cmd:"" aliases:"delete" help:"Remove an entity type. Its entities stay."`
}

type typePutCmd struct {
	clientFlags
	targetFlags
	Name        string `arg:"" help:"The type's name, such as task."`
	Description string `short:"d" help:"What it is for."`
	File        string `short:"f" help:"The rest of the registration as JSON (creation_schema, inbox_schemas, state_schemas and so on); - reads standard input." placeholder:"FILE"`
}

func (typePutCmd) Help() string {
	return `A change raises the type's revision.

Examples:
  rouse type put task -d 'Something to do'
  rouse type put task -d 'Something to do' --runner laptop
  rouse type put task -f task.json`
}

func (c *typePutCmd) Run(r *run) error {
	policy, err := c.policy()
	if err != nil {
		return err
	}
	body := map[string]any{}
	if c.File != "" {
		if body, err = r.object(c.File); err != nil {
			return err
		}
	}
	body["name"] = c.Name
	if policy != nil {
		body["default_dispatch_policy"] = policy
	}
	switch _, has := body["description"]; {
	case c.Description != "":
		body["description"] = c.Description
	case !has && body["serve_endpoint"] == nil:
		body["description"] = c.Name
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		var t client.EntityType
		if err := k.ask(&t, func(ctx context.Context) (*http.Response, error) {
			return k.PutEntityTypeWithBody(ctx, nil, jsonType, bytes.NewReader(raw))
		}); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(t)
		}
		k.printf("registered %s, revision %d\n", t.Name, t.Revision)
		return nil
	})
}

// object reads a JSON object from a file, or from standard input for "-".
func (r *run) object(file string) (map[string]any, error) {
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(io.LimitReader(r.io.In, 16<<20))
	} else {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fail(ExitUsage, err)
	}
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&object); err != nil || object == nil {
		return nil, failf(ExitUsage, "%s does not hold a JSON object", file)
	}
	return object, nil
}

type typeGetCmd struct {
	clientFlags
	Name string `arg:"" help:"The type's name."`
}

func (c *typeGetCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		var raw json.RawMessage
		if err := k.ask(&raw, func(ctx context.Context) (*http.Response, error) { return k.GetEntityType(ctx, c.Name, nil) }); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(raw)
		}
		var t client.EntityType
		if err := json.Unmarshal(raw, &t); err != nil {
			return err
		}
		k.fields("type", t.Name, "for", printable(t.Description), "revision", fmt.Sprint(t.Revision), "owner", principal(t.OwnerPrincipal),
			"wakes go to", target(t.DefaultDispatchPolicy), "changed", ago(t.UpdatedAt),
			"arguments", notNull(t.CreationSchema), "messages", keys(t.InboxSchemas), "state", keys(t.StateSchemas))
		return nil
	})
}

func notNull(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	return printable(compact(raw))
}

// keys lists the names in a map that may be absent.
func keys(m *map[string]json.RawMessage) string {
	if m == nil {
		return ""
	}
	names := make([]string, 0, len(*m))
	for k := range *m {
		names = append(names, printable(k))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

type typeLsCmd struct{ clientFlags }

func (c *typeLsCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		var list []client.EntityType
		if err := k.ask(&list, func(ctx context.Context) (*http.Response, error) { return k.ListEntityTypes(ctx, nil) }); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(list)
		}
		if len(list) == 0 {
			r.say(`There are none yet. "rouse type put NAME" registers one.`)
			return nil
		}
		rows := make([][]string, len(list))
		for i, t := range list {
			rows[i] = []string{t.Name, fmt.Sprint(t.Revision), principal(t.OwnerPrincipal), target(t.DefaultDispatchPolicy), oneLine(t.Description, 60)}
		}
		k.table([]string{"TYPE", "REVISION", "OWNER", "WAKES GO TO", "FOR"}, rows)
		return nil
	})
}

type typeRmCmd struct {
	clientFlags
	Name string `arg:"" help:"The type's name."`
}

func (c *typeRmCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		if err := k.ask(nil, func(ctx context.Context) (*http.Response, error) { return k.DeleteEntityType(ctx, c.Name, nil) }); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(map[string]any{"name": c.Name, "deleted": true})
		}
		k.printf("removed %s\n", c.Name)
		return nil
	})
}
