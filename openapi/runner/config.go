package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/sealed"
)

// Handler works one claim. ctx ends before the lease does, with the cause [ErrLost], and when a draining runner's grace
// is over, with [ErrDraining]; when the entity is to be worked by somebody else, with [ErrMoved]. Nil means done: what was read is acked. An error records the run as failed.
type Handler func(ctx context.Context, c *Claim) error

// Server is one service of one gateway. A runner may serve several.
type Server struct {
	// URL is the base that paths are appended to; its path and query are kept.
	URL string
	// Service selects a service of the gateway; empty = the default one.
	Service string
	// Token is sent as a bearer token. Principal, such as user:kyle, names the caller where the gateway lets callers say
	// so themselves, as `dev` does.
	Token     string
	Principal string
	// HTTP is the client to use; nil = one of its own. Its Timeout must be zero: the loop sets deadlines.
	HTTP *http.Client
}

// Registration is what a runner says of itself when it registers.
type Registration struct {
	Label string
	// Kind is local, cloud-worker, sandbox, ci or server; empty = local.
	Kind string
	// Capacity is how many claims the gateway grants it at once; zero = no limit there.
	Capacity int
	// IfAbsent leaves a runner that is registered already as it is.
	IfAbsent bool
}

// Style says how a wake is claimed.
type Style int

const (
	// ClaimFirst asks the runner's claim route, which answers the notification, and then the wake's callback for the
	// write token.
	ClaimFirst Style = iota
	// Callback asks the wake's callback with the claim token of the entry, as the RFC has it. Entries without a token
	// are claimed as by ClaimFirst.
	Callback
)

// Config of a [Runner].
type Config struct {
	// ID is the runner's identity, the same at every server.
	ID      string
	Servers []Server
	Handler Handler
	// Register makes the runner at each server first, or changes it; nil = it is there already.
	Register *Registration
	// Pools are joined before anything else; a refusal ends the runner.
	Pools []Pool
	// Capacity bounds the claims worked at once, over all servers. Zero = 4.
	Capacity int
	// Key opens wakes: every gateway is told to seal them to it, so that nobody between it and this process reads them.
	// nil = wakes come in the clear, and a key that was registered before is removed.
	Key *sealed.Key
	// Cursors keeps where each wake stream was left; nil = every start reads from the beginning.
	Cursors Cursors
	Style   Style
	// LeaveFailed leaves the messages of a failed run unread, so that a later run gets them again, each one later than
	// the one before (100 ms to 30 s). Otherwise they are acked, so that a broken handler does not run for ever.
	LeaveFailed bool
	// Liveness is the time between two heartbeats of the runner itself; its liveness lease is three of them. Zero = 30 s.
	Liveness time.Duration
	// Margin is how long before the lease's end the handler's context ends. Zero = a tenth of the lease, 2 s at most.
	Margin time.Duration
	// Timeout bounds every request but the tail. Zero = 30 s.
	Timeout time.Duration
	// Grace is how long handlers may go on when the runner is told to end. Zero = 10 s.
	Grace time.Duration
	// Log nil = silent.
	Log *slog.Logger
	// Observe is told what happens, from several goroutines; it must not block. May be nil.
	Observe func(Event)
}

// Event is something that happened.
type Event struct {
	Kind   EventKind
	Server string
	// Entity is the entity's URL, or the stream's path for what is no entity's.
	Entity string
	WakeID string
	Epoch  int64
	// Took is the time from the wake's arrival to its claim for Claimed, and from the claim on for the ends of a run.
	Took time.Duration
	Err  error
}

// EventKind says what happened.
type EventKind string

// The kinds.
const (
	Connected    EventKind = "connected"    // the wake stream is being read
	Disconnected EventKind = "disconnected" // it is not; Err says why
	Claimed      EventKind = "claimed"
	Refused      EventKind = "refused" // somebody else has it, or nothing is left to do
	Done         EventKind = "done"
	Failed       EventKind = "failed"   // the handler failed; that is recorded
	Lost         EventKind = "lost"     // the lease is gone, or may be
	Returned     EventKind = "returned" // given back unfinished, by a draining runner or because the entity has moved
)

var (
	// ErrLost says that the lease is gone or may be: stop, write nothing.
	ErrLost = errors.New("the claim is lost")
	// ErrMoved says that the entity is to be worked by somebody else, who waits for the claim: return soon. What was acked
	// stays so, the rest is for them.
	ErrMoved = errors.New("the entity has moved: the claim is wanted back")
	// ErrDraining says that the runner is ending and its grace is over.
	ErrDraining = errors.New("the runner is ending")
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// CheckID says what is wrong with a runner's id, which may be part of a file's name.
func CheckID(id string) error {
	if !idPattern.MatchString(id) {
		return errors.New("a runner's id is 1 to 128 letters, digits, dots, dashes or underscores and begins with a letter or digit")
	}
	return nil
}

// validate fills the defaults in.
func (c *Config) validate() error {
	var wrong []error
	if err := CheckID(c.ID); err != nil {
		wrong = append(wrong, err)
	}
	if c.Handler == nil {
		wrong = append(wrong, errors.New("a runner needs a handler"))
	}
	if len(c.Servers) == 0 {
		wrong = append(wrong, errors.New("a runner needs a server"))
	}
	seen := map[string]bool{}
	for _, s := range c.Servers {
		u, err := url.Parse(s.URL)
		switch key := s.key(); {
		case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
			wrong = append(wrong, errors.New("a server's address must be an http or https URL"))
		case seen[key]:
			wrong = append(wrong, fmt.Errorf("the server %s is named twice", s.name()))
		default:
			seen[key] = true
		}
	}
	for _, p := range c.Pools {
		if p.ID == "" || strings.ContainsRune(p.ID, '/') {
			wrong = append(wrong, errors.New("a worker pool's id must not be empty, nor hold a slash"))
		}
	}
	if c.Capacity < 0 || c.Capacity > 1024 {
		wrong = append(wrong, errors.New("a runner's capacity is 1 to 1024"))
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if c.Capacity == 0 {
		c.Capacity = 4
	}
	def(&c.Liveness, 30*time.Second)
	def(&c.Timeout, 30*time.Second)
	def(&c.Grace, 10*time.Second)
	if c.Cursors == nil {
		c.Cursors = noCursors{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	return errors.Join(wrong...)
}

// key tells servers apart: cursors are kept by it.
func (s Server) key() string {
	base := strings.TrimRight(s.URL, "/")
	if u, err := url.Parse(s.URL); err == nil {
		u.User, u.RawQuery, u.Fragment = nil, "", "" // may hold secrets, and say nothing about which server it is
		base = strings.TrimRight(u.String(), "/")
	}
	return base + " " + s.service()
}

func (s Server) service() string {
	if s.Service == "" {
		return "default"
	}
	return s.Service
}

// name is for people.
func (s Server) name() string {
	base, service, _ := strings.Cut(s.key(), " ")
	if service == "default" {
		return base
	}
	return base + "?service=" + service
}
