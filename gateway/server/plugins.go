package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/rouse-run/rouse/gateway/control"
	"github.com/rouse-run/rouse/gateway/pluginhost"
	"github.com/rouse-run/rouse/plugins/sdk"
	"github.com/rouse-run/rouse/transports/exec"
	"github.com/rouse-run/rouse/transports/nats"
	"github.com/rouse-run/rouse/transports/webhook"
)

// Builtins are the transports that this binary has; each can be served as a plugin process.
func Builtins() map[string]func() sdk.Transport {
	return map[string]func() sdk.Transport{"webhook": webhook.Plugin, "nats": nats.Plugin, "exec": exec.Plugin}
}

// pluginHost builds the host of all transports, the built-in webhook among them, and of the auth hooks that are plugins.
func (s *Server) pluginHost(ctx context.Context, signer pluginhost.Signer) (*pluginhost.Host, error) {
	return pluginhost.New(ctx, pluginhost.Config{
		File: s.Config.PluginsFile, Amend: s.amend, Builtins: Builtins(), BuiltinHooks: slices.Sorted(maps.Keys(BuiltinHooks(ctx))), SelfArgs: s.selfArgs, Signer: signer, Log: s.Log, Registry: s.Metrics.Registry,
	})
}

// amend completes a plugins file: there is a webhook transport, what the gateway's settings say of webhooks holds
// unless the file says otherwise, and the hooks of the section auth are there.
func (s *Server) amend(set *pluginhost.Set) error {
	if _, said := set.Transports["webhook"]; !said {
		set.Transports["webhook"] = pluginhost.Spec{Builtin: "webhook"}
	}
	for name, p := range set.Transports {
		if p.Builtin == "" {
			continue
		}
		p.InProcess = p.InProcess || len(s.selfArgs) == 0
		if p.Builtin == "webhook" {
			config := map[string]any{"allow_private": s.Config.AllowPrivateWebhooks}
			maps.Copy(config, p.Config)
			p.Config = config
		}
		set.Transports[name] = p
	}
	hooks, authorizers, err := s.hookProcesses()
	if err != nil {
		return err
	}
	for _, p := range append(hooks, authorizers...) {
		if p == nil {
			continue
		}
		_, isHook := set.AuthHooks[p.name]
		if _, isTransport := set.Transports[p.name]; isHook || isTransport {
			return fmt.Errorf("%s is the name of a hook of the section auth: call the plugin something else", p.name)
		}
		if set.AuthHooks == nil {
			set.AuthHooks = map[string]pluginhost.Spec{}
		}
		set.AuthHooks[p.name] = p.spec
	}
	for name, p := range set.AuthHooks {
		if p.Builtin != "" {
			p.Reads = hookFiles(p.Config)
			set.AuthHooks[name] = p
		}
	}
	return nil
}

// hookFiles are the files that the settings of a built-in hook name.
func hookFiles(settings map[string]any) (files []string) {
	for _, name := range []string{"file", "keys_file", "policy"} {
		if path, ok := settings[name].(string); ok && path != "" {
			files = append(files, path)
		}
	}
	return files
}

// carriers checks targets with the transports there are at the moment.
type carriers struct{ host *pluginhost.Host }

// Validate implements control.Transports and subscriptions.Transports.
func (c carriers) Validate(ctx context.Context, typ string, target json.RawMessage) error {
	return control.Carriers(c.host.Transports()).Validate(ctx, typ, target)
}

// plugged shows the plugins to the control plane.
type plugged struct{ host *pluginhost.Host }

// Plugins implements control.Plugins.
func (p plugged) Plugins() []control.PluginInfo {
	all := p.host.Plugins()
	out := make([]control.PluginInfo, len(all))
	for i, v := range all {
		out[i] = control.PluginInfo{Name: v.Name, Kind: v.Kind, Builtin: v.Builtin, InProcess: v.InProcess, Version: v.Version, State: v.State,
			Code: v.Code, Detail: v.Detail, PID: v.PID, Starts: v.Starts, Failures: v.Failures, AtMostOnce: v.AtMostOnce, TargetSchema: v.TargetSchema}
		if !v.NextStart.IsZero() {
			at := v.NextStart.UTC()
			out[i].NextStart = &at
		}
	}
	return out
}

// Logs implements control.Plugins.
func (p plugged) Logs(name string) (lines []control.PluginLogLine, known bool) {
	kept, known := p.host.Logs(name)
	for _, l := range kept {
		lines = append(lines, control.PluginLogLine{At: l.At.UTC(), Text: l.Text})
	}
	return lines, known
}
