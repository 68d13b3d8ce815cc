// Package opa is the authorizer of Rego policies (Open Policy Agent's language).
//
// It owns a policy that is read from a file or a folder, prepared once and
// replaced as a whole when the files change. It promises that a policy that
// cannot be read or compiled leaves the one before in place, that a decision ends
// by its deadline, that a policy reaches nothing outside itself, and that the
// decision log holds no secret. It knows nothing of the gateway.
package opa

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/loader"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/rouse-run/rouse/plugins/contract"
)

// Options of an [Authorizer]. Policy is needed.
type Options struct {
	// Name is used in logs; empty means "opa".
	Name string
	// Policy is a .rego file, or a folder whose .rego, .json and .yaml files are
	// taken, those below it too; tests (…_test.rego) are not.
	Policy string
	// Query is what is asked; empty means data.rouse.decision. Its value is true
	// or false, "allow", "deny" or "no_opinion", or an object of "verdict",
	// "cache_for_ms" and "reason", which is for the log. When it is undefined, there is no opinion.
	Query string
	// Deadline ends an evaluation, which then refuses; zero means 50 ms.
	Deadline time.Duration
	// CacheFor is how long a decision may be remembered whose policy does not say;
	// zero means 5 s, negative not at all. What
	// is remembered ends with the first answer of a policy that was read anew.
	CacheFor time.Duration
	// Recheck is how often the files are looked at; zero means 2 s.
	Recheck time.Duration
	// Decisions writes each decision to the log.
	Decisions bool
	Log       *slog.Logger
}

const (
	// maxInput bounds a question in bytes.
	maxInput = 8 << 10
	// maxReason bounds a decision's reason in bytes.
	maxReason = 300
	// maxPolicy bounds all files of a policy in bytes.
	maxPolicy = 16 << 20
)

// unsafe are built-in functions that reach outside the policy, or stand still.
var unsafe = map[string]struct{}{"http.send": {}, "net.lookup_ip_addr": {}, "opa.runtime": {}, "rego.metadata.rule": {}, "rego.metadata.chain": {}}

// Authorizer judges by a policy. It is safe for concurrent use.
type Authorizer struct {
	o   Options
	end context.CancelFunc
	wg  sync.WaitGroup

	now    atomic.Pointer[policy]
	broken atomic.Pointer[string] // why the newest files are not in use
}

// policy is one state of the files.
type policy struct {
	query rego.PreparedEvalQuery
	id    string // begins the hash of the files, for the log
}

var _ contract.Authorizer = (*Authorizer)(nil)

