package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestASignatureVerifiesAgainstThePublishedSet(t *testing.T) {
	t.Parallel()
	old, fresh := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	before, err := Derive([][]byte{old})
	if err != nil {
		t.Fatal(err)
	}
	after, err := Derive([][]byte{fresh, old})
	if err != nil {
		t.Fatal(err)
	}
	body, at := []byte(`{"a":1}`), time.Unix(1700000000, 0)
	// After a rotation both the new key's signatures and those made before it
	// verify against what is published.
	for _, sig := range []string{before.Sign(body, at), after.Sign(body, at)} {
		if !verify(t, after.JWKS(), sig, body) {
			t.Errorf("%s does not verify", sig)
		}
		if verify(t, after.JWKS(), sig, []byte(`{"a":2}`)) {
			t.Errorf("%s verifies another body", sig)
		}
	}
	if before.Kid() == after.Kid() {
		t.Error("rotation must change the signing key")
	}
	if _, err := Derive(nil); err == nil {
		t.Error("an empty ring cannot sign")
	}
}

func verify(t *testing.T, set []byte, header string, body []byte) bool {
	t.Helper()
	parts := map[string]string{}
	for p := range strings.SplitSeq(header, ",") {
		k, v, _ := strings.Cut(p, "=")
		parts[k] = v
	}
	var jwks struct{ Keys []jwk }
	if err := json.Unmarshal(set, &jwks); err != nil {
		t.Fatal(err)
	}
	for _, k := range jwks.Keys {
		if k.Kid != parts["kid"] {
			continue
		}
		pub, err1 := base64.RawURLEncoding.DecodeString(k.X)
		sig, err2 := base64.RawURLEncoding.DecodeString(parts["ed25519"])
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		return ed25519.Verify(pub, append([]byte(parts["t"]+"."), body...), sig)
	}
	t.Fatalf("kid %s is not published", parts["kid"])
	return false
}
