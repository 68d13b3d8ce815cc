package seal_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/crypto/nacl/box"

	"github.com/rouse-run/rouse/gateway/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t testing.TB) (*seal.Key, *[32]byte) {
	t.Helper()
	public, private, err := box.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return seal.FromBytes(public[:]), private
}

type envelope struct {
	Type   string `json:"type"`
	KeyID  string `json:"keyId"`
	Sealed []byte `json:"sealed"`
}

func TestOnlyTheKeysHolderOpensAnEntry(t *testing.T) {
	t.Parallel()
	k, private := pair(t)
	_, other := pair(t)
	entry := []byte(`{"type":"wake","wakeId":"w-1","claimToken":"rouse_claim_secret","entity":{"spawnArgs":{"k":"v"}}}`)
	out, err := k.Entry(entry)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"w-1", "rouse_claim_secret", "spawnArgs", "entity"} {
		if bytes.Contains(out, []byte(word)) {
			t.Errorf("%q is in the clear: %s", word, out)
		}
	}
	var e envelope
	dec := json.NewDecoder(bytes.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil || e.Type != "wake" || e.KeyID != k.ID() || len(k.ID()) != 16 {
		t.Fatalf("%v: %s", err, out)
	}
	public := (*[32]byte)(k)
	got, ok := box.OpenAnonymous(nil, e.Sealed, public, private)
	if !ok || !bytes.Equal(bytes.TrimRight(got, " "), entry) || len(got)%256 != 0 {
		t.Fatalf("opened %t: %q", ok, got)
	}
	if _, ok := box.OpenAnonymous(nil, e.Sealed, public, other); ok {
		t.Error("another key opens it")
	}
	again, err := k.Entry(entry)
	if err != nil || bytes.Equal(again, out) {
		t.Errorf("the same entry seals to the same bytes (%v)", err)
	}
}

func TestEntriesOfOtherKindsKeepTheirKindAndNoKeyKeepsAll(t *testing.T) {
	t.Parallel()
	k, _ := pair(t)
	for entry, kind := range map[string]string{
		`{"type":"release","epoch":3}`: "release", `{"type":""}`: "wake", `{}`: "wake", `7`: "wake", `{"type":"a\"b"}`: `a"b`,
		`{"type":"` + strings.Repeat("x", 33) + `"}`: "wake",
	} {
		out, err := k.Entry([]byte(entry))
		var e envelope
		if err != nil || json.Unmarshal(out, &e) != nil || e.Type != kind || len(e.Sealed) == 0 {
			t.Errorf("%s became %s (%v)", entry, out, err)
		}
	}
	var none *seal.Key
	if out, err := none.Entry([]byte(`{"a":1}`)); err != nil || string(out) != `{"a":1}` {
		t.Errorf("no key made %s of it (%v)", out, err)
	}
	if none.ID() != "" || none.String() != "" || none.Bytes() != nil || seal.FromBytes([]byte{1}) != nil {
		t.Error("no key is some key")
	}
}

func TestKeysAreReadAsTheyAreWrittenAndWeakOnesRefused(t *testing.T) {
	t.Parallel()
	k, _ := pair(t)
	raw := k.Bytes()
	for _, text := range []string{k.String(), base64.RawStdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw)} {
		if got, err := seal.Parse(text); err != nil || *got != *k {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	low := []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
	}
	bad := []string{"", "AAAA", "not base64 at all, is it?", k.String() + "AAAA", strings.Repeat("=", 44), strings.Repeat("A", 1<<16)}
	for _, h := range low {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		bad = append(bad, base64.StdEncoding.EncodeToString(b))
	}
	for _, text := range bad {
		if got, err := seal.Parse(text); err == nil {
			t.Errorf("%.60q is read as %v", text, got)
		}
	}
}

func TestBareKeepsHintsOnly(t *testing.T) {
	t.Parallel()
	out, err := seal.Bare([]byte(`{"type":"wake","stream":"a/b/main","generation":4,"ts":9,"wakeId":"w","epoch":4,"claimToken":"x","callback":"u","entity":{"spawnArgs":1},"triggerEvent":"y","streams":[]}`))
	if err != nil || string(out) != `{"epoch":4,"generation":4,"stream":"a/b/main","ts":9,"type":"wake","wakeId":"w"}` {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := seal.Bare([]byte(`[1]`)); err == nil {
		t.Error("what is no object is reduced")
	}
}

// BenchmarkEntry is what sealing costs for each entry that is served.
func BenchmarkEntry(b *testing.B) {
	k, private := pair(b)
	entry := []byte(`{"type":"wake","filler":"` + strings.Repeat("x", 1000) + `"}`)
	b.Run("seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := k.Entry(entry); err != nil {
				b.Fatal(err)
			}
		}
	})
	sealed, err := box.SealAnonymous(nil, entry, (*[32]byte)(k), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := box.OpenAnonymous(nil, sealed, (*[32]byte)(k), private); !ok {
				b.Fatal("it does not open")
			}
		}
	})
}
