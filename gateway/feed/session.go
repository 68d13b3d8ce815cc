package feed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

var (
	errSilent         = errors.New("the server has gone silent")
	errServerStopping = errors.New("the server is stopping and waits for the router")
	errServerEnded    = errors.New("the server ended the stream")
	errClosed         = errors.New("closed")
)

const (
	// replyGap is the least time between two status updates: a stopping server
	// asks for the next one as soon as it has read the last.
	replyGap = 10 * time.Millisecond
	// askAfter is the silence after which a status update asks for an answer.
	askAfter = time.Second
	// askedRun is the longest pause between two requests of the server for a
	// status update that count as one run; see session.asked.
	askedRun = 500 * time.Millisecond
)

// session is one replication connection that streams from one slot. Two
// goroutines serve it: one reads and never waits for anything else, one writes
// status updates.
type session struct {
	slot   string
	holder bool

	cfg     *Config
	hub     *Hub
	router  *routerQueue
	wakes   *wakeQueue
	members func() // may be nil
	metrics *metrics
	onEnd   func(err error)
	// refused reports a message that could not be read in full.
	refused func(prefix string, err error)

	conn    net.Conn
	front   *pgproto3.Frontend
	dec     frames
	began   time.Time
	timeout time.Duration

	// reached, if not nil, is told each position up to which the log is read.
	reached func(LSN)

	// received is the position up to which the log has been read completely.
	received atomic.Uint64
	// target is where the log ended before the session began: what comes before
	// is backlog.
	target LSN
	// heard is when the server was last heard, in nanoseconds since began.
	heard atomic.Int64
	ask   signal
	// askedFirst and askedLast delimit a run of the server's requests for a
	// status update; the reader's own.
	askedFirst, askedLast time.Time
	sawWake, sawMember    bool

	end  sync.Once
	done chan struct{}
	err  error
	wg   sync.WaitGroup
}

// start takes the connection over, on which START_REPLICATION has been answered.
func (s *session) start(pc *pgconn.PgConn) error {
	raw, err := pc.Hijack()
	if err != nil {
		return fmt.Errorf("take over replication connection: %w", err)
	}
	s.conn, s.front = raw.Conn, raw.Frontend
	s.began = time.Now()
	s.ask = newSignal()
	s.done = make(chan struct{})
	if s.dec == nil {
		s.dec = &decoder{
			handlers: map[string]func([]byte) error{
				PrefixStreams: s.streams,
				PrefixWakes:   s.dueWakes,
				PrefixMembers: func([]byte) error { s.sawMember = true; return nil },
			},
			commit:  s.commit,
			refused: s.refused,
		}
	}
	return nil
}

// run starts the two goroutines.
func (s *session) run() {
	s.wg.Go(func() { s.finish(s.read()) })
	s.wg.Go(func() { s.finish(s.write()) })
}

// finish ends the session with its first error.
func (s *session) finish(err error) {
	s.end.Do(func() {
		s.err = err
		s.conn.Close()
		close(s.done)
		s.onEnd(err)
	})
}

func (s *session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// progressed reports whether the log has been read any further than the start.
func (s *session) progressed() bool { return s.received.Load() > 0 }

// live reports whether the backlog is read, so that signals come as they happen.
func (s *session) live() bool { return !s.ended() && LSN(s.received.Load()) >= s.target }

// close tells the server the last position, says goodbye and waits for the
// goroutines.
func (s *session) close() {
	if !s.ended() {
		bye, err := (&pgproto3.Terminate{}).Encode(s.status(false))
		if err == nil {
			s.conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = s.conn.Write(bye)
		}
	}
	s.finish(errClosed)
	s.wg.Wait()
}

// read drains the socket until it fails.
func (s *session) read() error {
	for {
		if s.cfg.Hooks.Receive != nil {
			s.cfg.Hooks.Receive()
		}
		msg, err := s.front.Receive()
		if err != nil {
			return err
		}
		s.heard.Store(int64(time.Since(s.began)))
		switch msg := msg.(type) {
		case *pgproto3.CopyData:
			if err := s.data(msg.Data); err != nil {
				return err
			}
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.CopyDone, *pgproto3.CommandComplete:
			return errServerEnded
		}
	}
}

func (s *session) data(data []byte) error {
	if len(data) == 0 {
		return errShortFrame
	}
	switch data[0] {
	case pglogrepl.XLogDataByteID:
		x, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return err
		}
		return s.dec.decode(x.WALData)
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return err
		}
		// The server has sent everything before this position. Inside a
		// transaction that position is not trusted.
		if !s.dec.open() {
			s.complete(k.ServerWALEnd)
		}
		if k.ReplyRequested {
			return s.asked()
		}
	}
	return nil
}

// asked answers the server's wish for a status update. As updates are sent all
// the time, the server asks repeatedly only when it is about to stop and waits
// until the router has confirmed everything. It would wait for ever if the
// router cannot finish because this very server lets nobody in any more, so
// after the grace the feed lets go; the slot keeps the position.
func (s *session) asked() error {
	now := time.Now()
	if now.Sub(s.askedLast) > askedRun {
		s.askedFirst = now
	}
	s.askedLast = now
	if now.Sub(s.askedFirst) > s.cfg.ShutdownGrace {
		return errServerStopping
	}
	s.ask.set()
	return nil
}