// New reads the policy and goes on to look after its files until ctx ends or
// Close is called.
func New(ctx context.Context, o Options) (*Authorizer, error) {
	if o.Name == "" {
		o.Name = "opa"
	}
	if o.Query == "" {
		o.Query = "data.rouse.decision"
	}
	if o.Deadline <= 0 {
		o.Deadline = 50 * time.Millisecond
	}
	if o.CacheFor == 0 {
		o.CacheFor = 5 * time.Second
	}
	if o.Recheck <= 0 {
		o.Recheck = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &Authorizer{o: o}
	files, hash, err := read(o.Policy)
	if err != nil {
		return nil, err
	}
	p, err := a.prepare(ctx, files, hash)
	if err != nil {
		return nil, err
	}
	a.now.Store(p)
	ctx, a.end = context.WithCancel(ctx)
	a.wg.Go(func() { a.watch(ctx, hash) })
	return a, nil
}

// Close ends the looking after the files.
func (a *Authorizer) Close() {
	a.end()
	a.wg.Wait()
}

// Name implements contract.Authorizer.
func (a *Authorizer) Name() string { return a.o.Name }

// Broken says why the newest files are not in use; "" when they are.
func (a *Authorizer) Broken() string {
	if why := a.broken.Load(); why != nil {
		return *why
	}
	return ""
}

// watch replaces the policy when the files change.
func (a *Authorizer) watch(ctx context.Context, seen string) {
	tick := time.NewTicker(a.o.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		files, hash, err := read(a.o.Policy)
		if err == nil && hash == seen {
			continue
		}
		var p *policy
		if err == nil {
			p, err = a.prepare(ctx, files, hash)
			if !errors.Is(err, errRoom) {
				seen = hash // what is broken is tried once
			}
		}
		if err != nil {
			why := err.Error()
			if old := a.broken.Swap(&why); old == nil || *old != why {
				a.o.Log.Warn("the policy changed and cannot be used; the old one stays", "hook", a.o.Name, "error", err)
			}
			continue
		}
		a.now.Store(p)
		a.broken.Store(nil)
		a.o.Log.Info("the policy was replaced", "hook", a.o.Name, "policy", p.id)
	}
}

// read gives the policy's files, by their names within it, and a hash of them all.
func read(path string) (map[string][]byte, string, error) {
	root := filepath.Dir(path)
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		// A folder may be put in another one's place by turning a link.
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, "", fmt.Errorf("the policy cannot be read: %w", err)
		}
		root = path
	}
	files, size := map[string][]byte{}, 0
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// Orchestrators mount folders of links to folders with dots.
		if name != path && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		switch ext := filepath.Ext(name); {
		case d.IsDir(), strings.HasSuffix(name, "_test.rego"), ext != ".rego" && ext != ".json" && ext != ".yaml" && ext != ".yml":
			return nil
		}
		raw, err := os.ReadFile(name)
		if size += len(raw); err == nil && size > maxPolicy {
			err = errors.New("the policy is too large")
		}
		within, relErr := filepath.Rel(root, name)
		files[within] = raw
		return errors.Join(err, relErr)
	})
	if err != nil {
		return nil, "", fmt.Errorf("the policy cannot be read: %w", err)
	}
	sum := sha256.New()
	rules := false
	for _, name := range sorted(files) {
		fmt.Fprintf(sum, "%s\x00%d\x00", name, len(files[name]))
		sum.Write(files[name])
		rules = rules || filepath.Ext(name) == ".rego"
	}
	if !rules {
		return nil, "", errors.New("the policy has no .rego file")
	}
	return files, hex.EncodeToString(sum.Sum(nil)), nil
}

func sorted(files map[string][]byte) []string {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// errRoom says that a policy could not be laid out, which tells nothing of it.
var errRoom = errors.New("there is no room for the policy's files")

// prepare compiles what was read: the very bytes, whatever the files hold now.
func (a *Authorizer) prepare(ctx context.Context, files map[string][]byte, hash string) (*policy, error) {
	// Files of data are merged by the loader, which reads them where they are; they
	// are laid out for it as they were read.
	dir, err := os.MkdirTemp("", "rouse-policy-")
	if err != nil {
		return nil, errors.Join(errRoom, err)
	}
	defer os.RemoveAll(dir)
	for name, raw := range files {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return nil, errors.Join(errRoom, err)
		}
		if err := os.WriteFile(to, raw, 0o600); err != nil {
			return nil, errors.Join(errRoom, err)
		}
	}
	// Schemas may refer to others by a URL: none is fetched.
	may := ast.CapabilitiesForThisVersion()
	may.AllowNet = []string{}
	query, err := rego.New(rego.Query(a.o.Query), rego.Load([]string{dir}, loader.Filter(nil)), rego.UnsafeBuiltins(unsafe), rego.Capabilities(may)).PrepareForEval(ctx)
	if err != nil {
		return nil, fmt.Errorf("the policy cannot be used: %s", strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
	}
	return &policy{query, hash[:12]}, nil
}

// input is what a policy sees as input.
type input struct {
	Principal struct {
		Kind       string            `json:"kind"`
		ID         string            `json:"id"`
		Attributes map[string]string `json:"attributes"`
	} `json:"principal"`
	Verb     string `json:"verb"`
	Resource struct {
		Service string `json:"service"`
		Kind    string `json:"kind"`
		ID      string `json:"id"`
	} `json:"resource"`
	BuiltInAllowed bool `json:"built_in_allowed"`
}

var errTooLarge = fmt.Errorf("the question is larger than %d bytes", maxInput)

// Authorize implements contract.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, q contract.Question) (contract.Ruling, error) {
	began, p := time.Now(), a.now.Load()
	r, err := a.judge(ctx, p, q)
	if err != nil {
		r.Verdict = contract.Deny
	}
	if a.o.Decisions {
		attrs := []any{"hook", a.o.Name, "policy", p.id, "principal", q.Principal.Key(), "verb", q.Verb, "kind", q.Resource.Kind, "resource", q.Resource.ID,
			"service", q.Resource.Service, "built_in_allowed", q.BuiltInAllowed, "verdict", words[r.Verdict], "took", time.Since(began)}
		if err != nil {
			attrs = append(attrs, "error", err)
		}
		a.o.Log.InfoContext(ctx, "decision", attrs...)
	}
	return r, err
}

