package streams

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// maxRetentionAge is a hundred years; more bytes or messages than maxSafeInteger
// no stream has.
const maxRetentionAge = maxTTL * time.Second

// ages are the units that an age may be given in; without one it is in seconds.
var ages = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}

// retention reads Stream-Retention, the limits of a stream that is made, such as
// "age=7d; bytes=100000000; count=10000": an age in seconds or with the unit s, m,
// h or d, bytes, and messages; nil when it is not sent.
func retention(r *http.Request) (*store.Limits, error) {
	v, ok, err := header(r, hRetention)
	if err != nil || !ok {
		return nil, err
	}
	var l store.Limits
	seen := map[string]bool{}
	for part := range strings.SplitSeq(v, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seen[name] {
			return nil, badHeader(hRetention, "a limit is given more than once")
		}
		seen[name] = true
		unit := time.Second
		if name == "age" && value != "" {
			if u, ok := ages[value[len(value)-1]]; ok {
				unit, value = u, value[:len(value)-1]
			}
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 || n > maxSafeInteger || value[0] == '+' {
			return nil, badHeader(hRetention, "each limit is a whole number above zero, as in age=7d; bytes=1000000; count=1000")
		}
		switch name {
		case "age":
			if n > int64(maxRetentionAge/unit) {
				return nil, badHeader(hRetention, "an age is at most a hundred years")
			}
			l.Age = time.Duration(n) * unit
		case "bytes":
			l.Bytes = n
		case "count":
			l.Messages = n
		default:
			return nil, badHeader(hRetention, "the limits are age, bytes and count")
		}
	}
	return &l, nil
}

// sameLimits checks the limits of a stream that is there already against those it
// was asked for with. Others are another configuration: who may make streams may
// not limit those of others.
func (h *Handler) sameLimits(ctx context.Context, q *request, l store.Limits) error {
	has, err := h.Store.RetentionGet(ctx, q.service, q.path.Name)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return problem.New(problem.StreamNotFound, "The stream was deleted meanwhile.")
	case err != nil:
		return err
	case has.Source != "stream" || has.Limits != l:
		return problem.New(problem.StreamExists, "A stream with other limits exists at this path. The retention API changes them.")
	}
	return nil
}
