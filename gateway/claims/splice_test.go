package claims

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// With agrees with decoding, setting and encoding, whatever the object holds.
func TestWithSetsMembers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"claimToken", "callback", "entity", "x y"})
		value := rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.MapOf(names, rapid.Bool()), func(m map[string]bool) any { return m }),
			rapid.Just[any](nil))
		object := rapid.MapOf(names, value).Draw(t, "object")
		raw, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "spaced") {
			raw = append([]byte(" { "), append(raw[1:], ' ')...)
		}
		token := rapid.String().Draw(t, "token")
		got, err := With(raw, Member{"claimToken", Text(token)}, Member{"lease_ms", []byte("30000")})
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		var have, want map[string]any
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(Text(token), &token); err != nil {
			t.Fatal(err)
		}
		want["claimToken"], want["lease_ms"] = token, float64(30000)
		if err := json.Unmarshal(got, &have); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if !reflect.DeepEqual(have, want) {
			t.Fatalf("%s gave %s", raw, got)
		}
	})
}

func TestWithRefusesWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{``, `[]`, `"x"`, `{`} {
		if got, err := With(json.RawMessage(raw), Member{"a", []byte("1")}); err == nil {
			t.Errorf("%q gave %s", raw, got)
		}
	}
}
