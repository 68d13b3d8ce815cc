package streams

import (
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
)

const (
	// Readers that wait for the same data within one interval send the same
	// cursor, so that a CDN can answer them with one response.
	cursorInterval = 20 * time.Second
	cursorEpoch    = 1728432000 // 2024-10-09T00:00:00Z
	// A cursor never stands still: behind an equal or later one from the client,
	// it jumps by up to an hour.
	cursorJump = int64(time.Hour / cursorInterval)
)

// cursor returns the next cursor after the client's (-1 for none).
func cursor(now time.Time, client int64) int64 {
	c := (now.Unix() - cursorEpoch) / int64(cursorInterval/time.Second)
	if client < c {
		return c
	}
	return client + 1 + rand.Int64N(cursorJump)
}

// clientCursor reads the query's cursor, -1 for none.
func clientCursor(q url.Values) (int64, error) {
	if !q.Has("cursor") {
		return -1, nil
	}
	v, err := single(q, "cursor")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(v, 10, 53)
	if err != nil {
		return 0, problem.New(problem.InvalidRequest, "The cursor is not one the server handed out.").
			WithDetails(problem.Detail{Path: "query.cursor", Message: "echo Stream-Cursor or leave it out"})
	}
	return int64(n), nil
}
