package contract

import (
	"context"
	"net/http"
	"time"
)

// Principal is who a request acts as.
type Principal struct {
	// Kind is user, agent, service or system.
	Kind string
	ID   string
	// Profile is kept on the users row: display_name, email, avatar_url,
	// auth_provider, auth_subject.
	Profile map[string]string
	// Attributes are what an authorizer may want to know besides, such as
	// groups; they are stored nowhere.
	Attributes map[string]string
}

// Key is the principal's short form, kind:id.
func (p Principal) Key() string { return p.Kind + ":" + p.ID }

// Verdict is an auth hook's answer.
type Verdict int

// The verdicts.
const (
	// NoOpinion passes the question to the next hook.
	NoOpinion Verdict = iota
	// Allow names the principal, or lets it do what is asked.
	Allow
	// Deny refuses the credentials, or what is asked.
	Deny
)

// Request is what an auth hook sees of a request: all that its answer may
// depend on.
type Request struct {
	// Header is the hook's own copy, without Rouse's own claim and write tokens,
	// and with only those fields that [HeaderReader] names.
	Header http.Header
	// Certificate is the client's certificate in DER, where the connection has one
	// and it was verified; else nil.
	Certificate []byte
}

// Decision answers who a request acts as.
type Decision struct {
	Verdict Verdict
	// Principal is set when the verdict is Allow.
	Principal Principal
	// CacheFor is how long equal requests may be answered from memory, counted
	// from when the hook was asked. Zero: not at all. The gateway has a limit of
	// its own.
	CacheFor time.Duration
	// Why says for the log, and to no caller, what is wrong with credentials that
	// are denied. It holds nothing of them.
	Why string
}

// AuthHook turns a request into a principal.
type AuthHook interface {
	// Name is used in logs and metrics.
	Name() string
	// Authenticate answers before ctx ends. An error denies with 503.
	Authenticate(ctx context.Context, r Request) (Decision, error)
}

// HeaderReader is an AuthHook that depends on some header fields only. It is
// shown no others, and answers are remembered by these. A hook that is none is
// shown all, and its answers are remembered by all.
type HeaderReader interface {
	// Headers are the names of the fields, always the same.
	Headers() []string
}

// Resource is what somebody wants to act on.
type Resource struct {
	// Service is the scope's name.
	Service string
	// Kind is route, entity, type, runner, worker-pool or shared-state.
	Kind string
	// ID is the route's path, or the thing's url, name, id or path.
	ID string
}

// Question asks whether a principal may do something.
type Question struct {
	Principal Principal
	// Verb is the HTTP method for a route, else the permission: read, write,
	// signal, fork, schedule, spawn, manage, …; dispatch on a
	// runner or worker-pool, claim on a runner.
	Verb     string
	Resource Resource
	// BuiltInAllowed is what ownership and grants say.
	BuiltInAllowed bool
}

// Ruling answers a [Question].
type Ruling struct {
	// Verdict NoOpinion passes the question on; after the last one the
	// configuration decides.
	Verdict Verdict
	// CacheFor is how long the same question may be answered from memory.
	CacheFor time.Duration
	// Why says for the log, and to no caller, why something is denied, without
	// secrets.
	Why string
	// Revision names the rules that the answer is by, if they change now and then:
	// an answer by others ends what is remembered of those before.
	Revision string
}

// Authorizer says what principals may do.
type Authorizer interface {
	// Name is used in logs and metrics.
	Name() string
	// Authorize answers before ctx ends. An error denies with 503.
	Authorize(ctx context.Context, q Question) (Ruling, error)
}
