// Command bench measures a built rouse binary over HTTP, next to what it is compared with in the same run: the
// ecosystem's npm reference server, a bare pgbench insert, and River. It prints a table, writes JSON, and never fails on
// a figure: absolute numbers belong to the machine.
//
// It knows the binary by its command line and its HTTP routes only, never by its packages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options of a run; each is a flag.
type options struct {
	Which       string        `json:"which"`
	Duration    time.Duration `json:"duration"`
	Repeat      int           `json:"repeat"`
	Connections int           `json:"connections"`
	Readers     int           `json:"readers"`
	ReaderRate  int           `json:"reader_rate"`
	Runners     int           `json:"runners"`
	InFlight    int           `json:"in_flight"`
	Entities    []int         `json:"entities"`
	WakeMiB     int           `json:"wake_mib"`
	NoPeers     bool          `json:"no_peers"`
	Out         string        `json:"-"`
	Binary      string        `json:"-"`
	Peer        string        `json:"-"`
	Debug       string        `json:"-"`
	Keep        bool          `json:"-"`
}

// scenario is a part of a run that -which can name.
type scenario struct {
	name string
	run  func(*rig, context.Context)
	// asked: only where -which names it, since it takes long.
	asked bool
}

func scenarios() []scenario {
	return []scenario{
		{name: "b1", run: (*rig).appends},
		{name: "b2", run: (*rig).live},
		{name: "b3", run: (*rig).fanOut},
		{name: "b4", run: (*rig).catchUp},
		{name: "b5", run: (*rig).wakes},
		{name: "b6", run: (*rig).scale},
		{name: "b7", run: (*rig).startUp},
		{name: "b9", run: (*rig).patterns},
		{name: "retention", run: (*rig).retention, asked: true},
	}
}

func main() {
	// Children are tied to the thread that starts them, and this thread lives as long as the process.
	runtime.LockOSThread()
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parse reads flags; a variable BENCH_NAME stands in for a flag -name that is not given.
func parse(args []string) (options, error) {
	var o options
	var names, usual []string
	for _, s := range scenarios() {
		names = append(names, s.name)
		if !s.asked {
			usual = append(usual, s.name)
		}
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.Which, "which", strings.Join(usual, ","), "what to measure; also: retention")
	f.DurationVar(&o.Duration, "duration", 3*time.Second, "length of each measurement, without warming up")
	f.IntVar(&o.Repeat, "repeat", 3, "how often everything is measured; the table has medians")
	f.IntVar(&o.Connections, "connections", 64, "connections, and streams, of the closed loops")
	f.IntVar(&o.Readers, "readers", 5000, "readers of the large fan-out")
	f.IntVar(&o.ReaderRate, "reader-rate", 2, "messages a second of the large fan-out")
	f.IntVar(&o.Runners, "runners", 64, "runners of the wake cycles")
	f.IntVar(&o.InFlight, "in-flight", 4, "wake cycles that one runner has open at once")
	entities := f.String("entities", "1000,100000,1000000", "sizes of the databases that are compared with each other")
	f.IntVar(&o.WakeMiB, "wake-mib", 1024, "MiB of old wake entries that retention deletes")
	f.BoolVar(&o.NoPeers, "no-peers", false, "measure rouse only")
	f.StringVar(&o.Out, "out", "../../bench-results/results.json", "where the JSON goes")
	f.StringVar(&o.Binary, "binary", "../../bin/rouse", "the rouse binary")
	f.StringVar(&o.Peer, "peer", "peer", "folder of the npm reference server")
	f.StringVar(&o.Debug, "debug", "", "ROUSE_DEBUG_LISTEN of the gateways, to profile them during a run")
	f.BoolVar(&o.Keep, "keep", false, "keep the working folder")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	given := map[string]bool{}
	f.Visit(func(g *flag.Flag) { given[g.Name] = true })
	var bad error
	f.VisitAll(func(g *flag.Flag) {
		name := "BENCH_" + strings.ToUpper(strings.ReplaceAll(g.Name, "-", "_"))
		if v, ok := os.LookupEnv(name); ok && !given[g.Name] {
			if err := g.Value.Set(v); err != nil {
				bad = errors.Join(bad, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	for _, s := range strings.Split(*entities, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1000 {
			bad = errors.Join(bad, fmt.Errorf("-entities: %q is not a number of at least 1000", s))
		}
		o.Entities = append(o.Entities, n)
	}
	for _, s := range strings.Split(o.Which, ",") {
		if !slices.Contains(names, s) {
			bad = errors.Join(bad, fmt.Errorf("-which: %q is none of %s", s, strings.Join(names, ", ")))
		}
	}
	if o.Duration < time.Second || o.Repeat < 1 || o.Connections < 1 || o.Readers < 1 || o.ReaderRate < 1 || o.Runners < 1 || o.InFlight < 1 || o.WakeMiB < 1 {
		bad = errors.Join(bad, errors.New("a duration is at least 1s and a number at least 1"))
	}
	return o, bad
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if o.Binary, err = filepath.Abs(o.Binary); err != nil {
		return err
	}
	if !o.NoPeers {
		install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
		install.Dir, install.Stdout, install.Stderr = o.Peer, os.Stderr, os.Stderr
		if err := install.Run(); err != nil {
			return fmt.Errorf("the npm reference server cannot be installed (-no-peers does without): %w", err)
		}
	}
	rep := newReport()
	r, err := newRig(ctx, o, rep)
	if r != nil {
		defer r.close()
	}
	if err != nil {
		return err
	}
	for _, s := range scenarios() {
		if ctx.Err() == nil && slices.Contains(strings.Split(o.Which, ","), s.name) {
			s.run(r, ctx)
		}
	}
	rep.table(os.Stdout)
	release, _ := exec.Command(o.Binary, "version").Output()
	versions := map[string]string{"rouse": strings.TrimSpace(string(release)), "postgres": r.pg.Version, "npm reference": "@durable-streams/server 0.3.7"}
	if err := rep.write(o.Out, o, versions); err != nil {
		return err
	}
	fmt.Printf("Every sample is in %s.\n", o.Out)
	return ctx.Err()
}
