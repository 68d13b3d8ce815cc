package cli

import (
	"context"
	"net/http"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
)

type serviceCmd struct {
	Create serviceCreateCmd `cmd:"" help:"Make a service: a scope with its own streams, entities and runners."`
	Ls     serviceLsCmd     `cmd:"" aliases:"list" help:"List the services."`
}

type serviceCreateCmd struct {
	clientFlags
	Name string `arg:"" help:"Lower-case letters, digits, dots, dashes and underscores."`
}

// systemOnly says how to be a system principal.
var systemOnly = map[string]string{"FORBIDDEN": "set ROUSE_TOKEN or --token to a token made for system:framework; in `rouse dev`, leave --as and ROUSE_AS out"}

func (serviceCreateCmd) Help() string {
	return `Only a system principal may do this: in dev everybody who names nobody is one, in serve a
token made for system:framework is.

Examples:
  rouse service create blue
  rouse type put task -d 'Something to do' --service blue`
}

func (c *serviceCreateCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		var s client.ServiceInfo
		k.advice = systemOnly
		if err := k.ask(&s, func(ctx context.Context) (*http.Response, error) {
			return k.CreateService(ctx, client.ServiceCreate{Name: c.Name})
		}); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(s)
		}
		k.printf("service %s\n", printable(s.Name))
		return nil
	})
}

type serviceLsCmd struct{ clientFlags }

func (c *serviceLsCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		list := []client.ServiceInfo{}
		k.advice = systemOnly
		if err := k.ask(&list, func(ctx context.Context) (*http.Response, error) { return k.ListServices(ctx) }); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(list)
		}
		rows := make([][]string, len(list))
		for i, s := range list {
			rows[i] = []string{printable(s.Name), s.CreatedAt.Local().Format(time.DateTime)}
		}
		k.table([]string{"SERVICE", "CREATED"}, rows)
		return nil
	})
}
