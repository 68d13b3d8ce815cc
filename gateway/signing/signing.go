// Package signing owns the keys that sign outgoing webhooks.
//
// It promises that every key of the ring is published for as long as it stands
// there, that the first one signs, and that private keys never leave it: a
// transport gets a [Signer], not a key. It knows nothing of wakes or HTTP.
package signing

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Signer makes the value of the Webhook-Signature header for exactly the bytes
// that are sent.
type Signer interface {
	Sign(body []byte, at time.Time) string
}

// Keys signs with the first key and publishes all.
type Keys struct {
	private []ed25519.PrivateKey
	kids    []string
	jwks    []byte
}

type jwk struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Kid string `json:"kid"`
	Alg string `json:"alg"`
	Use string `json:"use"`
}

// Derive makes a signing key from each secret of the key ring (HKDF-SHA256,
// RFC 5869), so that all gateways that share a ring sign alike.
func Derive(secrets [][]byte) (*Keys, error) {
	k := &Keys{}
	set := struct {
		Keys []jwk `json:"keys"`
	}{Keys: []jwk{}}
	for _, s := range secrets {
		seed, err := hkdf.Key(sha256.New, s, nil, "rouse webhook signing ed25519 v1", ed25519.SeedSize)
		if err != nil {
			return nil, fmt.Errorf("derive a signing key: %w", err)
		}
		priv := ed25519.NewKeyFromSeed(seed)
		x := base64.RawURLEncoding.EncodeToString(priv.Public().(ed25519.PublicKey))
		// RFC 7638 thumbprint: the required members in lexical order.
		thumb := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + x + `"}`))
		kid := "ds_" + base64.RawURLEncoding.EncodeToString(thumb[:])
		k.private, k.kids = append(k.private, priv), append(k.kids, kid)
		set.Keys = append(set.Keys, jwk{"OKP", "Ed25519", x, kid, "EdDSA", "sig"})
	}
	if len(k.private) == 0 {
		return nil, fmt.Errorf("no key to sign with")
	}
	var err error
	k.jwks, err = json.Marshal(set)
	return k, err
}

// JWKS is the public set, as served at /__ds/jwks.json.
func (k *Keys) JWKS() []byte { return k.jwks }

// Kid names the key that signs.
func (k *Keys) Kid() string { return k.kids[0] }

// Sign returns "t=<unix>,kid=<kid>,ed25519=<base64url>" over "<t>.<body>".
func (k *Keys) Sign(body []byte, at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	msg := append([]byte(t+"."), body...)
	return "t=" + t + ",kid=" + k.kids[0] + ",ed25519=" + base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.private[0], msg))
}
