package claims

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestJoinTokens(t *testing.T) {
	t.Parallel()
	ring := func() *Tokens {
		k, err := ParseKeys(NewKeys())
		if err != nil {
			t.Fatal(err)
		}
		return NewTokens(k)
	}
	tokens, others := ring(), ring()
	now := time.Unix(1_800_000_000, 0)
	j := Join{Service: 3, Pool: "coding", Generation: 7, Expires: now.Add(time.Hour)}
	s := tokens.MintJoin(j)
	if got, err := tokens.VerifyJoin(s, now); err != nil || got != j {
		t.Fatalf("%+v %v", got, err)
	}
	if _, err := tokens.VerifyJoin(s, j.Expires.Add(-time.Nanosecond)); err != nil {
		t.Error("it ends before its time")
	}
	claim := tokens.Mint(Token{Purpose: Claim, Service: 3, Epoch: 1, Wake: "0190a0a0-0000-7000-8000-000000000000"})
	for name, bad := range map[string]string{
		"nothing": "", "a prefix": JoinPrefix, "another ring's": others.MintJoin(j), "a claim token": claim,
		"a claim token by another name": JoinPrefix + strings.TrimPrefix(claim, string(Claim)), "a byte more": s + "A", "a line break": s[:20] + "\n" + s[20:],
		"another pool's": s[:30] + string(s[30]^1) + s[31:], "too long": JoinPrefix + strings.Repeat("A", 600),
	} {
		if _, err := tokens.VerifyJoin(bad, now); !errors.Is(err, ErrJoin) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tokens.VerifyJoin(s, j.Expires); !errors.Is(err, ErrJoin) {
		t.Error("an expired token counts")
	}
	// It is ours, and yet good for nothing else.
	if !IsToken(s) {
		t.Error("a hook may take it for a user's")
	}
	for _, as := range []Purpose{Claim, Hold, Write} {
		if _, err := tokens.Verify(string(as) + strings.TrimPrefix(s, JoinPrefix)); err == nil {
			t.Errorf("it counts as %s", as)
		}
	}
	if _, err := tokens.Verify(s); err == nil {
		t.Error("it counts as a claim's token")
	}
}

func FuzzVerifyJoin(f *testing.F) {
	k, err := ParseKeys(NewKeys())
	if err != nil {
		f.Fatal(err)
	}
	tokens := NewTokens(k)
	now := time.Unix(1_800_000_000, 0)
	good := tokens.MintJoin(Join{Service: 1, Pool: "p", Generation: 1, Expires: now.Add(time.Minute)})
	f.Add(good)
	f.Add(JoinPrefix + "AAAA")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := tokens.VerifyJoin(s, now); err == nil && s != good {
			t.Fatalf("%q verifies", s)
		}
	})
}
