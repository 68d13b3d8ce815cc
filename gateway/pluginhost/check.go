package pluginhost

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/rouse-run/rouse/plugins/wire"
)

// Checked is how the trial of one plugin ended.
type Checked struct {
	Name, Kind, Version string
	Err                 error // with a code; nil = it can be used
	// Printed is the end of what a plugin that cannot be used has printed.
	Printed []string
}

// printedLast bounds [Checked.Printed] in lines.
const printedLast = 20

// Check starts each plugin of a set as a gateway would, asks for its health and
// ends it. Of the Config it uses what built-in ones need.
func Check(ctx context.Context, cfg Config, set Set) ([]Checked, error) {
	m, err := newMetrics(nil)
	if err != nil {
		return nil, err
	}
	dir, err := temporary(cfg.TempDir)
	if err != nil {
		return nil, wrap(CodeStartFailed, bare(err), "there is no room for the plugins' sockets")
	}
	defer os.RemoveAll(dir)
	d := &deps{log: slog.New(slog.DiscardHandler), metrics: m, now: time.Now, selfArgs: cfg.SelfArgs, hostEnv: os.LookupEnv, pace: usualPace,
		dir: dir, starter: newStarter()}
	defer d.starter.stop()
	var all []Checked
	for _, name := range slices.Sorted(maps.Keys(set.Transports)) {
		spec := set.Transports[name]
		if b := spec.Builtin; b != "" && cfg.Builtins[b] == nil {
			all = append(all, Checked{Name: name, Kind: wire.Transport, Err: errorf(CodeConfiguration, "there is no builtin transport %q", b)})
			continue
		}
		if spec.InProcess || spec.Builtin != "" && len(cfg.SelfArgs) == 0 {
			l := newLocal(ctx, name, spec, cfg.Builtins[spec.Builtin](), d)
			c := Checked{Name: name, Kind: wire.Transport, Version: l.desc.version}
			if l.err != nil {
				c.Err = l.err
			}
			l.end()
			all = append(all, c)
			continue
		}
		all = append(all, try(ctx, newSlot(name, wire.Transport, d), spec))
	}
	for _, name := range slices.Sorted(maps.Keys(set.AuthHooks)) {
		all = append(all, try(ctx, newSlot(name, wire.AuthHook, d), set.AuthHooks[name]))
	}
	return all, nil
}

// try starts a plugin once.
func try(ctx context.Context, s *slot, spec Spec) (c Checked) {
	c = Checked{Name: s.name, Kind: s.kind}
	defer func() {
		if c.Err == nil {
			return
		}
		lines := s.out.lines()
		for _, l := range lines[max(0, len(lines)-printedLast):] {
			c.Printed = append(c.Printed, l.Text)
		}
	}()
	img, err := s.image(spec)
	if err != nil {
		c.Err = err
		return c
	}
	defer img.close()
	i, err := s.start(ctx, spec, img)
	if err != nil {
		c.Err = err
		return c
	}
	defer i.stop(stopGrace)
	c.Version = i.desc.version
	if why, err := i.health(ctx); err != nil {
		c.Err = wrap(CodeHung, rpcError(err), "it does not answer when asked for its health")
	} else if why != "" {
		c.Err = errorf(CodeUnhealthy, "it says that it is not well: %s", why)
	}
	return c
}
