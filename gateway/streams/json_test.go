package streams

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

func TestFlatten(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in, out string
		count   int32
		stamps  []int32
	}{
		{`{"a": 1}`, `{"a": 1}`, 1, nil},
		{" \n 42\t", `42`, 1, nil},
		{`[]`, ``, 0, nil},
		{`[ 1 , "x,]" ,[2, 3],{"k" : null} ]`, `1,"x,]",[2, 3],{"k" : null}`, 4, nil},
		{`[[[1]]]`, `[[1]]`, 1, nil},
		{`{"headers":{"operation":"insert"},"key":"k"}`, `{"headers":{"operation":"insert"},"key":"k"}`, 1, []int32{12}},
		{`[{"a":1},{"key":1, "headers" : { "control":"reset"}}]`, `{"a":1},{"key":1, "headers" : { "control":"reset"}}`, 2, []int32{31}},
		{`{"headers":{"operation":7}}`, `{"headers":{"operation":7}}`, 1, nil},
		{`{"headers":["operation"]}`, `{"headers":["operation"]}`, 1, nil},
		{`{"x":{"headers":{"operation":"insert"}}}`, `{"x":{"headers":{"operation":"insert"}}}`, 1, nil},
		{`{"headers":{"offset":"mine"}}`, `{"headers":{"offset":"mine"}}`, 1, nil}, // no State Protocol message
		{`{"headers":{"offset":"mine","operation":"insert"}}`, `{"headers":{"operation":"insert"}}`, 1, []int32{12}},
		{`{"headers":{"operation":"insert" , "offset" : {"a":[1]} }}`, `{"headers":{"operation":"insert" }}`, 1, []int32{12}},
		{`{"headers":{ "offset":1 , "operation":"insert","txid":"9"}}`, `{"headers":{ "operation":"insert","txid":"9"}}`, 1, []int32{12}},
		{`[1,{"headers":{"operation":"a","offset":1,"x":2}},{"headers":{"operation":"b"}}]`,
			`1,{"headers":{"operation":"a","x":2}},{"headers":{"operation":"b"}}`, 3, []int32{14, 50}},
		{`{"\u0068eaders":{"\u006fffset":"x","operation":"insert"}}`, `{"\u0068eaders":{"operation":"insert"}}`, 1, []int32{17}},
	} {
		m, err := Flatten([]byte(tc.in))
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		if string(m.Data) != tc.out || m.Count != tc.count || !slices.Equal(m.Stamps, tc.stamps) {
			t.Errorf("%s: %s, %d, %v; want %s, %d, %v", tc.in, m.Data, m.Count, m.Stamps, tc.out, tc.count, tc.stamps)
		}
	}
}

func TestFlattenRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		``, ` `, `{`, `[1,]`, `[,1]`, `{"a":1,}`, `nul`, `01`, `1 2`, `{} {}`, `[1] x`, `"\x"`, "\"\xff\"", "\xef\xbb\xbf1", `{"a":1,"a":2}`,
		`{"headers":{"operation":"x","operation":"y"}}`, `[1`, `{"headers":{"operation":"x"}`, `NaN`, `'a'`, `{"headers":{`, `"`, "\x00",
		strings.Repeat("[", 600), strings.Repeat("[", 600) + strings.Repeat("]", 600), strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600),
	} {
		if _, err := Flatten([]byte(in)); problem.CodeOf(err) != problem.InvalidJSON {
			t.Errorf("%.40q: %v", in, err)
		}
	}
	if _, err := Flatten([]byte(strings.Repeat("[", 512) + strings.Repeat("]", 512))); err != nil {
		t.Errorf("512 deep: %v", err)
	}
	if _, err := Flatten([]byte(`[` + strings.Repeat(`"[{",`, 600) + `1]`)); err != nil {
		t.Errorf("brackets in strings: %v", err)
	}
}

// What is rendered after flattening means the same as what came in, with the
// offset of the append in each State Protocol message.
func FuzzFlattenAndRender(f *testing.F) {
	for _, s := range []string{`[1,{"headers":{"offset":1,"operation":"a"}},"x"]`, `{"headers":{"control":"c"}}`, `[]`, `[[]]`, `{"a":{}}`, `{"headers":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := Flatten(in)
		if err != nil {
			if problem.CodeOf(err) != problem.InvalidJSON {
				t.Fatalf("error without code: %v", err)
			}
			return
		}
		var want []any
		dec := func(b []byte, v any) error {
			d := json.NewDecoder(bytes.NewReader(b))
			d.UseNumber()
			return d.Decode(v)
		}
		if bytes.TrimLeft(in, " \t\r\n")[0] == '[' {
			err = dec(in, &want)
		} else {
			want = make([]any, 1)
			err = dec(in, &want[0])
		}
		if err != nil {
			t.Skip("the standard library reads less than what is valid")
		}
		const position = 77
		page := store.StreamPage{Data: m.Data, StampAt: m.Stamps, StampPosition: slices.Repeat([]int64{position}, len(m.Stamps))}
		out := render(page, true)
		var got []any
		if err := dec(out, &got); err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		for _, v := range want {
			o, _ := v.(map[string]any)
			h, _ := o["headers"].(map[string]any)
			_, op := h["operation"].(string)
			_, control := h["control"].(string)
			if op || control {
				h["offset"] = store.FormatOffset(position)
			}
		}
		if len(got) != int(m.Count) || len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q became %q", in, out)
		}
		if m.Count > 0 {
			parts, err := splitMessages(m.Data)
			if err != nil || len(parts) != int(m.Count) || string(bytes.Join(parts, []byte(","))) != string(m.Data) {
				t.Fatalf("split of %q: %q, %v", m.Data, parts, err)
			}
		}
	})
}

func BenchmarkFlatten(b *testing.B) {
	one := []byte(`{"type":"text_delta","key":"t1:17","value":{"text":"` + strings.Repeat("word ", 30) + `"},"headers":{"operation":"insert","txid":"123"}}`)
	for name, in := range map[string][]byte{"one": one, "batch of 100": append(append([]byte{'['}, bytes.Join(slices.Repeat([][]byte{one}, 100), []byte(","))...), ']')} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Flatten(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
