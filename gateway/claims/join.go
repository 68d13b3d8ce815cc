package claims

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
)

// JoinPrefix begins join tokens: whoever shows one may put a runner of his own
// into the worker pool that it names. They prove nothing else.
const JoinPrefix = "rouse_jt_"

// Join is what a join token says. It is kept nowhere: a pool's generation, when
// it is raised, ends every token made before.
type Join struct {
	Service    int32
	Pool       string
	Generation int64
	// Expires has whole seconds.
	Expires time.Time
}

// ErrJoin is answered for every join token that is not valid; why is not said.
var ErrJoin = problem.New(problem.JoinTokenInvalid, "The join token is not valid for this pool, has expired, or was revoked. Ask the pool's owner for another one.")

// MintJoin makes the token.
func (t *Tokens) MintJoin(j Join) string {
	key := t.keys.ring[0]
	b := make([]byte, 0, 64+len(j.Pool))
	b = append(b, byte(len(key.id)))
	b = append(b, key.id...)
	b = binary.AppendUvarint(b, uint64(j.Service))
	b = binary.AppendUvarint(b, uint64(j.Generation))
	b = binary.AppendUvarint(b, uint64(j.Expires.Unix()))
	b = append(b, j.Pool...)
	return JoinPrefix + base64.RawURLEncoding.EncodeToString(append(b, sum(key.secret, JoinPrefix, b)...))
}

// VerifyJoin checks the signature and the time, which is now. Whether the
// generation is still the pool's, the database says.
func (t *Tokens) VerifyJoin(s string, now time.Time) (Join, error) {
	text, ok := strings.CutPrefix(s, JoinPrefix)
	if !ok || len(s) > 512 || strings.ContainsAny(s, "\r\n") {
		return Join{}, ErrJoin
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < sha256.Size+1 {
		return Join{}, ErrJoin
	}
	body, mac := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	n := int(body[0])
	if len(body) < 1+n {
		return Join{}, ErrJoin
	}
	id, rest := string(body[1:1+n]), body[1+n:]
	var nums [3]uint64
	for i := range nums {
		v, w := binary.Uvarint(rest)
		if w <= 0 || v > 1<<40 || i == 0 && v > math.MaxInt32 {
			return Join{}, ErrJoin
		}
		nums[i], rest = v, rest[w:]
	}
	j := Join{Service: int32(nums[0]), Generation: int64(nums[1]), Expires: time.Unix(int64(nums[2]), 0), Pool: string(rest)}
	for _, key := range t.keys.ring {
		if key.id == id && hmac.Equal(mac, sum(key.secret, JoinPrefix, body)) {
			if !now.Before(j.Expires) {
				return Join{}, ErrJoin
			}
			return j, nil
		}
	}
	return Join{}, ErrJoin
}

// JoinToken makes a token with which runners join a worker pool until it
// expires.
func (s *Service) JoinToken(j Join) string { return s.tokens.MintJoin(j) }

// VerifyJoin is [Tokens.VerifyJoin] at this moment.
func (s *Service) VerifyJoin(token string) (Join, error) {
	return s.tokens.VerifyJoin(token, time.Now())
}
