package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/problem"
)

// Outcome is what a stream function decided. Each function's comment in
// sql/functions lists those it can answer.
type Outcome string

// The outcomes of the stream functions.
const (
	OK               Outcome = "ok"
	Appended         Outcome = "appended"
	Duplicate        Outcome = "duplicate"
	Busy             Outcome = "busy"
	NotFound         Outcome = "not_found"
	Gone             Outcome = "gone"
	Closed           Outcome = "closed"
	ContentType      Outcome = "content_type"
	Seq              Outcome = "seq"
	ProducerGap      Outcome = "producer_gap"
	ProducerFenced   Outcome = "producer_fenced"
	ProducerEpochSeq Outcome = "producer_epoch_seq"
	Guarded          Outcome = "guarded"
	TokenStale       Outcome = "token_stale"
	LeaseExpired     Outcome = "lease_expired"
	Created          Outcome = "created"
	Exists           Outcome = "exists"
	Conflict         Outcome = "conflict"
	SourceNotFound   Outcome = "source_not_found"
	SourceGone       Outcome = "source_gone"
	ForkOffset       Outcome = "fork_offset"
	ForkSub          Outcome = "fork_sub"
	Deleted          Outcome = "deleted"
	Beyond           Outcome = "beyond"
	Trimmed          Outcome = "trimmed"
	PathTaken        Outcome = "path_taken"
)

// StreamMeta is what is known of a stream.
type StreamMeta struct {
	Outcome Outcome
	ID      int64
	// Kind is app, entity, error or wake; Owner the principal that may read
	// the last three.
	Kind, Owner string
	ContentType string
	Tail        int64
	Closed      bool
	// Head is where what is kept begins; StreamHead tells it, and a Trimmed outcome.
	Head int64
	// TTLSeconds and ExpiresAt are nil for a stream that does not expire.
	TTLSeconds *int64
	ExpiresAt  *time.Time
	// WakeKey is the public key that a runner's wake stream is sealed to, as it
	// was when the page was read; nil for none. Only StreamRead tells it.
	WakeKey []byte
}

// StreamPage is a stretch of a stream: see stream_read.
type StreamPage struct {
	StreamMeta
	// Touch says that the read should be followed by StreamTouch.
	Touch bool
	// Next is the position to go on from.
	Next int64
	// Data holds the appends' payloads joined: by commas if the stream is JSON.
	Data []byte
	// Positions says of a JSON page where each of its appends ends in the stream;
	// they lie in Data one behind the other, a comma apart.
	Positions []int64
	// StampAt are rising byte positions in Data where the offset of the
	// position StampPosition belongs.
	StampAt       []int32
	StampPosition []int64
}

// ReadRequest names what StreamRead reads: a stream by ID if that is not 0,
// else by Service and Path. From nil means the tail, below zero the first message
// that is kept.
type ReadRequest struct {
	Service  int32
	Path     string
	ID       int64
	From     *int64
	MaxBytes int32
	MaxRows  int32
}

// CreateRequest is the input of StreamCreate; zero values mean "not given".
type CreateRequest struct {
	Service     int32
	Path        string
	ContentType string
	TTLSeconds  *int64
	ExpiresAt   *time.Time
	Closed      bool
	Payload     []byte
	Count       int32
	Stamps      []int32
	ForkPath    *string
	ForkOffset  *int64
	ForkSub     *int64
	// Kind is app unless it says otherwise.
	Kind string
	// Limits are given to a stream that is made, in the same transaction, and to
	// none that is there already; Principal is who gives them.
	Limits    *Limits
	Principal string
}

// StreamCreate makes a stream or a fork.
func (s *Store) StreamCreate(ctx context.Context, q CreateRequest) (StreamMeta, error) {
	var m StreamMeta
	var id, tail *int64
	var closed *bool
	var typ *string
	contentType := &q.ContentType
	if q.ContentType == "" {
		contentType = nil
	}
	args := []any{q.Service, q.Path, contentType, q.TTLSeconds, q.ExpiresAt, q.Closed, q.Payload, q.Count, q.Stamps, q.ForkPath, q.ForkOffset, q.ForkSub, textArg(q.Kind)}
	into := []any{&m.Outcome, &id, &tail, &closed, &typ}
	columns := "outcome, stream_id, tail, closed, content_type"
	if q.Limits != nil {
		age, bytes, messages := q.Limits.args()
		args = append(args, age, bytes, messages, q.Principal)
		into = append(into, new(*string))
		columns += ", case when outcome = 'created' then rouse.retention_put($1, $2::text, $14, $15, $16, true, $17::text) end"
	}
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(into...) },
		`select `+columns+` from rouse.stream_create($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,coalesce($13::text, 'app'))`, args...)
	m.ID, m.Tail, m.Closed, m.ContentType = deref(id), deref(tail), deref(closed), deref(typ)
	m.TTLSeconds, m.ExpiresAt = q.TTLSeconds, q.ExpiresAt
	return m, err
}

// StreamHead returns a stream's metadata.
func (s *Store) StreamHead(ctx context.Context, service int32, path string) (StreamMeta, error) {
	var n nullMeta
	var head *int64
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(append(n.targets(), &head)...) },
		`select outcome, stream_id, kind, owner, content_type, tail, closed, ttl_seconds, expires_at, head from rouse.stream_show($1,$2)`, service, path)
	m := n.meta()
	m.Head = deref(head)
	return m, err
}

