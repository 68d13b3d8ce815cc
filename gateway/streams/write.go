package streams

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

const (
	// maxSafeInteger is what JavaScript clients can hold.
	maxSafeInteger = 1<<53 - 1
	// maxTTL is a hundred years in seconds.
	maxTTL        = 100 * 366 * 86400
	maxStreamSeq  = 256
	maxProducerID = 256
)

// create answers PUT.
func (h *Handler) create(q *request) error {
	c := store.CreateRequest{Service: q.service, Path: q.path.Name, Count: 1}
	var err error
	if c.ContentType, _, err = contentType(q.http); err != nil {
		return err
	}
	if q.shared && c.ContentType == "" {
		c.ContentType = "application/json"
	}
	if c.Closed, err = flag(q.http, hClosed); err != nil {
		return err
	}
	if err = expiry(q.http, &c); err != nil {
		return err
	}
	if err = fork(q.http, &c); err != nil {
		return err
	}
	if c.Limits, err = retention(q.http); err != nil {
		return err
	}
	if c.Limits != nil {
		who, err := h.caller(q)
		if err != nil && h.RequireAuth {
			return err
		}
		c.Principal = who.Principal
	}
	body, release, err := h.bodies.Read(q.w, q.http)
	defer release()
	if err != nil {
		return err
	}
	ctx, cancel := h.call(q.http)
	defer cancel()
	if len(body) > 0 {
		effective := c.ContentType
		if effective == "" && c.ForkPath != nil {
			// The body takes the source's form; its type is needed to read it.
			src, err := h.Store.StreamHead(ctx, q.service, *c.ForkPath)
			if err != nil {
				return err
			}
			if src.Outcome == store.NotFound {
				return problem.New(problem.StreamNotFound, "The stream to fork does not exist.")
			}
			effective = src.ContentType
		}
		if c.Payload = body; isJSON(effective) {
			m, err := Flatten(body)
			if err != nil {
				return err
			}
			c.Payload, c.Count, c.Stamps = m.Data, m.Count, m.Stamps
		}
	}
	if q.shared {
		if err := h.createShared(ctx, q, &c); err != nil {
			return err
		}
	}
	m, err := h.Store.StreamCreate(ctx, c)
	if err != nil {
		return err
	}
	switch m.Outcome {
	case store.Created, store.Exists:
	case store.Conflict:
		return problem.New(problem.StreamExists, "A stream with another configuration exists at this path.")
	case store.Gone:
		return problem.New(problem.StreamHasForks, "The stream at this path was deleted, but forks still read it.")
	case store.Guarded:
		return problem.New(problem.PathReserved, "The path belongs to the gateway: it is that of an entity's stream, or would be once the entity is spawned. Choose another.")
	case store.SourceNotFound:
		return problem.New(problem.StreamNotFound, "The stream to fork does not exist.")
	case store.SourceGone:
		return problem.New(problem.StreamHasForks, "The stream to fork was deleted.")
	case store.ContentType:
		return problem.New(problem.ContentTypeMismatch, "A fork has its source's content type.")
	case store.ForkOffset:
		return problem.New(problem.OffsetInvalid, "No append of the source ends at Stream-Fork-Offset.")
	case store.ForkSub:
		return badHeader(hForkSub, "it needs Stream-Fork-Offset and lies within the append after it")
	case store.Busy:
		return problem.New(problem.DatabaseTimeout, "The path was being created and deleted at the same time. Try again.")
	default:
		return unexpected(m.Outcome)
	}
	if c.Limits != nil && m.Outcome == store.Exists {
		if err := h.sameLimits(ctx, q, *c.Limits); err != nil {
			return err
		}
	}
	hd := q.w.Header()
	hd["Content-Type"] = []string{m.ContentType}
	hd["Cache-Control"] = vNoStore
	setTail(hd, m.Tail, m.Closed)
	if m.Outcome == store.Exists {
		q.w.WriteHeader(http.StatusOK)
		return nil
	}
	hd["Location"] = []string{h.location(q.http)}
	q.w.WriteHeader(http.StatusCreated)
	return nil
}

