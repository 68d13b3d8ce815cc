package claims

import (
	"slices"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
)

// What was signed before a rotation verifies until its key is retired, and what
// is signed after it verifies wherever the new key was added before.
func TestARingRotates(t *testing.T) {
	t.Parallel()
	text := "# made for tests\n" + NewKeys()
	ring := func() *Tokens {
		t.Helper()
		ks, err := ParseKeys(text)
		if err != nil {
			t.Fatal(err)
		}
		return NewTokens(ks)
	}
	claim := Token{Purpose: Claim, Service: 1, Consumer: 7, Epoch: 3, Wake: "0191d3a4-0000-7000-8000-000000000001"}
	before := ring()
	old := before.Mint(claim)
	first := before.keys.IDs()[0]

	var id string
	var err error
	if text, id, err = AddKey(text); err != nil {
		t.Fatal(err)
	}
	added := ring()
	if got := added.keys.IDs(); !slices.Equal(got, []string{first, id}) {
		t.Fatal(got)
	}
	if text, err = SignWith(text, id); err != nil {
		t.Fatal(err)
	}
	rotated := ring()
	fresh := rotated.Mint(claim)
	for name, tc := range map[string]struct {
		ring  *Tokens
		token string
		good  bool
	}{
		"old token, new ring": {rotated, old, true}, "new token, new ring": {rotated, fresh, true},
		"new token, where it was added": {added, fresh, true}, "new token, where it was not": {before, fresh, false},
	} {
		if _, err := tc.ring.Verify(tc.token); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Retire(text, id); problem.CodeOf(err) != problem.InvalidRequest {
		t.Errorf("the key that signs can be retired: %v", err)
	}
	if text, err = Retire(text, first); err != nil {
		t.Fatal(err)
	}
	if _, err := ring().Verify(old); err == nil {
		t.Error("a retired key verifies")
	}
	if !strings.HasPrefix(text, "# made for tests\n"+id+":") {
		t.Error("the comment or the order is lost")
	}
	for _, bad := range []func() error{
		func() error { _, err := SignWith(text, "nobody"); return err }, func() error { _, err := Retire(text, ""); return err },
		func() error { _, _, err := AddKey("rubbish"); return err },
	} {
		if err := bad(); problem.CodeOf(err) != problem.InvalidRequest || strings.Contains(err.Error(), "rubbish") {
			t.Error(err)
		}
	}
}
