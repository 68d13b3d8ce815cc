package store

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// TreeEntity is one entity of a tree that is to be forked.
type TreeEntity struct {
	Entity
	StreamID   int64
	Tail, Head int64    // positions of its main stream
	Allowed    bool     // the principal may fork it
	Shared     []string // paths of the shared states it uses
}

// EntityTree reads an entity and its descendants, parents first, at most limit
// of them; an empty principal may everything.
func (s *Store) EntityTree(ctx context.Context, service int32, url, principal string, limit int) ([]TreeEntity, error) {
	var out []TreeEntity
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var es entityScan
		var e TreeEntity
		var stream, tail, head *int64
		if err := rows.Scan(append(es.dest(), &stream, &tail, &head, &e.Allowed, &e.Shared)...); err != nil {
			return err
		}
		e.Entity, e.StreamID, e.Tail, e.Head = es.entity(), num(stream), num(tail), num(head)
		out = append(out, e)
		return nil
	}, `select `+entityCols("(r.entity)")+`, r.stream_id, r.tail, r.head, r.allowed, r.shared
		from rouse.entity_tree($1, $2::text, $3::text, $4) r`, service, url, textArg(principal), int32(limit))
	return out, err
}

// ForkedEntity is one entity of a fork: see sql/functions/entity_fork.sql.
type ForkedEntity struct {
	Source, URL string
	Parent      string // empty: none
	Args        json.RawMessage
	// Tail is where the source was read to; nil: it is forked as it was once.
	Tail *int64
	// At is where it is cut, Prefix the messages kept of the append behind that.
	At           int64
	Prefix       []byte
	PrefixCount  int32
	PrefixStamps []int32
	// Observe makes the rows' manifest entries take effect.
	Observe bool
	// Rows are told on the fork's stream.
	Rows []string
	// Attached are ids of attachments, Shared pairs of paths of shared states.
	Attached []string
	Shared   [][2]string
}

// ForkRequest is the argument of [Store.EntityFork].
type ForkRequest struct {
	Service   int32
	Principal string // empty: may everything
	By        string
	Parent    string
	Whole     bool // the whole tree is forked
	Entities  []ForkedEntity
	Tags      json.RawMessage // added to the root's; nil: none
	// Wake is what the parent is woken by; nil: nothing.
	Wake    *ObserverRequest
	Message string
}

// ForkResult answers [Store.EntityFork]; Detail says which entity or runner.
type ForkResult struct {
	Outcome, Detail string
	Entities        []Entity
}

// EntityFork forks a tree of entities in one transaction.
func (s *Store) EntityFork(ctx context.Context, r ForkRequest) (ForkResult, error) {
	var sources, targets, args, rows, attached, shared, sharedAs []string
	var parents, stamps []*string
	var tails []*int64
	var at []int64
	var prefix [][]byte
	var counts, rowOf, attachedTo, sharedBy []int32
	var observe []bool
	for i := range r.Entities {
		e, n := &r.Entities[i], int32(i+1)
		sources, targets, args = append(sources, e.Source), append(targets, e.URL), append(args, string(e.Args))
		var parent *string
		if e.Parent != "" {
			parent = &e.Parent
		}
		parents, tails, at = append(parents, parent), append(tails, e.Tail), append(at, e.At)
		prefix, counts, stamps, observe = append(prefix, e.Prefix), append(counts, e.PrefixCount), append(stamps, stampText(e.PrefixStamps)), append(observe, e.Observe)
		for _, row := range e.Rows {
			rowOf, rows = append(rowOf, n), append(rows, row)
		}
		for _, id := range e.Attached {
			attachedTo, attached = append(attachedTo, n), append(attached, id)
		}
		for _, p := range e.Shared {
			sharedBy, shared, sharedAs = append(sharedBy, n), append(shared, p[0]), append(sharedAs, p[1])
		}
	}
	var w ObserverRequest
	var condition, key *string
	if r.Wake != nil {
		w = *r.Wake
		condition = &w.Condition
		if w.ManifestKey != "" {
			key = &w.ManifestKey
		}
	}
	var out ForkResult
	err := s.rows(ctx, func(rs pgx.Rows) error {
		var es entityScan
		var detail *string
		if err := rs.Scan(append([]any{&out.Outcome, &detail}, es.dest()...)...); err != nil {
			return err
		}
		out.Detail = str(detail)
		if es.url != nil {
			out.Entities = append(out.Entities, es.entity())
		}
		return nil
	}, `select r.outcome, r.detail, `+entityCols("(r.entity)")+` from rouse.entity_fork($1, $2::text, $3::text, $4::text, $5,
		$6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::bytea[], $13::int[], $14::text[], $15::boolean[], $16::jsonb,
		$17::int[], $18::text[], $19::int[], $20::text[], $21::int[], $22::text[], $23::text[], $24::text, $25, $26, $27, $28::text, $29::text) r`,
		r.Service, textArg(r.Principal), r.By, textArg(r.Parent), r.Whole,
		sources, targets, parents, args, tails, at, prefix, counts, stamps, observe, jsonArg(r.Tags),
		rowOf, rows, attachedTo, attached, sharedBy, shared, sharedAs,
		condition, w.DebounceMS, w.TimeoutMS, w.IncludeResponse, key, textArg(r.Message))
	return out, err
}