func expiry(r *http.Request, c *store.CreateRequest) (err error) {
	if c.TTLSeconds, err = integer(r, hTTL, maxTTL, true); err != nil {
		return err
	}
	at, ok, err := header(r, hExpiresAt)
	if err != nil || !ok {
		return err
	}
	if c.TTLSeconds != nil {
		return badHeader(hExpiresAt, "it cannot be combined with Stream-TTL")
	}
	t, perr := time.Parse(time.RFC3339Nano, at)
	if perr != nil || t.Year() < 1970 {
		return badHeader(hExpiresAt, "it must be an RFC 3339 timestamp")
	}
	t = t.UTC().Truncate(time.Microsecond)
	c.ExpiresAt = &t
	return nil
}

func fork(r *http.Request, c *store.CreateRequest) error {
	from, ok, err := header(r, hForkedFrom)
	if err != nil {
		return err
	}
	sub, err := integer(r, hForkSub, maxSafeInteger, true)
	if err != nil {
		return err
	}
	offset, hasOffset, err := header(r, hForkOffset)
	if err != nil {
		return err
	}
	if !ok {
		if sub != nil || hasOffset {
			return badHeader(hForkedFrom, "the other fork headers need it")
		}
		return nil
	}
	if strings.ContainsAny(from, "?#") {
		return badHeader(hForkedFrom, "it must be a stream's path")
	}
	p, err := ParsePath(from)
	if err != nil {
		return badHeader(hForkedFrom, "it must be a stream's path")
	}
	c.ForkPath, c.ForkSub = &p.Name, sub
	if hasOffset {
		at, err := store.ParseOffset(offset)
		if err != nil {
			return badHeader(hForkOffset, "it must be an offset of the source")
		}
		c.ForkOffset = &at
	} else if sub != nil && *sub > 0 {
		return badHeader(hForkSub, "it needs Stream-Fork-Offset")
	}
	return nil
}

func (h *Handler) location(r *http.Request) string {
	base := h.PublicURL
	if base == "" {
		base = "http://"
		if r.TLS != nil {
			base = "https://"
		}
		base += r.Host
	}
	base += r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		base += "?" + r.URL.RawQuery
	}
	return base
}

// append answers POST: an append, a close, or both.
func (h *Handler) append(q *request) error {
	item := store.AppendItem{Service: q.service, Path: q.path.Name, Count: 1}
	var err error
	full, media, err := contentType(q.http)
	if err != nil {
		return err
	}
	item.Type = media
	if item.Close, err = flag(q.http, hClosed); err != nil {
		return err
	}
	if item.Producer, err = producer(q.http); err != nil {
		return err
	}
	if seq, ok, err := text(q.http, hSeq, maxStreamSeq); err != nil {
		return err
	} else if ok {
		item.StreamSeq = &seq
	}
	if item.Claim = h.claim(q.http); q.shared {
		// Who may write it has been decided, and not by its being the stream of a claim.
		item.Internal, item.Claim = true, nil
	}

	if item.Claim != nil && item.Close && (strings.HasSuffix(item.Path, "/main") || strings.HasSuffix(item.Path, "/error")) {
		// Its holder would leave an entity that runs and hears nothing.
		return problem.New(problem.Forbidden, "An entity's streams end with the entity. Signal it SIGTERM or SIGKILL instead.")
	}

	body, release, err := h.bodies.Read(q.w, q.http)
	defer release()
	if err != nil {
		return err
	}
	switch {
	case len(body) == 0 && !item.Close:
		return problem.New(problem.InvalidRequest, "The body is empty; only a close may be.")
	case len(body) > 0 && full == "":
		return badHeader("Content-Type", "an append needs it")
	case len(body) > 0:
		item.Payload = body
		if isJSON(media) {
			m, err := Flatten(body)
			if err != nil {
				return err
			}
			if m.Count == 0 {
				return problem.New(problem.InvalidRequest, "An empty array appends nothing.")
			}
			item.Payload, item.Count, item.Stamps = m.Data, m.Count, m.Stamps
		}
	}
	if h.AppendGate != nil && item.Claim != nil && item.Payload != nil {
		if err := h.gate(q, &item); err != nil {
			return err
		}
	}
	// Its memory counts until it is written, also when its client has left.
	ctx := context.WithoutCancel(q.http.Context())
	res, err := h.Appender.Append(ctx, item)
	if err == nil && res.Outcome == store.NotFound && item.Claim != nil && h.ErrorStreams != nil {
		if url, ok := strings.CutSuffix(q.path.Name, "/error"); ok {
			if res.Outcome, err = h.ErrorStreams.EntityErrorStream(ctx, q.service, "/"+url, *item.Claim); err != nil {
				return err
			}
			if res.Outcome == store.Created || res.Outcome == store.Exists {
				res, err = h.Appender.Append(ctx, item)
			}
		}
	}
	if err != nil {
		return err
	}
	return answerAppend(q.w, &item, &res)
}

