package control

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
)

// Plugins tells of the transports and auth hooks of this gateway.
type Plugins interface {
	// Plugins are all of them, by name, as they are now.
	Plugins() []PluginInfo
	// Logs is the end of what one has printed, oldest first.
	Logs(name string) (lines []PluginLogLine, known bool)
}

// PluginInfo is how a plugin is doing on this gateway.
type PluginInfo struct {
	Name         string          `json:"name"`
	Kind         string          `json:"kind" enum:"transport,authhook"`
	Builtin      bool            `json:"builtin" doc:"It is a part of the gateway's own program."`
	InProcess    bool            `json:"in_process" doc:"It runs in the gateway's process, not in one of its own."`
	Version      string          `json:"version"`
	State        string          `json:"state" enum:"up,starting,waiting,circuit_open,stopped"`
	Code         string          `json:"code,omitempty" doc:"What is wrong with it; absent if nothing is."`
	Detail       string          `json:"detail,omitempty"`
	PID          int             `json:"pid,omitempty"`
	Starts       int             `json:"starts" doc:"How often it has come up."`
	Failures     int             `json:"failures" doc:"How often it has failed within the last minute."`
	NextStart    *time.Time      `json:"next_start,omitempty" doc:"When it is tried again."`
	AtMostOnce   bool            `json:"at_most_once"`
	TargetSchema json.RawMessage `json:"-"`
}

// PluginLogLine is a line that a plugin has printed.
type PluginLogLine struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// TransportInfo is a type of dispatch target.
type TransportInfo struct {
	Type         string         `json:"type" doc:"The target's \"type\"."`
	Available    bool           `json:"available" doc:"Whether wakes can be delivered to such targets now."`
	AtMostOnce   bool           `json:"at_most_once" doc:"A send whose outcome is not known is left to a person, not repeated."`
	TargetSchema map[string]any `json:"target_schema" doc:"JSON Schema (2020-12) of such a target; an empty one allows everything or is not known yet."`
}

type (
	transportListOutput struct{ Body []TransportInfo }
	pluginListOutput    struct{ Body []PluginInfo }
	pluginNameInput     struct {
		Name string `path:"name"`
	}
	pluginLogOutput struct{ Body []PluginLogLine }
)

// runnerTarget is the target that needs no transport: wakes of it are rows of a stream.
var runnerTarget = TransportInfo{Type: "runner", Available: true, TargetSchema: map[string]any{
	"type": "object", "required": []string{"type", "runnerId"}, "additionalProperties": false,
	"properties": map[string]any{"type": map[string]any{"const": "runner"}, "runnerId": map[string]any{"type": "string"}, "subscription_id": map[string]any{"type": "string"}},
}}

const pluginsPath = "/_electric/plugins"

func (c *Control) registerPlugins() {
	tags := []string{"server"}
	add(c, huma.Operation{OperationID: "listTransports", Method: http.MethodGet, Path: "/_electric/transports", Tags: tags,
		Summary: "The types of dispatch targets, with the schema of each"}, routeOptions{}, nil, c.listTransports)
	add(c, huma.Operation{OperationID: "listPlugins", Method: http.MethodGet, Path: pluginsPath, Tags: tags,
		Summary: "How the plugins of this gateway are doing"}, routeOptions{}, []problem.Code{problem.Forbidden}, c.listPlugins)
	add(c, huma.Operation{OperationID: "getPluginLog", Method: http.MethodGet, Path: pluginsPath + "/{name}/log", Tags: tags,
		Summary: "The end of what a plugin of this gateway has printed"}, routeOptions{}, []problem.Code{problem.Forbidden, problem.NotFound}, c.pluginLog)
}

func (c *Control) plugins() []PluginInfo {
	if c.cfg.Plugins == nil {
		return nil
	}
	return c.cfg.Plugins.Plugins()
}

func (c *Control) listTransports(context.Context, *struct{}) (*transportListOutput, error) {
	out := &transportListOutput{Body: []TransportInfo{runnerTarget}}
	for _, p := range c.plugins() {
		if p.Kind != "transport" {
			continue
		}
		t := TransportInfo{Type: p.Name, Available: p.State == "up", AtMostOnce: p.AtMostOnce, TargetSchema: map[string]any{}}
		_ = json.Unmarshal(p.TargetSchema, &t.TargetSchema)
		out.Body = append(out.Body, t)
	}
	return out, nil
}

// InspectsPlugins knows the requests that only show how plugins are doing. As for
// the routes themselves, their prefix is never escaped.
func InspectsPlugins(r *http.Request) bool {
	path := strings.TrimSuffix(r.URL.EscapedPath(), "/")
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (path == pluginsPath || strings.HasPrefix(path, pluginsPath+"/"))
}

// mayInspect lets system principals and operators see how plugins are doing.
func (c *Control) mayInspect(ctx context.Context) error {
	if who := from(ctx); !who.trusted() && !c.cfg.Auth.Operates(who.Principal) {
		return errOperatorOnly
	}
	return nil
}

var errOperatorOnly = problem.New(problem.Forbidden, "Only a system principal, or one that the gateway's settings name as an operator, may do this.")

func (c *Control) listPlugins(ctx context.Context, _ *struct{}) (*pluginListOutput, error) {
	if err := c.mayInspect(ctx); err != nil {
		return nil, err
	}
	out := &pluginListOutput{Body: []PluginInfo{}}
	out.Body = append(out.Body, c.plugins()...)
	return out, nil
}

func (c *Control) pluginLog(ctx context.Context, in *pluginNameInput) (*pluginLogOutput, error) {
	if err := c.mayInspect(ctx); err != nil {
		return nil, err
	}
	if c.cfg.Plugins != nil {
		if lines, known := c.cfg.Plugins.Logs(in.Name); known {
			return &pluginLogOutput{append([]PluginLogLine{}, lines...)}, nil
		}
	}
	return nil, problem.New(problem.NotFound, "There is no plugin of this name.")
}
