package claims_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	wakeA = "0190a8f2-7a10-4c6e-9a51-0d5f5a0c1a01"
	wakeB = "0190a8f2-7a10-4c6e-9a51-0d5f5a0c1a02"
)

func ring(t testing.TB, text string) *claims.Keys {
	t.Helper()
	k, err := claims.ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func tokens(t testing.TB, text string) *claims.Tokens {
	t.Helper()
	return claims.NewTokens(ring(t, text))
}

func examples() []claims.Token {
	var out []claims.Token
	for _, p := range []claims.Purpose{claims.Claim, claims.Hold, claims.Write} {
		for _, claim := range []string{"", "attempt-1", kyle} {
			out = append(out, claims.Token{Purpose: p, Service: 1, Consumer: 42, Epoch: 7, Wake: wakeA, Claim: claim},
				claims.Token{Purpose: p, Service: 300, Consumer: 1 << 40, Epoch: 1 << 50, Wake: wakeB, Claim: claim},
				claims.Token{Purpose: p, Wake: wakeA, Claim: claim})
		}
	}
	return out
}

func refused(t *testing.T, ts *claims.Tokens, what, token string) {
	t.Helper()
	k, err := ts.Verify(token)
	// Every refusal is the same one: it says nothing of why.
	if err == nil || !errors.Is(err, claims.ErrToken) || err.Error() != claims.ErrToken.Error() || k != (claims.Token{}) {
		t.Errorf("%s: %v, %+v", what, err, k)
	}
	if _, _, _, err := ts.VerifyWrite(token); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("%s, as a write token: %v", what, err)
	}
}

func TestTokensComeBackAsMinted(t *testing.T) {
	t.Parallel()
	ts := tokens(t, claims.NewKeys())
	seen := map[string]claims.Token{}
	for _, k := range examples() {
		s := ts.Mint(k)
		if s != ts.Mint(k) {
			t.Errorf("%+v is not minted the same again", k)
		}
		if other, ok := seen[s]; ok {
			t.Errorf("%+v and %+v share a token", k, other)
		}
		seen[s] = k
		got, err := ts.Verify(s)
		if err != nil || got.Purpose != k.Purpose || got.Service != k.Service || got.Consumer != k.Consumer || got.Epoch != k.Epoch || got.Wake != k.Wake {
			t.Errorf("%+v came back as %+v: %v", k, got, err)
		}
		if !claims.IsToken(s) || !strings.HasPrefix(s, string(k.Purpose)) {
			t.Errorf("%s has no prefix of ours", k.Purpose)
		}
		consumer, epoch, wake, err := ts.VerifyWrite(s)
		if (err == nil) != (k.Purpose == claims.Write) {
			t.Errorf("%+v as a write token: %v", k, err)
		}
		if err == nil && (consumer != k.Consumer || epoch != k.Epoch || wake != k.Wake) {
			t.Errorf("%+v as a write token: %d %d %s", k, consumer, epoch, wake)
		}
	}
}

// Every bit of a token counts, and so does its spelling.
func TestNoOtherBytesVerify(t *testing.T) {
	t.Parallel()
	text := claims.NewKeys()
	ts := tokens(t, text)
	for _, k := range examples() {
		s := ts.Mint(k)
		prefix, body := string(k.Purpose), s[len(k.Purpose):]
		raw, err := base64.RawURLEncoding.DecodeString(body)
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			for bit := range 8 {
				c := bytes.Clone(raw)
				c[i] ^= 1 << bit
				refused(t, ts, fmt.Sprintf("byte %d bit %d", i, bit), prefix+base64.RawURLEncoding.EncodeToString(c))
			}
		}
		for i := range len(s) {
			refused(t, ts, fmt.Sprintf("cut to %d", i), s[:i])
			refused(t, ts, fmt.Sprintf("without its first %d", i+1), s[i+1:])
			refused(t, ts, fmt.Sprintf("without character %d", i), s[:i]+s[i+1:])
		}
		for _, other := range []claims.Purpose{claims.Claim, claims.Hold, claims.Write} {
			if other != k.Purpose {
				refused(t, ts, "another purpose", string(other)+body)
			}
		}
		for _, extra := range []string{"=", "==", "A", "AAAA", " ", "\n", "\x00", s} {
			refused(t, ts, "with a tail", s+extra)
			refused(t, ts, "with a head", extra+s)
		}
		refused(t, ts, "upper case", strings.ToUpper(s))
		refused(t, ts, "the other alphabet", prefix+base64.RawStdEncoding.EncodeToString(append(raw, 0xff, 0xfe)))
	}
	for _, p := range []claims.Purpose{claims.Claim, claims.Hold, claims.Write} {
		for n := range 120 {
			refused(t, ts, "zeros", string(p)+base64.RawURLEncoding.EncodeToString(make([]byte, n)))
			refused(t, ts, "ones", string(p)+base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, n)))
		}
		refused(t, ts, "huge", string(p)+strings.Repeat("A", 16<<20))
	}
	for _, s := range []string{"", "rouse_", "rouse_xt_AAAA", "Bearer x", "eyJhbGciOiJub25lIn0.e30.", "\xff\xfe"} {
		refused(t, ts, "foreign", s)
		if claims.IsToken(s) {
			t.Errorf("%q passes for a token of ours", s)
		}
	}
}

