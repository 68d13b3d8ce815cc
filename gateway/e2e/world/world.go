// Package world has the people in front of whole gateways: one database, the gateways on it, and somebody who calls
// them. It promises that all of it ends with the test. It is for tests, and knows nothing of what they judge.
package world

import (
	"encoding/json"
	"testing"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// World is one database, gateways on it, and somebody at the first.
type World struct {
	*wire.Client
	T     *testing.T
	DB    *pgtest.DB
	Bases []string // of the gateways' URLs, in the order of their start
}

// New starts gateways on a database, a new one if opts has none, and puts kyle before the first.
func New(t *testing.T, gateways int, opts servertest.Options) *World {
	t.Helper()
	if opts.DB == nil {
		opts.DB = pgtest.New(t)
	}
	client := wire.NewHTTP(soon.Bound)
	w := &World{Client: &wire.Client{Principal: "user:kyle", HTTP: client}, T: t, DB: opts.DB}
	for range gateways {
		w.Start(opts)
	}
	t.Cleanup(client.CloseIdleConnections)
	return w
}

// Start starts one more gateway on the database, which the person turns to if there was none.
func (w *World) Start(opts servertest.Options) *servertest.Instance {
	w.T.Helper()
	opts.DB = w.DB
	in := servertest.Start(w.T, opts)
	base := "http://" + in.Addr().String() // its public URL may be another
	w.Bases = append(w.Bases, base)
	if w.Base == "" {
		w.Base = base
	}
	return in
}

// As is the same for somebody else; "" shows no credentials.
func (w *World) As(principal string) *World {
	c, other := *w.Client, *w
	c.Principal, other.Client = principal, &c
	return &other
}

// At is the same at another gateway.
func (w *World) At(gateway int) *World {
	c, other := *w.Client, *w
	c.Base, other.Client = w.Bases[gateway], &c
	return &other
}

// Call sends a request, with headers as pairs.
func (w *World) Call(method, path string, body any, header ...string) wire.Answer {
	w.T.Helper()
	a := w.Do(w.T.Context(), method, path, body, wire.Header(header...))
	if a.Err != nil {
		w.T.Fatalf("%s %s: %v", method, path, a.Err)
	}
	return a
}

// Must is Call with the status that has to come.
func (w *World) Must(status int, method, path string, body any, header ...string) wire.Answer {
	w.T.Helper()
	a := w.Call(method, path, body, header...)
	if a.Status != status {
		w.T.Fatalf("%s %s: %v, not %d: %s", method, path, a, status, a.Raw)
	}
	return a
}

// Refused is Call with the refusal that has to come, in the form of all refusals.
func (w *World) Refused(status int, code, method, path string, body any, header ...string) wire.Answer {
	w.T.Helper()
	a := w.Call(method, path, body, header...)
	if a.Status != status || a.Code != code {
		w.T.Fatalf("%s %s: %v, not %d %s: %s", method, path, a, status, code, a.Raw)
	}
	if why := a.Malformed(); why != "" {
		w.T.Errorf("%s %s: %s", method, path, why)
	}
	return a
}

// Eventually polls until ok.
func (w *World) Eventually(what string, ok func() bool) {
	w.T.Helper()
	soon.Until(w.T, what, ok)
}

// Into decodes an answer.
func Into[T any](t testing.TB, a wire.Answer) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.Raw, &v); err != nil {
		t.Fatalf("%s: %v", a.Raw, err)
	}
	return v
}

// One reads a value of the database.
func One[T any](w *World, sql string, args ...any) (v T) {
	w.T.Helper()
	if err := w.DB.Pool(w.T).QueryRow(w.T.Context(), sql, args...).Scan(&v); err != nil {
		w.T.Fatalf("%s: %v", sql, err)
	}
	return v
}
