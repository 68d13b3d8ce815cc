package store_test

import (
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store"
)

func TestStampsPointIntoThePage(t *testing.T) {
	t.Parallel()
	st := open(t, pgtest.New(t).DSN)
	const message = `{"headers":{"operation":"insert"},"key":"k"}`
	two := message + "," + message
	if _, err := st.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: "j", ContentType: "application/json", Count: 1}); err != nil {
		t.Fatal(err)
	}
	var items []store.AppendItem
	for range 3 {
		items = append(items,
			store.AppendItem{Service: 1, Path: "j", Type: "application/json", Payload: []byte(two), Count: 2, Stamps: []int32{12, int32(len(message)) + 13}},
			store.AppendItem{Service: 1, Path: "j", Type: "application/json", Payload: []byte("7"), Count: 1})
	}
	rs, err := st.StreamAppend(t.Context(), items, false)
	if err != nil {
		t.Fatal(err)
	}
	// From every append's end, and from inside the first: its start is found too.
	for _, from := range []int64{0, 5, rs[0].Position, rs[1].Position, rs[3].Position} {
		p, err := st.StreamRead(t.Context(), store.ReadRequest{Service: 1, Path: "j", From: &from, MaxBytes: 1000, MaxRows: 100})
		if err != nil || p.Next != p.Tail {
			t.Fatalf("from %d: next %d, %v", from, p.Next, err)
		}
		if want := strings.Count(string(p.Data), "headers"); len(p.StampAt) != want || want == 0 {
			t.Fatalf("from %d: %d stamps, want %d", from, len(p.StampAt), want)
		}
		for i, at := range p.StampAt {
			if !strings.HasPrefix(string(p.Data[at:]), `"operation"`) {
				t.Fatalf("from %d: stamp %d points at %q", from, i, p.Data[at:])
			}
			if got, want := p.StampPosition[len(p.StampAt)-1-i], rs[4-i/2*2].Position; got != want {
				t.Fatalf("from %d: stamp %d from the end has position %d, want %d", from, i, got, want)
			}
		}
	}
}

// Behind a transaction pooler nothing is prepared by name; the calls' binary
// forms must not depend on it.
func TestStreamsThroughAPoolersMode(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), store.Options{DSN: pgtest.New(t).DSN, Pooled: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	if _, err := st.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: "a", ContentType: "application/json", Count: 1}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		seq := string(rune('a' + i))
		rs, err := st.StreamAppend(t.Context(), []store.AppendItem{
			{Service: 1, Path: "a", Type: "application/json", Payload: []byte(`{"headers":{"operation":"x"}}`), Count: 1, Stamps: []int32{12}},
			{Service: 1, Path: "a", Type: "application/json", Payload: []byte(`1`), Count: 1, StreamSeq: &seq, Producer: &store.Producer{ID: "p", Seq: int64(i)},
				Claim: &store.WriteClaim{ConsumerID: 1, Epoch: 1, WakeID: "018f0000-0000-7000-8000-000000000001"}},
			{Service: 1, Path: "none", Type: "application/json", Payload: []byte(`1`), Count: 1},
		}, false)
		if err != nil || rs[0].Outcome != store.Appended || rs[1].Outcome != store.Appended || rs[2].Outcome != store.NotFound || rs[1].Position != int64(30*(i+1)) {
			t.Fatalf("%+v, %v", rs, err)
		}
	}
	from := int64(0)
	p, err := st.StreamRead(t.Context(), store.ReadRequest{Service: 1, Path: "a", From: &from, MaxBytes: 1000, MaxRows: 100})
	if err != nil || len(p.StampAt) != 3 || p.Tail != 90 {
		t.Fatalf("%+v, %v", p, err)
	}
}
