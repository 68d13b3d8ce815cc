package streams

import (
	"context"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/store"
)

// rewritten is a database that answers one page, and whose state can be
// exchanged in the middle of a read.
type rewritten struct {
	Database
	generation uint64
	data       string
	during     func()
}

func (d *rewritten) Generation() uint64 { return d.generation }

func (d *rewritten) StreamRead(context.Context, store.ReadRequest) (store.StreamPage, error) {
	data := d.data
	if d.during != nil {
		d.during()
	}
	p := store.StreamPage{Data: []byte(data), Next: int64(len(data))}
	p.Outcome, p.ID, p.Tail = store.OK, 1, p.Next
	return p, nil
}

// What was read before the database went on from an older state is not served
// afterwards, nor kept when it arrives late.
func TestPagesGoWithTheDatabaseTheyWereReadFrom(t *testing.T) {
	t.Parallel()
	db := &rewritten{data: "lost"}
	c := newPages(db, 1<<20, 1<<20, time.Minute)
	c.ctx, c.signs = t.Context(), []func() uint64{db.Generation}
	want := func(body string) {
		t.Helper()
		p, err := c.next(t.Context(), 1, 0)
		if err != nil || string(p.body) != body {
			t.Fatalf("%q, %v, not %q", p.body, err, body)
		}
	}
	want("lost")
	db.data = "new"
	want("lost") // it is kept
	db.generation++
	want("new")
	db.generation++
	db.during = func() { db.generation, db.data, db.during = db.generation+1, "newest", nil }
	want("new") // it was asked for before
	want("newest")
	if len(c.kept) != 1 || c.bytes <= 0 || c.bytes > 2048 {
		t.Errorf("%d pages of %d bytes are kept", len(c.kept), c.bytes)
	}
}
