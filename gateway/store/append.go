package store

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/problem"
)

// Producer identifies an idempotent append (Durable Streams 5.2.1).
type Producer struct {
	ID         string
	Epoch, Seq int64
}

// WriteClaim is the content of a verified write token: who holds which consumer.
type WriteClaim struct {
	ConsumerID, Epoch int64
	// WakeID is a UUID.
	WakeID string
}

// AppendItem is one append.
type AppendItem struct {
	Service int32
	Path    string
	// Type is the media type in lower case without parameters; not looked at
	// when there is no payload.
	Type string
	// Payload is nil for a close without data. JSON is flattened: messages
	// joined by commas, Count of them, Stamps as in column messages.stamps.
	Payload []byte
	Count   int32
	Stamps  []int32
	// Internal: a trusted caller, may append to guarded streams. Actionable:
	// asks for the entity's attention (internal appends only).
	Internal, Actionable bool
	Producer             *Producer
	StreamSeq            *string
	Close                bool
	Claim                *WriteClaim
}

// plain says that the item can share its stream's group.
func (i *AppendItem) plain() bool {
	return i.Producer == nil && i.StreamSeq == nil && !i.Close && i.Claim == nil && len(i.Payload) > 0
}

// AppendResult is the outcome of one append.
type AppendResult struct {
	Outcome  Outcome
	StreamID int64
	// Position follows the append, or is what the first of a duplicate got;
	// in a refusal it is the tail.
	Position int64
	Closed   bool
	// Actionable says that the router was asked to look.
	Actionable bool
	// ContentType is set in refusals.
	ContentType string
	// ProducerEpoch and ProducerSeq are the last accepted ones; seq -1 means none.
	ProducerEpoch, ProducerSeq int64
}

type groupKey struct {
	service int32
	path    string
}

// appendCall is the scratch of one stream_append call.
type appendCall struct {
	groups map[groupKey]int32 // group number, or -1 when the stream's items go one by one
	// of group i: first item; of item j: its group (or 0) or special number
	first         []int
	group, rel    []int32
	services      []int32
	paths, types  []string
	internal, act []bool
	bytes         []int64
	itemGroup     []int32
	itemRel       []int64
	payloads      [][]byte
	counts        []int32
	stamps        []*string
	s             specials
}

type specials struct {
	item          []int
	services      []int32
	paths, types  []string
	internal, act []bool
	payloads      [][]byte
	counts        []int32
	stamps        []*string
	producers     []*string
	epochs, seqs  []*int64
	streamSeqs    []*string
	closes        []bool
	consumers     []*int64
	claimEpochs   []*int64
	wakes         []*string
}

var appendCalls = sync.Pool{New: func() any { return &appendCall{groups: map[groupKey]int32{}} }}

func (c *appendCall) release() {
	clear(c.groups)
	clear(c.payloads)
	clear(c.s.payloads)
	c.first, c.group, c.rel = c.first[:0], c.group[:0], c.rel[:0]
	c.services, c.paths, c.types, c.internal, c.act, c.bytes = c.services[:0], c.paths[:0], c.types[:0], c.internal[:0], c.act[:0], c.bytes[:0]
	c.itemGroup, c.itemRel, c.payloads, c.counts, c.stamps = c.itemGroup[:0], c.itemRel[:0], c.payloads[:0], c.counts[:0], c.stamps[:0]
	s := &c.s
	s.item, s.services, s.paths, s.types, s.internal, s.act = s.item[:0], s.services[:0], s.paths[:0], s.types[:0], s.internal[:0], s.act[:0]
	s.payloads, s.counts, s.stamps, s.producers, s.epochs, s.seqs = s.payloads[:0], s.counts[:0], s.stamps[:0], s.producers[:0], s.epochs[:0], s.seqs[:0]
	s.streamSeqs, s.closes, s.consumers, s.claimEpochs, s.wakes = s.streamSeqs[:0], s.closes[:0], s.consumers[:0], s.claimEpochs[:0], s.wakes[:0]
	appendCalls.Put(c)
}

// sort splits items into groups and specials. Groups run first, so once a
// stream has a special, what follows it is special too: order is kept.
func (c *appendCall) sort(items []AppendItem) {
	for j := range items {
		it := &items[j]
		k := groupKey{it.Service, it.Path}
		g, seen := c.groups[k]
		if it.plain() && g >= 0 {
			if !seen {
				c.services, c.paths, c.types = append(c.services, it.Service), append(c.paths, it.Path), append(c.types, it.Type)
				c.internal, c.act, c.bytes = append(c.internal, it.Internal), append(c.act, it.Actionable), append(c.bytes, 0)
				c.first = append(c.first, j)
				g = int32(len(c.paths))
				c.groups[k] = g
			}
			if h := &items[c.first[g-1]]; h.Type == it.Type && h.Internal == it.Internal && h.Actionable == it.Actionable {
				c.bytes[g-1] += int64(len(it.Payload))
				c.group, c.rel = append(c.group, g), append(c.rel, int32(c.bytes[g-1]))
				c.itemGroup, c.itemRel = append(c.itemGroup, g), append(c.itemRel, c.bytes[g-1])
				c.payloads, c.counts, c.stamps = append(c.payloads, it.Payload), append(c.counts, it.Count), append(c.stamps, stampText(it.Stamps))
				continue
			}
		}
		c.groups[k] = -1
		c.group, c.rel = append(c.group, 0), append(c.rel, int32(len(c.s.paths)))
		c.s.add(j, it)
	}
}

