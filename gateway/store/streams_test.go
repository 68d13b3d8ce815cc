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