// gate asks the append gate. Whether the token holds is decided by the append,
// under the locks; only what is refused here is asked about before, so that a
// stranger learns of a token that does not hold and not of schemas.
func (h *Handler) gate(q *request, item *store.AppendItem) error {
	ctx, cancel := h.call(q.http)
	defer cancel()
	refusal := h.AppendGate(ctx, item)
	if refusal == nil {
		return nil
	}
	res, err := h.Store.StreamWritable(ctx, item.Service, item.Path, *item.Claim)
	if err != nil {
		return err
	}
	if res.Outcome == store.OK {
		return refusal
	}
	return refuseAppend(q.w, item, &res)
}

// refuseAppend answers an append that was not carried out.
func refuseAppend(w http.ResponseWriter, item *store.AppendItem, res *store.AppendResult) error {
	hd := w.Header()
	switch res.Outcome {
	case store.NotFound:
		if strings.Count(item.Path, "/") >= 3 && strings.Contains(item.Path, "/attachments/") {
			// Nobody appends to attachments, whether there is one of this name or not.
			return problem.New(problem.Unauthorized, "Invalid write token")
		}
		return problem.New(problem.StreamNotFound, "There is no stream at this path.")
	case store.Gone:
		return problem.New(problem.StreamGone, "The stream was deleted.")
	case store.PathTaken:
		return problem.New(problem.StreamExists, "A plain stream lives where the entity's error stream belongs.")
	case store.Closed:
		setTail(hd, res.Position, true)
		return problem.New(problem.StreamClosed, "The stream is closed; nothing can be appended.")
	case store.ContentType:
		return problem.Newf(problem.ContentTypeMismatch, "The stream holds %s: name that as the Content-Type.", res.ContentType)
	case store.Seq:
		return problem.New(problem.SequenceConflict, "Stream-Seq must be greater than the last one.")
	case store.ProducerGap:
		hd["Producer-Expected-Seq"] = []string{strconv.FormatInt(res.ProducerSeq+1, 10)}
		hd["Producer-Received-Seq"] = []string{strconv.FormatInt(item.Producer.Seq, 10)}
		return problem.New(problem.ProducerGap, "Earlier batches of this producer are missing.")
	case store.ProducerFenced:
		hd[hProducerEpoch] = []string{strconv.FormatInt(res.ProducerEpoch, 10)}
		return problem.New(problem.ProducerFenced, "Another instance of this producer has a newer epoch.")
	case store.ProducerEpochSeq:
		return badHeader(hProducerSeq, "a new epoch begins at 0")
	case store.Guarded:
		return problem.New(problem.Unauthorized, "Invalid write token")
	case store.TokenStale:
		return problem.New(problem.Unauthorized, "Invalid write token").WithMeta("reason", problem.EpochStale)
	case store.LeaseExpired:
		return problem.New(problem.Unauthorized, "Invalid write token").WithMeta("reason", problem.LeaseExpired)
	}
	return unexpected(res.Outcome)
}