func (s *specials) add(j int, it *AppendItem) {
	s.item = append(s.item, j)
	s.services, s.paths, s.types = append(s.services, it.Service), append(s.paths, it.Path), append(s.types, it.Type)
	s.internal, s.act, s.closes = append(s.internal, it.Internal), append(s.act, it.Actionable), append(s.closes, it.Close)
	payload := it.Payload
	if len(payload) == 0 {
		payload = nil
	}
	s.payloads, s.counts, s.stamps = append(s.payloads, payload), append(s.counts, it.Count), append(s.stamps, stampText(it.Stamps))
	var producer *string
	var epoch, seq *int64
	if p := it.Producer; p != nil {
		producer, epoch, seq = &p.ID, &p.Epoch, &p.Seq
	}
	s.producers, s.epochs, s.seqs = append(s.producers, producer), append(s.epochs, epoch), append(s.seqs, seq)
	s.streamSeqs = append(s.streamSeqs, it.StreamSeq)
	var consumer, claimEpoch *int64
	var wake *string
	if t := it.Claim; t != nil {
		consumer, claimEpoch, wake = &t.ConsumerID, &t.Epoch, &t.WakeID
	}
	s.consumers, s.claimEpochs, s.wakes = append(s.consumers, consumer), append(s.claimEpochs, claimEpoch), append(s.wakes, wake)
}

func stampText(stamps []int32) *string {
	if len(stamps) == 0 {
		return nil
	}
	b := make([]byte, 0, 2+6*len(stamps))
	b = append(b, '{')
	for i, s := range stamps {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(s), 10)
	}
	text := string(append(b, '}'))
	return &text
}

const appendSQL = `select special, ord, outcome, stream_id, tail, closed, content_type, producer_epoch, producer_seq
  from rouse.stream_append($1,$2,$3,$4,$5,$6, $7,$8,$9,$10,$11, $12,$13,$14,$15,$16,$17,$18,$19,$20,$21,$22,$23,$24,$25,$26,$27, $28)`

// StreamAppend appends all items in one transaction and answers each. Without
// wait it never waits for a row: such an item is Busy, and so is every later
// one of its stream. With wait all items must be of one stream.
func (s *Store) StreamAppend(ctx context.Context, items []AppendItem, wait bool) ([]AppendResult, error) {
	c := appendCalls.Get().(*appendCall)
	defer c.release()
	c.sort(items)
	groups := make([]AppendResult, len(c.paths))
	special := make([]AppendResult, len(c.s.paths))
	rows := 0
	err := s.conn(ctx, s.lane(wait), func(ctx context.Context, conn *pgx.Conn) error {
		v := &c.s
		rs, err := conn.Query(ctx, appendSQL, c.services, c.paths, c.types, c.internal, c.act, c.bytes,
			c.itemGroup, c.itemRel, c.payloads, c.counts, c.stamps,
			v.services, v.paths, v.types, v.internal, v.act, v.payloads, v.counts, v.stamps,
			v.producers, v.epochs, v.seqs, v.streamSeqs, v.closes, v.consumers, v.claimEpochs, v.wakes, wait)
		if err != nil {
			return err
		}
		defer rs.Close()
		for rs.Next() {
			raw := rs.RawValues()
			to := groups
			if raw[0][0] != 0 {
				to = special
			}
			rows++
			to[binary.BigEndian.Uint32(raw[1])-1] = rawResult(raw)
		}
		return rs.Err()
	})
	if err != nil {
		return nil, err
	}
	if rows != len(groups)+len(special) {
		return nil, problem.New(problem.Internal, "The database answered an append in part.")
	}
	out := make([]AppendResult, len(items))
	for j := range items {
		if g := c.group[j]; g == 0 {
			out[j] = special[c.rel[j]]
		} else {
			out[j] = groups[g-1]
			if out[j].Outcome == Appended {
				out[j].Position += int64(c.rel[j]) - c.bytes[g-1]
			}
		}
		out[j].Actionable = out[j].Outcome == Appended && items[j].Internal && items[j].Actionable
	}
	return out, nil
}

// rawResult decodes the binary form of a row without an allocation a column.
func rawResult(raw [][]byte) AppendResult {
	r := AppendResult{Outcome: outcomeOf(raw[2]), StreamID: rawInt64(raw[3]), Position: rawInt64(raw[4]),
		Closed: len(raw[5]) == 1 && raw[5][0] != 0, ProducerEpoch: rawInt64(raw[7]), ProducerSeq: rawInt64(raw[8])}
	if r.Outcome != Appended {
		r.ContentType = string(raw[6])
	}
	return r
}

func rawInt64(b []byte) int64 {
	if len(b) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

func outcomeOf(b []byte) Outcome {
	switch string(b) {
	case string(Appended):
		return Appended
	case string(Duplicate):
		return Duplicate
	case string(Busy):
		return Busy
	}
	return Outcome(b)
}
