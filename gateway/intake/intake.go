// Package intake takes request bodies in: it owns the memory they fill and the
// time they may take.
//
// It promises that all bodies together fill no more than their budget, that one
// which announces much and sends little holds little, that large bodies do not
// keep small ones out, and that one which stalls or trickles is cut off. It must
// not know what bodies hold or who sends them.
package intake

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
)

const (
	// firstStep is what a body holds before anything of it has come; most end
	// within it.
	firstStep = 16 << 10
	// readStep bounds one read, and is how often the deadline moves.
	readStep = 64 << 10
)

// Reader reads bodies. The zero values of all but Budget have defaults.
type Reader struct {
	Budget *Budget
	// Share, if there is one, is the part of the budget that bodies of this kind may
	// fill together, and Own the part of it that those of one client may.
	Share, Own *Budget
	// Whole is from how many bytes on a body is given all the memory that it may
	// need at once: large ones that have begun then wait for none that waits for
	// them, and leave nothing behind that they have outgrown. Zero: it grows with
	// what has come.
	Whole int64
	// MaxBytes bounds one body (default 16 MiB).
	MaxBytes int64
	// Stall is how long nothing may come (default 30 s).
	Stall time.Duration
	// MinRate is how many bytes a second must come on average once Stall is over
	// (default 16 KiB).
	MinRate int64
	// Rush takes the place of MinRate while somebody waits for the share, so that
	// who has a slow line, or pretends to, does not keep it from everybody. Zero: nobody is rushed.
	Rush int64
	// Wait is how long a body waits, all in all, for others to leave memory
	// (default 5 s).
	Wait time.Duration
}

// Read reads the request's body and returns it with a function that gives its
// share of the budget back; the function is never nil and is called once. A
// length that is too large is refused before a byte is read. Errors:
// PAYLOAD_TOO_LARGE, OVERLOADED, REQUEST_TIMEOUT, INVALID_REQUEST. After one the
// connection is given up, for the rest of the body may still be in it.
func (rd Reader) Read(w http.ResponseWriter, r *http.Request) (data []byte, release func(), err error) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil, func() {}, nil
	}
	b := body{Reader: rd.defaults(), r: r, started: time.Now(), rc: http.NewResponseController(w)}
	data, err = b.read()
	if err != nil {
		w.Header()["Connection"] = []string{"close"}
	}
	return data, func() { give([]*Budget{b.Own, b.Share, b.Budget}, b.held) }, err
}

func (rd Reader) defaults() Reader {
	if rd.MaxBytes <= 0 {
		rd.MaxBytes = 16 << 20
	}
	if rd.Stall <= 0 {
		rd.Stall = 30 * time.Second
	}
	if rd.MinRate <= 0 {
		rd.MinRate = 16 << 10
	}
	if rd.Wait <= 0 {
		rd.Wait = 5 * time.Second
	}
	return rd
}

// body is one that is being read.
type body struct {
	Reader
	r       *http.Request
	rc      *http.ResponseController
	started time.Time
	held    int64
}

func (b *body) read() ([]byte, error) {
	// Set before anything is refused, too: the server may look for the rest of the
	// body before it answers.
	b.deadline(0)
	known := b.r.ContentLength
	if known > b.MaxBytes {
		return nil, b.tooLarge()
	}
	// One byte more than allowed tells a body that is too large from one that
	// fits, when the length is not announced.
	most := b.MaxBytes + 1
	if known > 0 {
		most = known
	}
	buf, err := b.grow(nil, min(most, firstStep))
	if err != nil {
		return nil, err
	}
	n, since := 0, 0
	b.deadline(0)
	for {
		if n == len(buf) {
			if int64(n) == most {
				break
			}
			factor := int64(2)
			if known > 0 {
				factor = 4 // it will all be needed
			}
			next := min(most, int64(n)*factor)
			if b.Whole > 0 && next > b.Whole {
				next = most
			}
			if buf, err = b.grow(buf, next); err != nil {
				return nil, err
			}
			b.deadline(n)
			since = 0
		}
		m, err := b.r.Body.Read(buf[n:min(len(buf), n+readStep)])
		n, since = n+m, since+m
		if errors.Is(err, io.EOF) {
			b.noDeadline()
			return result(buf[:n]), nil
		}
		if err != nil {
			return nil, failed(err)
		}
		if since >= readStep {
			b.deadline(n)
			since = 0
		}
	}
	if known < 0 {
		return nil, b.tooLarge()
	}
	// Everything is here; what is behind it is for the server to judge.
	var one [1]byte
	if m, err := b.r.Body.Read(one[:]); m > 0 || err != nil && !errors.Is(err, io.EOF) {
		return nil, failed(err)
	}
	b.noDeadline()
	return buf, nil
}

func result(buf []byte) []byte {
	if len(buf) == 0 {
		return nil
	}
	return buf
}

// grow reserves memory and moves buf into it.
func (b *body) grow(buf []byte, size int64) ([]byte, error) {
	n := size - int64(len(buf))
	// Who waits for what is their own keeps nothing that others wait for.
	from := []*Budget{b.Own, b.Share, b.Budget}
	for i, budget := range from {
		if !b.reserve(budget, n) {
			give(from[:i], n)
			return nil, problem.New(problem.Overloaded, "Too many bodies are in flight. Try again.")
		}
	}
	b.held += n
	grown := make([]byte, size)
	copy(grown, buf)
	return grown, nil
}

// reserve takes n bytes of one budget, if there is one, and waits for them.
func (b *body) reserve(from *Budget, n int64) bool {
	if from == nil || from.tryAcquire(n) {
		return true
	}
	ctx, cancel := context.WithTimeout(b.r.Context(), b.Wait)
	defer cancel()
	began := time.Now()
	err := from.acquire(ctx, n)
	waited := time.Since(began)
	b.Wait -= waited
	b.started = b.started.Add(waited) // which was not the client's
	return err == nil
}

// give gives n bytes of each budget back.
func give(to []*Budget, n int64) {
	for _, budget := range to {
		if budget != nil {
			budget.release(n)
		}
	}
}

// deadline says until when the next bytes must come, when n have come.
func (b *body) deadline(n int) {
	rate := b.MinRate
	if b.Rush > rate && b.Share != nil && b.Share.wanted() {
		rate = b.Rush
	}
	stall := time.Now().Add(b.Stall)
	total := b.started.Add(b.Stall + time.Duration(float64(n)/float64(rate)*float64(time.Second)))
	if total.Before(stall) {
		stall = total
	}
	_ = b.rc.SetReadDeadline(stall) // not every connection has deadlines
}

func (b *body) noDeadline() { _ = b.rc.SetReadDeadline(time.Time{}) }

func (b *body) tooLarge() error {
	return problem.Newf(problem.PayloadTooLarge, "The body is larger than %d bytes. Send less.", b.MaxBytes)
}

func failed(err error) error {
	var ne net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout() {
		return problem.Wrap(problem.RequestTimeout, err, "The body arrived too slowly.")
	}
	return problem.Wrap(problem.InvalidRequest, err, "The body ended early or is malformed.")
}
