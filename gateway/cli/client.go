package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/call"
)

// defaultServer is where `rouse dev` listens.
const defaultServer = "http://127.0.0.1:4437"

// requestTimeout bounds every request but those that wait for data.
const requestTimeout = 30 * time.Second

// clientFlags are those of every command that asks a gateway.
type clientFlags struct {
	Server  string `group:"gateway" help:"The gateway's address (ROUSE_SERVER; default: ${server})." placeholder:"URL"`
	Service string `group:"gateway" help:"The service there (ROUSE_SERVICE)." placeholder:"NAME"`
	As      string `group:"gateway" help:"Act as this principal, such as user:kyle, where a gateway lets callers say who they are, as dev does (ROUSE_AS)." placeholder:"KIND:NAME"`
	Token   string `group:"gateway" help:"The caller's token (ROUSE_TOKEN, which keeps it out of process lists)." placeholder:"TOKEN"`
	JSON    bool   `help:"Print JSON."`
}

// server is the server that the flags and the environment name.
func (f clientFlags) server(r *run) (runner.Server, error) {
	env := r.environ()
	or := func(flag, variable, otherwise string) string {
		switch {
		case flag != "":
			return flag
		case env[variable] != "":
			return env[variable]
		}
		return otherwise
	}
	s := runner.Server{URL: or(f.Server, "ROUSE_SERVER", defaultServer), Service: or(f.Service, "ROUSE_SERVICE", ""),
		Principal: or(f.As, "ROUSE_AS", ""), Token: or(f.Token, "ROUSE_TOKEN", "")}
	for name, v := range map[string]string{"the principal": s.Principal, "the token": s.Token} {
		if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' }) {
			return s, failf(ExitUsage, "%s holds characters that cannot be sent", name)
		}
	}
	if u, err := url.Parse(s.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return s, failf(ExitUsage, "the gateway's address must be an http or https URL, such as %s", defaultServer)
	}
	return s, nil
}

// caller is a command's way to a gateway.
type caller struct {
	*client.Client
	*printer
	r      *run
	server runner.Server
	json   bool
	ctx    context.Context
	advice map[string]string // what a command knows better to say about a code than hint
}

// caller connects a command. Ctrl-C ends what it waits for.
func (f clientFlags) caller(r *run) (*caller, func(), error) {
	server, err := f.server(r)
	if err != nil {
		return nil, nil, err
	}
	c, err := server.Client()
	if err != nil {
		return nil, nil, fail(ExitUsage, err)
	}
	ctx, restore := untilSignalled(r.ctx)
	return &caller{Client: c, printer: newPrinter(r), r: r, server: server, json: f.JSON, ctx: ctx}, restore, nil
}

// nobodys is what belongs to whoever names nobody where a gateway lets callers do so.
const nobodys = "/principal/system%3Adev-local"

// nobody says that the caller says not who they are.
func (c *caller) nobody() bool { return c.server.Principal == "" && c.server.Token == "" }

// connected runs a command with its way to a gateway.
func (f clientFlags) connected(r *run, do func(*caller) error) error {
	c, done, err := f.caller(r)
	if err != nil {
		return err
	}
	defer done()
	return c.explain(do(c))
}

// ask makes one request and decodes its answer into out (nil = there is nothing to decode).
func (c *caller) ask(out any, do func(ctx context.Context) (*http.Response, error)) error {
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	resp, err := do(ctx)
	return call.Decode(resp, err, out)
}

// head makes one request whose answer is in its headers.
func (c *caller) head(do func(ctx context.Context) (*http.Response, error)) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	resp, err := do(ctx)
	_, err = call.Bytes(resp, err)
	return resp, err
}

// explain puts a failed request into words: the code, what the gateway says, the places that are wrong, and what to do
// next. What is no request's failure stays as it is.
func (c *caller) explain(err error) error {
	var e *call.Error
	var coded *exitError
	var network *url.Error
	switch {
	case err == nil, errors.As(err, &coded):
		return err
	case errors.As(err, &e):
		text := e.Error()
		for _, f := range e.Fields {
			text += fmt.Sprintf("\n  %s: %s", f.Path, f.Message)
		}
		if next := c.hint(e); next != "" {
			text += "\n→ " + next
		}
		if e.Status >= 500 && e.Request != "" {
			text += "\n  request " + e.Request
		}
		return failf(refusalExit(e), "%s", printable(text))
	case c.ctx.Err() != nil:
		return failf(ExitFailed, "interrupted")
	case errors.As(err, &network):
		reason := network.Err
		if network.Timeout() {
			reason = fmt.Errorf("no answer in %v", requestTimeout)
		}
		return failf(ExitUnavailable, "the gateway at %s cannot be reached: %v\n→ start one with \"rouse dev\", or name another with --server or ROUSE_SERVER", c.server.URL, reason)
	}
	return err
}

