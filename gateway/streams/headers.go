package streams

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Header names in canonical form.
const (
	hNextOffset    = "Stream-Next-Offset"
	hUpToDate      = "Stream-Up-To-Date"
	hCursor        = "Stream-Cursor"
	hClosed        = "Stream-Closed"
	hEarliest      = "Stream-Earliest-Offset"
	hRetention     = "Stream-Retention"
	hSeq           = "Stream-Seq"
	hTTL           = "Stream-Ttl"
	hExpiresAt     = "Stream-Expires-At"
	hForkedFrom    = "Stream-Forked-From"
	hForkOffset    = "Stream-Fork-Offset"
	hForkSub       = "Stream-Fork-Sub-Offset"
	hProducerID    = "Producer-Id"
	hProducerEpoch = "Producer-Epoch"
	hProducerSeq   = "Producer-Seq"
)

// Values of constant headers, shared by all responses.
var (
	vNosniff = []string{"nosniff"}
	vCORP    = []string{"cross-origin"}
	vOrigin  = []string{"*"}
	vMethods = []string{"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"}
	vAllow   = []string{"content-type, authorization, electric-claim-token, electric-owner-entity, electric-principal, electric-runner-id, " +
		"if-none-match, stream-seq, stream-ttl, stream-expires-at, stream-closed, stream-retention, stream-forked-from, stream-fork-offset, " +
		"stream-fork-sub-offset, producer-id, producer-epoch, producer-seq, idempotency-key, last-event-id, x-request-id, ngrok-skip-browser-warning"}
	vExpose = []string{"*, etag, location, retry-after, x-request-id, stream-next-offset, stream-up-to-date, stream-cursor, stream-closed, stream-earliest-offset, " +
		"stream-ttl, stream-expires-at, stream-sse-data-encoding, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq, " +
		"electric-handle, electric-offset, electric-schema, electric-cursor, electric-up-to-date"}
	vTrue    = []string{"true"}
	vNoStore = []string{"no-store"}
)

// SetHeaders sets all security and CORS headers, those of a preflight's answer
// included.
func SetHeaders(h http.Header) {
	setHeaders(h)
	h["Access-Control-Allow-Methods"] = vMethods
	h["Access-Control-Allow-Headers"] = vAllow
}

// setHeaders sets those that any response needs, errors included: what a
// request may hold is read in preflights only, and is long.
func setHeaders(h http.Header) {
	h["X-Content-Type-Options"] = vNosniff
	h["Cross-Origin-Resource-Policy"] = vCORP
	h["Access-Control-Allow-Origin"] = vOrigin
	h["Access-Control-Expose-Headers"] = vExpose
}

func badHeader(name, message string) error {
	return problem.Newf(problem.InvalidRequest, "The header %s is not valid: %s.", name, message).
		WithDetails(problem.Detail{Path: "header." + name, Message: message})
}

// header returns the only value of a header and whether it was sent.
func header(r *http.Request, name string) (string, bool, error) {
	v := r.Header[name]
	switch len(v) {
	case 0:
		return "", false, nil
	case 1:
		return v[0], true, nil
	}
	return "", true, badHeader(name, "it is given more than once")
}

// text is header for values that are stored: valid UTF-8, 1 to limit bytes.
func text(r *http.Request, name string, limit int) (string, bool, error) {
	v, ok, err := header(r, name)
	if err != nil || !ok {
		return "", ok, err
	}
	if v == "" || len(v) > limit || !utf8.ValidString(v) || strings.IndexByte(v, 0) >= 0 {
		return "", true, badHeader(name, "it must be 1 to "+strconv.Itoa(limit)+" bytes of UTF-8")
	}
	return v, true, nil
}

// integer is header for decimal numbers from 0 to limit without sign, point or
// (if strict) leading zero.
func integer(r *http.Request, name string, limit int64, strict bool) (*int64, error) {
	v, ok, err := header(r, name)
	if err != nil || !ok {
		return nil, err
	}
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return nil, badHeader(name, "it must be a decimal integer")
		}
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n > limit {
		return nil, badHeader(name, "it must be a decimal integer of at most "+strconv.FormatInt(limit, 10))
	}
	if strict && len(v) > 1 && v[0] == '0' {
		return nil, badHeader(name, "it must not have leading zeros")
	}
	return &n, nil
}

// flag is header for true and false.
func flag(r *http.Request, name string) (bool, error) {
	v, ok, err := header(r, name)
	switch {
	case err != nil || !ok:
		return false, err
	case strings.EqualFold(v, "true"):
		return true, nil
	case strings.EqualFold(v, "false"):
		return false, nil
	}
	return false, badHeader(name, "it must be true or false")
}

const maxContentType = 255

// contentType returns the Content-Type with its media type in lower case, and
// the media type alone; both empty when there is none.
func contentType(r *http.Request) (full, media string, err error) {
	v, _, err := header(r, "Content-Type")
	if err != nil || v == "" {
		return "", "", err
	}
	switch v { // the common ones need no parsing
	case "application/json", "text/plain", "application/octet-stream":
		return v, v, nil
	}
	media, params, perr := mime.ParseMediaType(v)
	if perr != nil || len(v) > maxContentType || !strings.Contains(media, "/") || strings.ContainsAny(media, "*;, \t") || !isASCII(v) {
		return "", "", badHeader("Content-Type", "it must be a media type")
	}
	if len(params) == 0 {
		return media, media, nil
	}
	_, rest, _ := strings.Cut(v, ";")
	return media + ";" + rest, media, nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func mediaType(contentType string) string {
	m, _, _ := strings.Cut(contentType, ";")
	return strings.TrimSpace(m)
}

func isJSON(contentType string) bool { return mediaType(contentType) == "application/json" }

// isText says that SSE can carry the type as it is.
func isText(contentType string) bool {
	return isJSON(contentType) || strings.HasPrefix(contentType, "text/")
}

// setTail sets what HEAD, GET and the writes say about a stream's end.
func setTail(h http.Header, position int64, closed bool) {
	h[hNextOffset] = []string{store.FormatOffset(position)}
	if closed {
		h[hClosed] = vTrue
	}
}

// setExpiry shows the configured expiry.
func setExpiry(h http.Header, m *store.StreamMeta) {
	if m.TTLSeconds != nil {
		h["Stream-TTL"] = []string{strconv.FormatInt(*m.TTLSeconds, 10)}
	} else if m.ExpiresAt != nil {
		h[hExpiresAt] = []string{m.ExpiresAt.UTC().Format(time.RFC3339Nano)}
	}
}
