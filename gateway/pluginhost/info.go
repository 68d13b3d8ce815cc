package pluginhost

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/plugins/wire"
)

// Info is how a plugin is doing.
type Info struct {
	Name      string
	Kind      string // transport or authhook
	Builtin   bool
	InProcess bool
	Version   string
	// State is up, starting, waiting, circuit_open or stopped.
	State string
	// Code and Detail say what is wrong; empty = nothing.
	Code, Detail string
	PID          int // 0 = no process
	// Starts counts the times it has come up, Failures those it has failed within
	// the last minute.
	Starts, Failures int
	NextStart        time.Time // when it is tried again; zero = it runs
	AtMostOnce       bool
	TargetSchema     json.RawMessage // of a transport that has said; nil = none

	ownWords bool   // the detail is a built-in plugin's, for everybody
	cause    string // the code of why it does not run
}

// Plugins tells how all plugins are doing, by name.
func (h *Host) Plugins() []Info {
	h.mu.Lock()
	var all []Info
	slots := map[string]*slot{}
	for name, t := range h.transports {
		slots[name] = t.slot
	}
	for name, a := range h.hooks {
		slots[name] = a.slot
	}
	for _, l := range h.locals {
		all = append(all, l.info())
	}
	h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(slots)) {
		all = append(all, slots[name].info())
	}
	slices.SortFunc(all, func(a, b Info) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

func (l *Local) info() Info {
	i := Info{Name: l.name, Kind: wire.Transport, Builtin: true, InProcess: true, Version: l.desc.version, State: stateUp,
		AtMostOnce: l.desc.atMostOnce, TargetSchema: l.desc.targetSchema}
	if l.err != nil {
		i.State, i.Code, i.Detail = stateStopped, l.err.Code, l.err.Error()
	}
	return i
}

// ownCode is how a built-in plugin, which is trusted with it, says its own code of
// what is wrong.
var ownCode = regexp.MustCompile(`^([A-Z][A-Z_]+): (.*)$`)

func (s *slot) info() Info {
	s.mu.Lock()
	c, stale := s.child, s.stale
	s.mu.Unlock()
	i := Info{Name: s.name, Kind: s.kind, State: stateStopped, Code: CodeStopped}
	if c == nil {
		return i
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i.Builtin, i.State, i.Starts, i.Code = c.spec.Builtin != "", c.state, c.starts, ""
	for _, t := range c.failures {
		if time.Since(t) < c.pace.window {
			i.Failures++
		}
	}
	switch {
	case c.current != nil:
		i.Version, i.AtMostOnce, i.TargetSchema = c.current.desc.version, c.current.desc.atMostOnce, c.current.desc.targetSchema
		i.PID, _ = strconv.Atoi(c.current.proc.ID())
		if c.unwell != "" {
			i.Code, i.Detail = CodeUnhealthy, c.unwell
			if m := ownCode.FindStringSubmatch(c.unwell); c.spec.Builtin != "" && m != nil {
				i.Code, i.Detail, i.ownWords = m[1], m[2], true
			}
		}
	case c.last != nil:
		i.Code, i.Detail, i.NextStart, i.cause = c.last.Code, c.last.Error(), c.nextTry, c.last.Code
		if c.state == stateOpen {
			i.Code, i.Detail = CodeCircuitOpen, fmt.Sprintf("%s: %s", c.last.Code, c.last.Error())
		}
	default:
		i.Code = CodeStarting
	}
	if stale != nil && i.Code == "" {
		i.Code, i.Detail = stale.Code, stale.Error()
	}
	return i
}

// Logs gives the end of what a plugin has printed, oldest first.
func (h *Host) Logs(name string) (lines []LogLine, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.transports[name]; t != nil {
		return t.out.lines(), true
	}
	if a := h.hooks[name]; a != nil {
		return a.out.lines(), true
	}
	return nil, h.locals[name] != nil
}

// HooksReady says whether requests can be judged here: every auth hook has come
// up, and none is being left alone. It has the form of a readiness check.
func (h *Host) HooksReady() (code, detail string, ok bool) {
	for _, i := range h.Plugins() {
		if i.Kind == wire.AuthHook && i.Code != "" && (i.Starts == 0 || i.State == stateOpen) {
			h.mu.Lock()
			_, wanted := h.set.AuthHooks[i.Name]
			h.mu.Unlock()
			if wanted {
				detail = i.Name + " does not run"
				if i.cause != "" && i.cause != i.Code {
					detail += ": " + i.cause
				}
				return i.Code, detail + "; the log says more", false
			}
		}
	}
	return "", "", true
}

// Health lists the plugins that are not well, and a plugins file that is not
// valid, with their codes.
func (h *Host) Health() []obs.Reason {
	var reasons []obs.Reason
	h.mu.Lock()
	broken := h.broken
	h.mu.Unlock()
	if broken != nil {
		reasons = append(reasons, obs.Reason{Check: "plugins", Code: broken.Code, Detail: "the plugins file is not valid; the one before it is in use"})
	}
	for _, i := range h.Plugins() {
		if i.Code != "" {
			// Details may name paths and what a plugin says; they are for `rouse plugin ls`.
			r := obs.Reason{Check: "plugin:" + i.Name, Code: i.Code}
			if i.ownWords {
				r.Detail = i.Detail
			}
			reasons = append(reasons, r)
		}
	}
	return reasons
}