func (s *session) streams(content []byte) error {
	return parseNotices(content, func(n Notice) {
		s.metrics.notices.Inc()
		s.hub.Publish(n.Stream, n.Tail, n.Flags)
		if s.holder && n.Flags.Any(Actionable|Linked|Observed) {
			s.router.add(n)
		}
	})
}

func (s *session) dueWakes(content []byte) error {
	return parseWakes(content, func(id string) {
		s.metrics.wakes.Inc()
		s.sawWake = true
		s.wakes.add(id)
	})
}

func (s *session) commit(end LSN) {
	s.complete(end)
	if s.sawWake {
		s.sawWake = false
		s.wakes.kick.set()
	}
	if s.sawMember && s.members != nil {
		s.members()
	}
	s.sawMember = false
}

func (s *session) complete(lsn LSN) {
	if uint64(lsn) > s.received.Load() {
		s.received.Store(uint64(lsn))
	}
	if s.holder {
		s.router.complete(lsn)
	}
	if s.reached != nil {
		s.reached(lsn)
	}
}

// write sends status updates until the session ends.
func (s *session) write() error {
	tick := time.NewTicker(s.cfg.StatusInterval)
	defer tick.Stop()
	var sent time.Time
	for {
		select {
		case <-s.done:
			return errClosed
		case <-tick.C:
		case <-s.ask:
			if rest := replyGap - time.Since(sent); rest > 0 {
				pause := time.NewTimer(rest)
				select {
				case <-s.done:
					pause.Stop()
					return errClosed
				case <-pause.C:
				}
			}
		}
		silence := time.Since(s.began) - time.Duration(s.heard.Load())
		if silence > s.timeout {
			return errSilent
		}
		if s.cfg.Hooks.Status != nil && !s.cfg.Hooks.Status() {
			continue
		}
		sent = time.Now()
		if err := s.conn.SetWriteDeadline(sent.Add(s.timeout)); err != nil {
			return err
		}
		if _, err := s.conn.Write(s.status(silence > askAfter)); err != nil {
			return err
		}
	}
}

// status encodes a status update as CopyData. A position of zero tells the
// server nothing, so an untouched slot keeps its own.
func (s *session) status(ask bool) []byte {
	received := LSN(s.received.Load())
	done := received
	if s.holder {
		received, done = s.router.positions()
	}
	const body = 1 + 4*8 + 1
	b := make([]byte, 0, 1+4+body+5)
	b = append(b, 'd')
	b = binary.BigEndian.AppendUint32(b, 4+body)
	b = append(b, pglogrepl.StandbyStatusUpdateByteID)
	b = binary.BigEndian.AppendUint64(b, uint64(received))
	b = binary.BigEndian.AppendUint64(b, uint64(done))
	b = binary.BigEndian.AppendUint64(b, uint64(done))
	b = binary.BigEndian.AppendUint64(b, uint64(time.Since(postgresEpoch).Microseconds()))
	if ask {
		return append(b, 1)
	}
	return append(b, 0)
}

// postgresEpoch is where Postgres' own clock starts.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// dial opens a replication connection whose server side gives a silent client
// up after senderTimeout.
func (f *Feed) dial(ctx context.Context, senderTimeout time.Duration) (*pgconn.PgConn, error) {
	cfg := f.replCfg.Copy()
	cfg.RuntimeParams["wal_sender_timeout"] = fmt.Sprint(senderTimeout.Milliseconds())
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
	defer cancel()
	return pgconn.ConnectConfig(ctx, cfg)
}

// makeSlot creates a slot on a replication connection. It waits until all
// transactions that write now have ended, however long that takes.
func makeSlot(ctx context.Context, pc *pgconn.PgConn, slot string, temporary, failover bool) error {
	kind, options := "", "SNAPSHOT 'nothing'"
	if temporary {
		kind = "TEMPORARY "
	}
	if failover {
		options += ", FAILOVER true"
	}
	_, err := pc.Exec(ctx, fmt.Sprintf("CREATE_REPLICATION_SLOT %s %sLOGICAL pgoutput (%s)", slot, kind, options)).ReadAll()
	return err
}

// stream starts replication on pc from where the slot stands, and takes the
// connection over. It closes pc when it fails.
func (f *Feed) stream(ctx context.Context, pc *pgconn.PgConn, slot string, holder bool, timeout time.Duration) (*session, error) {
	started, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
	defer cancel()
	err := pglogrepl.StartReplication(started, pc, slot, 0, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication,
		PluginArgs: []string{
			"proto_version '1'",
			fmt.Sprintf("publication_names '%s'", f.cfg.Publication),
			"messages 'true'",
		},
	})
	if err == nil {
		s := &session{
			slot: slot, holder: holder, timeout: timeout,
			cfg: &f.cfg, hub: f.hub, router: f.router, wakes: f.wakes, members: f.members, metrics: f.metrics,
			onEnd: func(error) { f.state.broadcast() }, refused: f.refused,
		}
		if err = s.start(pc); err == nil {
			return s, nil
		}
	}
	closeConn(ctx, pc)
	return nil, err
}

// closeConn closes a connection, politely if the server is quick.
func closeConn(ctx context.Context, pc *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = pc.Close(ctx)
}