func refusalExit(e *call.Error) int {
	switch e.Status {
	case http.StatusNotFound, http.StatusGone:
		return ExitServerNotFound
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ExitUnavailable
	}
	return ExitServerRefusal
}

// hint says what to do about a refusal, where its own text cannot: it knows no commands.
func (c *caller) hint(e *call.Error) string {
	if e.Detail == "Invalid write token" {
		return `"rouse entity send" sends an entity a message; its streams take only what holds its claim writes, with --claim-token`
	}
	if c.nameless(e) {
		return "set ROUSE_TOKEN or --token; in `rouse dev`, --as user:NAME is enough"
	}
	if strings.HasPrefix(e.Detail, "Nobody is known") {
		e = &call.Error{Code: "UNAUTHENTICATED"} // under the code that the protocol has for both
	}
	if advice := c.advice[e.Code]; advice != "" {
		return advice
	}
	switch e.Code {
	case "UNKNOWN_ENTITY_TYPE":
		return `"rouse type ls" lists the types; "rouse type put NAME" registers one`
	case "STREAM_NOT_FOUND":
		return `"rouse stream create PATH" makes it`
	case "STREAM_EXISTS":
		if strings.HasPrefix(e.Detail, "The plain stream ") {
			return `"rouse stream read PATH" shows what it holds, "rouse stream fork" keeps it under another name, "rouse stream delete PATH" frees the name`
		}
		return `"rouse stream info PATH" shows how it is configured`
	case "UNAUTHENTICATED":
		return "set ROUSE_TOKEN or --token to a token of this gateway; in `rouse dev`, --as user:NAME is enough"
	case "FORBIDDEN":
		if strings.HasPrefix(e.Detail, "The policy") {
			return "its authorizers decide: ask whoever runs the gateway"
		}
		fallthrough
	case "UNAUTHORIZED", "RUNNER_FORBIDDEN", "POOL_FORBIDDEN":
		return "act as its owner: with the owner's token in ROUSE_TOKEN or --token, or --as user:NAME in `rouse dev`"
	case "DUPLICATE_URL":
		return `"rouse entity inspect URL" shows the one that exists`
	case "SERVICE_NOT_FOUND":
		return `"rouse service create NAME" makes it; or leave --service and ROUSE_SERVICE out`
	case "NOT_RUNNING":
		return `"rouse entity inspect URL" shows its state; one that has ended stays so, "rouse entity spawn" makes another`
	}
	if e.Status == http.StatusNotFound && e.Code == "" {
		return "is this a Rouse gateway?"
	}
	return ""
}

// nameless says that a request was refused because it came without any credentials.
func (c *caller) nameless(e *call.Error) bool {
	return e.Status == http.StatusUnauthorized && c.server.Token == "" && (c.server.Principal == "" || strings.HasPrefix(e.Detail, "Credentials are missing"))
}

// value takes what a person typed as JSON where it is JSON, and as text otherwise.
func value(text string, asText bool) json.RawMessage {
	if !asText && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	raw, _ := json.Marshal(strings.ToValidUTF8(text, "�"))
	return raw
}

// entityName takes "type/id", "/type/id" or "/type/id/main" apart.
func entityName(text string) (typ, id string, err error) {
	name := strings.TrimSuffix(strings.Trim(text, "/"), "/main")
	typ, id, ok := strings.Cut(name, "/")
	if !ok || typ == "" || id == "" {
		return "", "", failf(ExitUsage, "%q is no entity: name it as TYPE/ID, such as task/1", printable(text))
	}
	return typ, id, nil
}

// optional gives nil for what was not said.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func ptr[T any](v T) *T { return &v }

// maxLine is the longest line that is taken from standard input, in bytes.
const maxLine = 8 << 20

func scanLines(in io.Reader, give func(string) bool) error {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), maxLine)
	for s.Scan() {
		if !give(s.Text()) {
			return nil
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return nil
}
