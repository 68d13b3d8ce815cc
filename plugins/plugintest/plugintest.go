package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rouse-run/rouse/plugins/wire"
)

// Options of [Run].
type Options struct {
	// Path of the program; Args and Env are handed to it. Env is its whole
	// environment but for PATH.
	Path string
	Args []string
	Env  []string
	// Config is what it is configured with; empty means {}.
	Config json.RawMessage
	// Target is where a transport delivers to; empty means the first example of its
	// own schema.
	Target json.RawMessage
	// Timeout bounds a start and a call; zero means 5 s.
	Timeout time.Duration
}

// Result is how one case ended.
type Result struct {
	Name string
	// Err is how the plugin breaks the contract; nil if it does not.
	Err error
	// Note is something to know.
	Note string
	Took time.Duration
}

// errNotRun is wrapped by cases that had nothing to work with.
var errNotRun = errors.New("not run")

// NotRun says whether a case had nothing to work with.
func (r Result) NotRun() bool { return errors.Is(r.Err, errNotRun) }

// testCase is one way to use or mistreat a plugin. Each has a process of its own.
type testCase struct {
	name string
	run  func(ctx context.Context, k *kit) (note string, err error)
}

// kit is what the cases share.
type kit struct {
	opts Options
	kind string // found out by the first start
	dir  string // of the plugin's sockets, which one that is killed leaves behind
}

// socketDir makes a folder with a path that leaves room for a socket's name. It
// is called as a gateway's is: if this process is killed, the next gateway
// removes it.
func socketDir() (string, error) {
	base := os.TempDir()
	if len(base) > 40 {
		base = "/tmp"
	}
	return os.MkdirTemp(base, fmt.Sprintf("rouse-%d-p", os.Getpid()))
}

// Run puts a plugin through all cases that its kind has, and tells report of
// each as it ends. It answers whether all went well.
func Run(ctx context.Context, opts Options, report func(Result)) bool {
	if opts.Timeout <= 0 {
		opts.Timeout = 5 * time.Second
	}
	if len(opts.Config) == 0 {
		opts.Config = json.RawMessage(`{}`)
	}
	dir, err := socketDir()
	if err != nil {
		report(Result{Name: "there is room for its sockets", Err: err})
		return false
	}
	defer os.RemoveAll(dir)
	k := &kit{opts: opts, dir: dir}
	ok := true
	all := func(cases []testCase) {
		for _, c := range cases {
			began := time.Now()
			cctx, cancel := context.WithTimeout(ctx, 6*opts.Timeout)
			note, err := c.run(cctx, k)
			cancel()
			r := Result{Name: c.name, Err: err, Note: note, Took: time.Since(began)}
			ok = ok && (err == nil || r.NotRun())
			report(r)
		}
	}
	all(startCases)
	switch k.kind {
	case wire.Transport:
		all(transportCases)
	case wire.AuthHook:
		all(hookCases)
	default:
		return false
	}
	all(endCases)
	return ok
}

// startCases are those of every plugin before its kind is known.
var startCases = []testCase{
	{"started by hand, it says what it is and ends", byHand},
	{"it starts, describes itself and takes its settings", starts},
	{"it refuses to speak a contract version it does not know", otherVersion},
}

// endCases are about the end of the process.
var endCases = []testCase{
	{"after a crash it starts again", crash},
	{"it ends when it is told to", endsWhenTold},
	{"it ends when its gateway is killed", endsWithParent},
}

func starts(ctx context.Context, k *kit) (string, error) {
	p, err := k.start(ctx, k.opts.Config)
	if err != nil {
		return "", err
	}
	defer p.end()
	k.kind = p.kind
	if err := p.healthy(ctx); err != nil {
		return "", err
	}
	return p.summary, nil
}

// broken wraps an RPC status: with the contract, those are for broken plugins.
func broken(call string, err error) error {
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s was not answered in time", call)
	case codes.Unavailable:
		return fmt.Errorf("the process ended during %s", call)
	}
	return fmt.Errorf("%s: %w", call, err)
}