func answerAppend(w http.ResponseWriter, item *store.AppendItem, res *store.AppendResult) error {
	if res.Outcome != store.Appended && res.Outcome != store.Duplicate {
		return refuseAppend(w, item, res)
	}
	hd := w.Header()
	setTail(hd, res.Position, res.Closed)
	hd["Cache-Control"] = vNoStore
	status := http.StatusNoContent
	if item.Producer != nil {
		hd[hProducerEpoch] = []string{strconv.FormatInt(res.ProducerEpoch, 10)}
		hd[hProducerSeq] = []string{strconv.FormatInt(res.ProducerSeq, 10)}
		if res.Outcome == store.Appended && item.Payload != nil {
			// Only 200 tells a producer new data from a repeat.
			status = http.StatusOK
		}
	}
	w.WriteHeader(status)
	return nil
}

// producer reads the three producer headers: all or none.
func producer(r *http.Request) (*store.Producer, error) {
	if r.Header[hProducerID] == nil && r.Header[hProducerEpoch] == nil && r.Header[hProducerSeq] == nil {
		return nil, nil
	}
	id, ok, err := text(r, hProducerID, maxProducerID)
	if err != nil {
		return nil, err
	}
	epoch, err := integer(r, hProducerEpoch, maxSafeInteger, false)
	if err != nil {
		return nil, err
	}
	seq, err := integer(r, hProducerSeq, maxSafeInteger, false)
	if err != nil {
		return nil, err
	}
	if !ok || epoch == nil || seq == nil {
		return nil, badHeader(hProducerID, "Producer-Id, Producer-Epoch and Producer-Seq go together")
	}
	return &store.Producer{ID: id, Epoch: *epoch, Seq: *seq}, nil
}

// claim returns the content of a write token that is ours; whether the stream
// needs one, and whether it is current, is decided under the append's locks.
func (h *Handler) claim(r *http.Request) *store.WriteClaim {
	if h.Tokens == nil {
		return nil
	}
	token := r.Header.Get("Electric-Claim-Token")
	if token == "" {
		auth := r.Header.Get("Authorization")
		if len(auth) < 7 || !strings.EqualFold(auth[:7], "Bearer ") {
			return nil
		}
		token = strings.TrimSpace(auth[7:])
	}
	if !strings.HasPrefix(token, string(claims.Write)) {
		return nil
	}
	consumer, epoch, wake, err := h.Tokens.VerifyWrite(token)
	if err != nil {
		return nil
	}
	return &store.WriteClaim{ConsumerID: consumer, Epoch: epoch, WakeID: wake}
}

// delete answers DELETE.
func (h *Handler) delete(q *request) error {
	ctx, cancel := h.call(q.http)
	defer cancel()
	outcome, _, err := h.Store.StreamDelete(ctx, q.service, q.path.Name, false)
	if err != nil {
		return err
	}
	switch outcome {
	case store.Deleted:
		q.w.WriteHeader(http.StatusNoContent)
		return nil
	case store.NotFound:
		return problem.New(problem.StreamNotFound, "There is no stream at this path.")
	case store.Gone:
		return problem.New(problem.StreamGone, "The stream was deleted already.")
	case store.Guarded:
		return problem.New(problem.PathReserved, "The stream belongs to the gateway.")
	}
	return unexpected(outcome)
}

func unexpected(o store.Outcome) error {
	return problem.Newf(problem.Internal, "The database answered %q.", string(bytes.ToValidUTF8([]byte(o), nil)))
}
