package claims

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"strings"

	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/problem"
)

// Purpose says what a token is good for.
type Purpose string

// The purposes; each has a typed prefix, so that no auth hook takes one of ours
// for a user's credential.
const (
	// Claim travels with the wake and may acquire it, once.
	Claim Purpose = "rouse_ct_"
	// Hold is answered to whoever took the lease; it proves the holder.
	Hold Purpose = "rouse_ht_"
	// Write lets the holder append to the entity's streams.
	Write Purpose = "rouse_wt_"
)

// Token names one wake of one consumer. Everything in it is immutable.
type Token struct {
	Purpose  Purpose
	Service  int32
	Consumer int64
	Epoch    int64
	Wake     string
	// Claim distinguishes takers of one wake; empty for purpose Claim.
	Claim string
}

// ErrToken is answered for every token that does not verify; why is not said.
var ErrToken = problem.New(problem.ClaimTokenInvalid, "The claim token is not valid for this wake.")

// Tokens makes and verifies tokens: HMAC-SHA256 under a key of the ring over
// the purpose and the ids.
type Tokens struct{ keys *Keys }

// NewTokens uses the ring.
func NewTokens(k *Keys) *Tokens { return &Tokens{keys: k} }

// IsToken says whether s is formed like a token of ours.
func IsToken(s string) bool { return purposeOf(s) != "" || strings.HasPrefix(s, JoinPrefix) }

func purposeOf(s string) Purpose {
	for _, p := range []Purpose{Claim, Hold, Write} {
		if strings.HasPrefix(s, string(p)) {
			return p
		}
	}
	return ""
}

// Mint makes the token: the same bytes for the same ids and ring.
func (t *Tokens) Mint(k Token) string {
	key := t.keys.ring[0]
	body := encode(key.id, k)
	return string(k.Purpose) + base64.RawURLEncoding.EncodeToString(append(body, sum(key.secret, k.Purpose, body)...))
}

// Verify checks the signature and returns what the token names. It says
// nothing of whether the wake is still current: SQL does.
func (t *Tokens) Verify(s string) (Token, error) {
	p := purposeOf(s)
	// The decoder passes over line breaks, so that one token would have many
	// spellings.
	if p == "" || len(s) > 512 || strings.ContainsAny(s, "\r\n") {
		return Token{}, ErrToken
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s[len(p):])
	if err != nil || len(raw) < sha256.Size+1 {
		return Token{}, ErrToken
	}
	body, mac := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	id, k, err := decode(body)
	if err != nil {
		return Token{}, ErrToken
	}
	for _, key := range t.keys.ring {
		if key.id == id && hmac.Equal(mac, sum(key.secret, p, body)) {
			k.Purpose = p
			return k, nil
		}
	}
	return Token{}, ErrToken
}

// VerifyWrite is Verify for write tokens, as the stream handler needs it.
func (t *Tokens) VerifyWrite(s string) (consumerID, epoch int64, wakeID string, err error) {
	k, err := t.Verify(s)
	if err != nil || k.Purpose != Write {
		return 0, 0, "", problem.New(problem.Unauthorized, "Invalid write token")
	}
	return k.Consumer, k.Epoch, k.Wake, nil
}

func sum(secret []byte, p Purpose, body []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(p))
	m.Write(body)
	return m.Sum(nil)
}

func encode(keyID string, k Token) []byte {
	wake := uuid.MustParse(k.Wake) // made by Postgres
	b := make([]byte, 0, 96)
	b = append(b, byte(len(keyID)))
	b = append(b, keyID...)
	b = binary.AppendUvarint(b, uint64(k.Service))
	b = binary.AppendUvarint(b, uint64(k.Consumer))
	b = binary.AppendUvarint(b, uint64(k.Epoch))
	b = append(b, wake[:]...)
	if k.Claim != "" {
		h := sha256.Sum256([]byte(k.Claim))
		b = append(b, h[:8]...)
	}
	return b
}

var errShort = errors.New("short token")

func decode(b []byte) (keyID string, k Token, err error) {
	n := int(b[0])
	if len(b) < 1+n {
		return "", k, errShort
	}
	keyID, b = string(b[1:1+n]), b[1+n:]
	var nums [3]uint64
	for i := range nums {
		v, w := binary.Uvarint(b)
		if w <= 0 || v > 1<<62 || i == 0 && v > math.MaxInt32 {
			return "", k, errShort
		}
		nums[i], b = v, b[w:]
	}
	if len(b) != 16 && len(b) != 24 {
		return "", k, errShort
	}
	k = Token{Service: int32(nums[0]), Consumer: int64(nums[1]), Epoch: int64(nums[2]), Wake: uuid.UUID(b[:16]).String(), Claim: string(b[16:])}
	return keyID, k, nil
}