// A rotation adds a key in front and drops the last.
func TestRotation(t *testing.T) {
	t.Parallel()
	first, second := claims.NewKeys(), claims.NewKeys()
	id, _, _ := strings.Cut(first, ":")
	_, secret, _ := strings.Cut(second, ":")
	before, during, after := tokens(t, first), tokens(t, second+first), tokens(t, second)
	impostor := tokens(t, id+":"+secret)
	for _, k := range examples() {
		old := before.Mint(k)
		if _, err := during.Verify(old); err != nil {
			t.Errorf("a token of the old key during the rotation: %v", err)
		}
		refused(t, after, "the dropped key", old)
		refused(t, impostor, "the same id, another secret", old)
		fresh := during.Mint(k)
		if fresh == old {
			t.Error("the new key does not sign")
		}
		if _, err := after.Verify(fresh); err != nil {
			t.Errorf("a token of the new key after the rotation: %v", err)
		}
		refused(t, before, "a key to come", fresh)
	}
}

func TestKeysAreRefusedWithoutShowingThem(t *testing.T) {
	t.Parallel()
	good := strings.TrimSpace(claims.NewKeys())
	_, secret, _ := strings.Cut(good, ":")
	for name, text := range map[string]string{
		"empty": "", "only a comment": "# nothing", "no id": ":" + secret, "no colon": secret, "short": "a:" + secret[:20], "not base64": "a:" + secret[:40] + "!!",
		"twice": good + "\n" + good, "a long id": strings.Repeat("x", 33) + ":" + secret,
	} {
		_, err := claims.ParseKeys(text)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret[:20]) {
			t.Errorf("%s: the error shows the secret", name)
		}
	}
	for name, text := range map[string]string{"commas": good + ",b:" + secret, "comments": "# the ring\n" + good + "\n# old\nb:" + secret, "crlf": good + "\r\nb:" + secret + "\r\n"} {
		if _, err := claims.ParseKeys(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No way of printing shows a secret or a token.
func TestSecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	text := claims.NewKeys()
	keys := ring(t, text)
	ts := claims.NewTokens(keys)
	_, enc, _ := strings.Cut(strings.TrimSpace(text), ":")
	secret, err := base64.StdEncoding.DecodeString(enc)
	if err != nil {
		t.Fatal(err)
	}
	hold := ts.Mint(claims.Token{Purpose: claims.Hold, Service: 1, Consumer: 1, Epoch: 1, Wake: wakeA})
	write := ts.Mint(claims.Token{Purpose: claims.Write, Service: 1, Consumer: 1, Epoch: 1, Wake: wakeA})
	grant := claims.Grant{ConsumerID: "e_1", HoldToken: hold, WriteToken: write}
	secrets := []string{enc, string(secret), fmt.Sprint(secret)[1:40], fmt.Sprintf("%x", secret[:8]), hold, write, hold[9:], write[9:]}
	svc := claims.New(t.Context(), nil, ts, claims.Config{})
	defer func() { _ = svc.Stop(t.Context()) }()
	for _, v := range []any{keys, *keys, ts, *ts, svc, grant, &grant, []claims.Grant{grant}, struct{ G claims.Grant }{grant},
		claims.AcquireRequest{Token: hold}, &claims.AcquireRequest{Token: write}, claims.HoldRequest{Token: hold}, map[string]any{"r": claims.HoldRequest{Token: write}}} {
		var logs bytes.Buffer
		slog.New(slog.NewTextHandler(&logs, nil)).Info("x", "v", v)
		if _, isToken := v.(struct{ G claims.Grant }); !isToken {
			slog.New(slog.NewJSONHandler(&logs, nil)).Info("x", "v", fmt.Sprint(v))
		}
		for how, s := range map[string]string{"%v": fmt.Sprintf("%v", v), "%+v": fmt.Sprintf("%+v", v), "%#v": fmt.Sprintf("%#v", v), "%s": fmt.Sprintf("%s", v), "slog": logs.String()} {
			for _, x := range secrets {
				if strings.Contains(s, x) {
					t.Errorf("%s of %T shows a secret", how, v)
				}
			}
		}
	}
	for _, v := range []any{keys, ts} {
		raw, err := json.Marshal(v)
		if err != nil || strings.Contains(string(raw), enc) {
			t.Errorf("JSON of %T: %v", v, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	ts := tokens(f, claims.NewKeys())
	for _, k := range examples() {
		s := ts.Mint(k)
		f.Add(s)
		f.Add(s[:len(s)-1])
	}
	f.Add("rouse_ct_")
	f.Add("rouse_wt_" + strings.Repeat("_", 200))
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ts.Verify(s)
		if err != nil {
			if !errors.Is(err, claims.ErrToken) {
				t.Fatalf("%v", err)
			}
			return
		}
		// What verifies was minted: it comes out the same again but for the
		// holder's mark, which is a hash.
		if k.Claim == "" && ts.Mint(k) != s {
			t.Fatalf("%q verifies and is not what is minted for %+v", s, k)
		}
	})
}
