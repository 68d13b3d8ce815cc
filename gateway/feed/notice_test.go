package feed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParseNotices(t *testing.T) {
	t.Parallel()
	cases := []struct {
		text    string
		want    []Notice
		refused bool
	}{
		{text: "", want: nil},
		{text: "7:128:1", want: []Notice{{Stream: 7, Tail: 128, Flags: Actionable}}},
		{text: "7:128:9:entity,8:0:4", want: []Notice{
			{Stream: 7, Tail: 128, Flags: Actionable | Created, Kind: "entity"}, {Stream: 8, Flags: Gone}}},
		{text: "9223372036854775807:9223372036854775807:4294967295", want: []Notice{
			{Stream: 1<<63 - 1, Tail: 1<<63 - 1, Flags: 1<<32 - 1}}},
		{text: "1:1:0:a:b", want: []Notice{{Stream: 1, Tail: 1, Kind: "a:b"}}},
		{text: "1:2:3,x,4:5:6", want: []Notice{{Stream: 1, Tail: 2, Flags: 3}, {Stream: 4, Tail: 5, Flags: 6}}, refused: true},
		{text: "9223372036854775808:1:1", refused: true},
		{text: "1:1:4294967296", refused: true},
		{text: "-1:1:1", refused: true},
		{text: "1:1", refused: true},
		{text: "1", refused: true},
		{text: ":1:1", refused: true},
		{text: "1::1", refused: true},
		{text: "1:1:", refused: true},
		{text: "1:1:1:", refused: true},
		{text: "1:1:1:" + strings.Repeat("k", maxKindBytes+1), refused: true},
		{text: "1:1:1,", want: []Notice{{Stream: 1, Tail: 1, Flags: 1}}, refused: true},
		{text: " 1:1:1", refused: true},
	}
	for _, c := range cases {
		var got []Notice
		err := parseNotices([]byte(c.text), func(n Notice) { got = append(got, n) })
		if !slices.Equal(got, c.want) || (err != nil) != c.refused {
			t.Errorf("parse %q: got %v, error %v; want %v, refused %v", c.text, got, err, c.want, c.refused)
		}
	}
}

func TestParseWakes(t *testing.T) {
	t.Parallel()
	var got []string
	collect := func(id string) { got = append(got, id) }
	if err := parseWakes([]byte("a,b-1"), collect); err != nil || !slices.Equal(got, []string{"a", "b-1"}) {
		t.Fatalf("got %v, %v", got, err)
	}
	got = nil
	if err := parseWakes([]byte("a,,"+strings.Repeat("x", maxWakeIDBytes+1)), collect); err == nil || !slices.Equal(got, []string{"a"}) {
		t.Fatalf("got %v, %v", got, err)
	}
}

// frame builders, after the layout in the Postgres manual.

