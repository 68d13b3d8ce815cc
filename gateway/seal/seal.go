// Package seal owns how the entries of wake streams are sealed to a runner's
// public key: what of an entry stays in the clear, and what the key must be.
//
// It promises that a sealed entry shows its kind and the key it is for and
// nothing else, not even its length to within 256 bytes, that only the holder of
// the private key opens it, and that no key is accepted which everybody could
// open. It holds no private key, and knows neither HTTP nor who reads.
package seal

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/nacl/box"
)

// Key is an X25519 public key. A nil key seals nothing.
type Key [32]byte

// ErrKey says that a text is no key that can be sealed to.
var ErrKey = errors.New("must be the base64 of the 32 bytes of an X25519 public key")

var urlToStd = strings.NewReplacer("-", "+", "_", "/")

// Parse reads a key from base64, of either alphabet, padded or not. It refuses
// the points of low order: what is sealed to them is no secret.
func Parse(text string) (*Key, error) {
	if len(text) > 44 {
		return nil, ErrKey
	}
	raw, err := base64.RawStdEncoding.Strict().DecodeString(strings.TrimRight(urlToStd.Replace(text), "="))
	if err != nil || len(raw) != len(Key{}) {
		return nil, ErrKey
	}
	public, err := ecdh.X25519().NewPublicKey(raw)
	if err != nil {
		return nil, ErrKey
	}
	probe, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	if _, err := probe.ECDH(public); err != nil {
		return nil, ErrKey
	}
	return FromBytes(raw), nil
}

// FromBytes is a key as it is stored; nil for anything that is not 32 bytes.
func FromBytes(raw []byte) *Key {
	if len(raw) != len(Key{}) {
		return nil
	}
	k := Key(raw)
	return &k
}

// Bytes is the key as it is stored, nil for none.
func (k *Key) Bytes() []byte {
	if k == nil {
		return nil
	}
	return bytes.Clone(k[:])
}

// String is the key in base64, empty for none.
func (k *Key) String() string {
	if k == nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(k[:])
}

// ID names the key: the first 8 bytes of its SHA-256, in hex. Empty for none.
func (k *Key) ID() string {
	if k == nil {
		return ""
	}
	sum := sha256.Sum256(k[:])
	return hex.EncodeToString(sum[:8])
}

// padTo hides an entry's length: what is sealed is a multiple of it, in bytes.
const padTo = 256

// maxType bounds the kind that is shown.
const maxType = 32

// Entry seals one entry of a wake stream, a JSON object, as a libsodium sealed
// box (crypto_box_seal) of its text, which spaces follow. Its kind stays: by it a
// reader tells what it need not open.
func (k *Key) Entry(entry []byte) ([]byte, error) {
	if k == nil {
		return entry, nil
	}
	var e struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(entry, &e) != nil || e.Type == "" || len(e.Type) > maxType {
		e.Type = "wake"
	}
	kind, err := json.Marshal(e.Type)
	if err != nil {
		return nil, err
	}
	padded := append(make([]byte, 0, len(entry)+padTo), entry...)
	for len(padded)%padTo != 0 {
		padded = append(padded, ' ')
	}
	sealed, err := box.SealAnonymous(nil, padded, (*[32]byte)(k), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("seal an entry: %w", err)
	}
	out := make([]byte, 0, len(kind)+base64.StdEncoding.EncodedLen(len(sealed))+64)
	out = append(append(append(out, `{"type":`...), kind...), `,"keyId":"`...)
	out = append(append(out, k.ID()...), `","sealed":"`...)
	out = base64.StdEncoding.AppendEncode(out, sealed)
	return append(out, `"}`...), nil
}

// hints are what an entry says of itself to a reader who claims nothing.
var hints = []string{"type", "subscription_id", "stream", "generation", "ts", "consumerId", "streamPath", "epoch", "wakeId", "attempt", "targetIndex", "releaseBy"}

// Bare reduces an entry to its hints: no token, nothing of what the entity was
// spawned with.
func Bare(entry []byte) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(entry, &all); err != nil {
		return nil, err
	}
	out := make(map[string]json.RawMessage, len(hints))
	for _, name := range hints {
		if v, ok := all[name]; ok {
			out[name] = v
		}
	}
	return json.Marshal(out)
}