var words = map[contract.Verdict]string{contract.Allow: "allow", contract.Deny: "deny", contract.NoOpinion: "no_opinion"}

func (a *Authorizer) judge(ctx context.Context, p *policy, q contract.Question) (contract.Ruling, error) {
	var in input
	in.Principal.Kind, in.Principal.ID, in.Principal.Attributes = q.Principal.Kind, q.Principal.ID, q.Principal.Attributes
	in.Verb, in.BuiltInAllowed = q.Verb, q.BuiltInAllowed
	in.Resource.Service, in.Resource.Kind, in.Resource.ID = q.Resource.Service, q.Resource.Kind, q.Resource.ID
	raw, err := json.Marshal(in)
	if err != nil {
		return contract.Ruling{}, err
	}
	if len(raw) > maxInput {
		return contract.Ruling{}, errTooLarge
	}
	value, err := ast.ValueFromReader(strings.NewReader(string(raw)))
	if err != nil {
		return contract.Ruling{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.o.Deadline)
	defer cancel()
	got, err := p.query.Eval(ctx, rego.EvalParsedInput(value))
	if err != nil {
		if ctx.Err() != nil {
			return contract.Ruling{}, fmt.Errorf("the policy took longer than %v", a.o.Deadline)
		}
		return contract.Ruling{}, errors.New("the policy cannot be evaluated: " + code(err))
	}
	r := contract.Ruling{CacheFor: max(a.o.CacheFor, 0), Revision: p.id}
	if len(got) == 0 || len(got[0].Expressions) == 0 {
		return r, nil
	}
	err = read1(got[0].Expressions[0].Value, &r)
	return r, err
}

// code is an evaluation error's kind: its text may quote the input.
func code(err error) string {
	if e, ok := errors.AsType[*topdown.Error](err); ok {
		return e.Code
	}
	return "unknown"
}

var errValue = errors.New(`the policy's decision is none of true, false, "allow", "deny", "no_opinion" and an object of verdict, cache_for_ms and reason`)

// read1 takes a decision from what the query gave.
func read1(v any, r *contract.Ruling) error {
	switch v := v.(type) {
	case bool:
		r.Verdict = contract.Deny
		if v {
			r.Verdict = contract.Allow
		}
		return nil
	case string:
		for verdict, word := range words {
			if v == word {
				r.Verdict = verdict
				return nil
			}
		}
	case map[string]any:
		for name := range v {
			if name != "verdict" && name != "cache_for_ms" && name != "reason" {
				return errValue
			}
		}
		if ms, ok := v["cache_for_ms"]; ok {
			n, ok := ms.(json.Number)
			i, err := n.Int64()
			if !ok || err != nil || i < 0 || i > int64(24*time.Hour/time.Millisecond) {
				return errValue
			}
			r.CacheFor = time.Duration(i) * time.Millisecond
		}
		if why, ok := v["reason"]; ok {
			text, ok := why.(string)
			if !ok || len(text) > maxReason {
				return errValue
			}
			r.Why = text
		}
		if _, nested := v["verdict"].(map[string]any); !nested && v["verdict"] != nil {
			return read1(v["verdict"], r)
		}
	}
	return errValue
}