func messageFrame(transactional bool, prefix, content string) []byte {
	b := []byte{frameMessage, 0}
	if transactional {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint64(b, 42)
	b = append(append(b, prefix...), 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(b, content...)
}

func commitFrame(commit, end LSN) []byte {
	b := []byte{frameCommit, 0}
	b = binary.BigEndian.AppendUint64(b, uint64(commit))
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	return binary.BigEndian.AppendUint64(b, 0)
}

func beginFrame() []byte { return append([]byte{frameBegin}, make([]byte, 8+8+4)...) }

type decoded struct {
	dec     decoder
	notices []Notice
	wakes   []string
	commits []LSN
	refused []string
}

func newDecoded() *decoded {
	d := &decoded{}
	d.dec = decoder{
		handlers: map[string]func([]byte) error{
			PrefixStreams: func(c []byte) error {
				return parseNotices(c, func(n Notice) { d.notices = append(d.notices, n) })
			},
			PrefixWakes: func(c []byte) error {
				return parseWakes(c, func(id string) { d.wakes = append(d.wakes, id) })
			},
		},
		commit:  func(end LSN) { d.commits = append(d.commits, end) },
		refused: func(prefix string, _ error) { d.refused = append(d.refused, prefix) },
	}
	return d
}

func TestDecoder(t *testing.T) {
	t.Parallel()
	d := newDecoded()
	for _, frame := range [][]byte{
		beginFrame(),
		messageFrame(true, PrefixStreams, "1:10:1"),
		messageFrame(true, "else", "1:99:1"),
		messageFrame(true, PrefixWakes, "w1,w2"),
		messageFrame(true, PrefixStreams, "nonsense"),
		commitFrame(100, 108),
		messageFrame(false, PrefixStreams, "2:20:1"),
		{'R', 1, 2, 3},
	} {
		if err := d.dec.decode(frame); err != nil {
			t.Fatalf("decode %q: %v", frame, err)
		}
		if wantInside := frame[0] == frameBegin || frame[0] == frameMessage && d.commits == nil; d.dec.inside != wantInside {
			t.Fatalf("after %q: inside %v", frame, d.dec.inside)
		}
	}
	if got, want := fmt.Sprint(d.notices, d.wakes, d.commits, d.refused), "[{1 10 1 }] [w1 w2] [0/6C] [rouse]"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestDecoderRefusesEveryTruncation(t *testing.T) {
	t.Parallel()
	for _, whole := range [][]byte{messageFrame(true, PrefixStreams, "1:10:1"), commitFrame(1, 2)} {
		for n := range len(whole) {
			if err := newDecoded().dec.decode(whole[:n:n]); err == nil {
				t.Errorf("%q cut to %d bytes was accepted", whole, n)
			}
		}
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(messageFrame(true, PrefixStreams, "1:10:1,2:3:4:kind"))
	f.Add(messageFrame(true, PrefixWakes, "w1,w2"))
	f.Add(messageFrame(false, "", ""))
	f.Add(commitFrame(1, 2))
	f.Add(beginFrame())
	f.Add([]byte{frameMessage, 1, 0, 0, 0, 0, 0, 0, 0, 0, 'x', 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, frame []byte) {
		d := newDecoded()
		before := bytes.Clone(frame)
		err := d.dec.decode(frame)
		if !bytes.Equal(before, frame) {
			t.Fatal("the decoder wrote into its input")
		}
		if err != nil && len(d.notices)+len(d.wakes)+len(d.commits) > 0 {
			t.Fatal("signals came out of a frame that was refused")
		}
		for _, n := range d.notices {
			if n.Stream < 0 || n.Tail < 0 || len(n.Kind) > maxKindBytes {
				t.Fatalf("notice out of bounds: %+v", n)
			}
		}
	})
}

// FuzzNotices checks that what is written in the documented form is read back.
func FuzzNotices(f *testing.F) {
	f.Add(int64(1), int64(10), uint32(1), "entity")
	f.Add(int64(1<<63-1), int64(0), uint32(1<<32-1), "")
	f.Fuzz(func(t *testing.T, stream, tail int64, flags uint32, kind string) {
		if stream < 0 || tail < 0 || len(kind) > maxKindBytes || strings.ContainsRune(kind, ',') {
			return
		}
		want := Notice{Stream: stream, Tail: tail, Flags: Flags(flags), Kind: kind}
		text := fmt.Sprintf("%d:%d:%d", stream, tail, flags)
		if kind != "" {
			text += ":" + kind
		}
		var got []Notice
		err := parseNotices([]byte(text+","+text), func(n Notice) { got = append(got, n) })
		if err != nil || !slices.Equal(got, []Notice{want, want}) {
			t.Fatalf("%q: got %v, %v", text, got, err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	d := newDecoded()
	begin, msg, commit := beginFrame(), messageFrame(true, PrefixStreams, "123456:7890123:1"), commitFrame(1, 2)
	b.ReportAllocs()
	for b.Loop() {
		d.notices, d.commits = d.notices[:0], d.commits[:0]
		for _, frame := range [][]byte{begin, msg, commit} {
			if err := d.dec.decode(frame); err != nil {
				b.Fatal(err)
			}
		}
	}
}
