package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSplit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine+10)
	for in, want := range map[string][]string{
		"":               nil,
		"a\nb\n":         {"a", "b"},
		"a\r\n\r\n\nb":   {"a", "b"},
		"\xff\x00\n":     {"\xff\x00"},
		"a":              {"a"},
		long + "\nshort": {long[:32<<10*32], long[32<<10*32:], "short"},
	} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.HalfReader(strings.NewReader(in))} {
			var got []string
			if err := split(r, func(l []byte) bool { got = append(got, string(l)); return true }); err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, "") != strings.Join(want, "") || (len(in) < 100 && !slices.Equal(got, want)) {
				t.Errorf("%.40q: %.100q", in, got)
			}
			for _, l := range got {
				if len(l) > maxLine+32<<10 {
					t.Errorf("a line of %d bytes", len(l))
				}
			}
		}
	}
	broken := errors.New("broken")
	if err := split(iotest.ErrReader(broken), func([]byte) bool { return true }); !errors.Is(err, broken) {
		t.Error(err)
	}
	n := 0
	if err := split(strings.NewReader("a\nb\nc\n"), func([]byte) bool { n++; return false }); err != nil || n != 1 {
		t.Error(err, n)
	}
}

func TestIsRow(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		`{"headers":{"operation":"insert"},"type":"step","key":"1"}`:          true,
		` {"type":"step","key":"1","value":2,"headers":{"operation":"x"}} `:   true,
		`{"headers":{"control":"reset"}}`:                                     true,
		`{"headers":{"operation":"insert"},"type":"step"}`:                    false,
		`{"headers":{"operation":"insert"},"key":"1"}`:                        false,
		`{"headers":{"operation":1},"type":"step","key":"1"}`:                 false,
		`{"type":"step","key":"1"}`:                                           false,
		`{"headers":"x","type":"step","key":"1"}`:                             false,
		`[{"headers":{"operation":"insert"},"type":"step","key":"1"}]`:        false,
		`{"headers":{"operation":"insert"},"type":"step","key":"1"} trailing`: false,
		`hello`: false, ``: false, `{`: false, `null`: false, `7`: false,
	} {
		if isRow([]byte(line)) != want {
			t.Errorf("%s: %v", line, !want)
		}
	}
}

func TestTailWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &tailWriter{to: &out}
	for i := range 3000 {
		_, _ = fmt.Fprintf(w, "line %d\nand ", i)
	}
	w.flush()
	end := w.tail()
	if len(end) > maxTail || !strings.HasSuffix(end, "line 2999\nand") || strings.Count(out.String(), "\n") != 3001 {
		t.Errorf("%d bytes, ends %q", len(end), end[len(end)-30:])
	}
	_, _ = w.Write([]byte("\xff\xfe"))
	if !strings.HasSuffix(w.tail(), "�") {
		t.Error("the tail is not UTF-8")
	}
}