// StreamWritable says whether a claim's holder may append to a stream now: [OK],
// or the refusal that an append would get before its content is looked at.
func (s *Store) StreamWritable(ctx context.Context, service int32, path string, claim WriteClaim) (AppendResult, error) {
	var r AppendResult
	var tail *int64
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&r.Outcome, &tail) },
		`select outcome, tail from rouse.stream_writable($1, $2::text, $3, $4, $5::uuid)`, service, path, claim.ConsumerID, claim.Epoch, claim.WakeID)
	r.Position = deref(tail)
	return r, err
}

// StreamRead returns one page.
func (s *Store) StreamRead(ctx context.Context, q ReadRequest) (StreamPage, error) {
	var n nullMeta
	var p StreamPage
	var touch *bool
	var next, id *int64
	var path, stamps *string
	var positions []int64
	var key []byte
	var service *int32
	if q.ID != 0 {
		id = &q.ID
	} else {
		path, service = &q.Path, &q.Service
	}
	err := s.row(ctx, func(r pgx.Row) error {
		return r.Scan(append(n.targets(), &touch, &next, &p.Data, &positions, &stamps, &key)...)
	}, `select outcome, stream_id, kind, owner, content_type, tail, closed, ttl_seconds, expires_at, touch, next, page, positions, stamps,
	           case when kind = 'wake' then rouse.wake_stream_key(stream_id) end
	      from rouse.stream_read($1,$2,$3,$4,$5,$6)`, service, path, id, q.From, q.MaxBytes, q.MaxRows)
	p.StreamMeta, p.Touch, p.Next, p.Positions = n.meta(), deref(touch), deref(next), positions
	p.WakeKey = key
	if p.Outcome == Trimmed {
		p.Head, p.Next = p.Next, deref(q.From)
	}
	if err == nil && stamps != nil {
		err = p.place(positions, *stamps)
	}
	return p, err
}

// Begin is where the page's data begins: where it was asked for, or the first
// message that is kept.
func (p *StreamPage) Begin() int64 {
	n := len(p.Data)
	if len(p.Positions) > 0 {
		n -= len(p.Positions) - 1 // the commas between appends are no part of the stream
	}
	return p.Next - int64(n)
}

// place turns each append's own stamps into places in the page. Appends lie
// without gaps in the stream, and a comma apart in the page.
func (p *StreamPage) place(positions []int64, stamps string) error {
	if strings.Count(stamps, "{") == 0 {
		return nil
	}
	if len(positions) == 0 || strings.Count(stamps, ";") != len(positions)-1 {
		return problem.New(problem.Internal, "A page's stamps do not match its appends.")
	}
	n := strings.Count(stamps, "{") + strings.Count(stamps, ",")
	p.StampAt, p.StampPosition = make([]int32, 0, n), make([]int64, 0, n)
	base := positions[len(positions)-1] - int64(len(p.Data)-(len(positions)-1))
	start := base
	for i, end := range positions {
		var own string
		own, stamps, _ = strings.Cut(stamps, ";")
		if own != "" {
			for at := range strings.SplitSeq(strings.Trim(own, "{}"), ",") {
				k, err := strconv.Atoi(at)
				if place := start - base + int64(i) + int64(k); err == nil && k > 0 && place < int64(len(p.Data)) {
					p.StampAt, p.StampPosition = append(p.StampAt, int32(place)), append(p.StampPosition, end)
					continue
				}
				return problem.New(problem.Internal, "A stamp lies outside of its append.")
			}
		}
		start = end
	}
	return nil
}

// StreamDelete removes a stream; internal allows guarded kinds.
func (s *Store) StreamDelete(ctx context.Context, service int32, path string, internal bool) (Outcome, int64, error) {
	var o Outcome
	var id *int64
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&o, &id) },
		`select outcome, stream_id from rouse.stream_delete($1,$2,$3)`, service, path, internal)
	return o, deref(id), err
}

// StreamTouch extends the life of a stream with a time-to-live.
func (s *Store) StreamTouch(ctx context.Context, id int64) error {
	var done bool
	return s.row(ctx, func(r pgx.Row) error { return r.Scan(&done) }, `select rouse.stream_touch($1)`, id)
}

// StreamPurge does one bounded step of the clean-up; more says that there is
// more to do now.
func (s *Store) StreamPurge(ctx context.Context, limit int32) (more bool, err error) {
	var expired, messages, streams int32
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&expired, &messages, &streams) },
		`select expired, messages, streams from rouse.stream_purge($1)`, limit)
	return expired >= limit || messages >= limit || streams >= limit, err
}

type nullMeta struct {
	outcome                  Outcome
	id, tail                 *int64
	kind, owner, contentType *string
	closed                   *bool
	ttl                      *int64
	expires                  *time.Time
}

func (n *nullMeta) targets() []any {
	return []any{&n.outcome, &n.id, &n.kind, &n.owner, &n.contentType, &n.tail, &n.closed, &n.ttl, &n.expires}
}

func (n *nullMeta) meta() StreamMeta {
	return StreamMeta{Outcome: n.outcome, ID: deref(n.id), Kind: deref(n.kind), Owner: deref(n.owner), ContentType: deref(n.contentType),
		Tail: deref(n.tail), Closed: deref(n.closed), TTLSeconds: n.ttl, ExpiresAt: n.expires}
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
