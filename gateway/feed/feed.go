package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// Feed follows the log of one database for one gateway. See the package comment.
type Feed struct {
	cfg      Config
	hub      *Hub
	sink     RouterSink
	delivery DeliverySink
	members  func()
	log      *slog.Logger
	metrics  *metrics

	replCfg *pgconn.Config
	sqlCfg  *pgx.ConnConfig

	router *routerQueue
	wakes  *wakeQueue

	// current is the session that counts; at most one older may still be closing.
	current atomic.Pointer[session]
	trouble atomic.Pointer[trouble]
	// complained is the second in which a malformed message was last logged.
	complained atomic.Int64
	// state is broadcast whenever Up may have changed.
	state broadcast

	life   sync.Mutex
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New makes a feed; it connects to nothing before Start.
func New(cfg Config, deps Deps) (*Feed, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if deps.Hub == nil {
		return nil, errors.New("feed: no hub")
	}
	f := &Feed{
		cfg: cfg, hub: deps.Hub, sink: deps.Router, delivery: deps.Delivery, members: deps.Members, log: deps.Log,
		router: newRouterQueue(maxPendingNotices),
		wakes:  newWakeQueue(maxPendingWakes),
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if f.delivery == nil {
		f.wakes.limit = 0
	}
	var err error
	if f.sqlCfg, err = pgx.ParseConfig(cfg.DSN); err != nil {
		return nil, errors.New("feed: DSN cannot be parsed")
	}
	f.configure()
	if f.metrics, err = newMetrics(deps.Registry, f); err != nil {
		return nil, fmt.Errorf("feed: metrics: %w", err)
	}
	return f, nil
}

// configure derives the two connection configurations.
func (f *Feed) configure() {
	// Settings of a pool, should the DSN be shared with one, are not the server's.
	for name := range f.sqlCfg.RuntimeParams {
		if strings.HasPrefix(name, "pool_") {
			delete(f.sqlCfg.RuntimeParams, name)
		}
	}
	dialer := net.Dialer{Control: userTimeout(f.cfg.UserTimeout)}
	f.sqlCfg.DialFunc = dialer.DialContext
	f.sqlCfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	f.sqlCfg.RuntimeParams["application_name"] = "rouse-feed-control"
	if f.sqlCfg.ValidateConnect == nil {
		f.sqlCfg.ValidateConnect = takesWrites
	}
	f.sqlCfg.RuntimeParams["tcp_user_timeout"] = fmt.Sprint(f.cfg.UserTimeout.Milliseconds())

	f.replCfg = f.sqlCfg.Config.Copy()
	f.replCfg.RuntimeParams["application_name"] = "rouse-feed"
	f.replCfg.RuntimeParams["replication"] = "database"
	// A slot that waits to be made is given up by asking the server to stop:
	// closing the socket alone would leave it waiting there.
	f.replCfg.BuildContextWatcherHandler = func(pc *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: pc, DeadlineDelay: f.cfg.ConnectTimeout}
	}
}

// Start begins to follow the log; it does not wait for the database. The feed
// runs until Stop, or until ctx ends.
func (f *Feed) Start(ctx context.Context) error {
	f.life.Lock()
	defer f.life.Unlock()
	if f.cancel != nil {
		return errors.New("feed: already started")
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.wg.Go(func() { newSupervisor(f).run(ctx) })
	f.wg.Go(func() { f.poll(ctx) })
	if f.sink != nil {
		f.wg.Go(func() { f.router.run(ctx, countedRouter{f.sink, f.metrics}) })
	}
	if f.delivery != nil {
		f.wg.Go(func() { f.wakes.run(ctx, f.delivery) })
	}
	return nil
}

// Stop ends the feed and lets go of its slot, so that a standby takes over. It
// waits for the feed's goroutines, sinks included, or until ctx ends. It may be
// called more than once.
func (f *Feed) Stop(ctx context.Context) error {
	f.life.Lock()
	cancel := f.cancel
	f.life.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	done := make(chan struct{})
	go func() {
		f.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Up reports whether the log is streamed.
func (f *Feed) Up() bool {
	s := f.current.Load()
	return s != nil && !s.ended()
}

// live reports whether the log is streamed and read up to its end.
func (f *Feed) live() bool {
	s := f.current.Load()
	return s != nil && s.live()
}

// Holder reports whether this gateway holds the router's slot.
func (f *Feed) Holder() bool {
	s := f.current.Load()
	return s != nil && s.holder && !s.ended()
}

// refused deals with a message that could not be read in full: what it would
// have said is found in the tables.
func (f *Feed) refused(prefix string, err error) {
	f.metrics.malformed.Inc()
	if now := time.Now().Unix(); f.complained.Swap(now) != now {
		f.log.Warn("a logical message could not be read", "prefix", prefix, "err", err)
	}
	f.router.missed(GapMalformed)
	f.wakes.missed(GapMalformed)
	f.hub.Resync()
}

// countedRouter counts the gaps that the router is told of.
type countedRouter struct {
	RouterSink
	m *metrics
}

func (c countedRouter) Gap(ctx context.Context, reason GapReason) {
	c.m.gaps.WithLabelValues(string(reason)).Inc()
	c.RouterSink.Gap(ctx, reason)
}

// broadcast wakes everybody who waits for the next change.
type broadcast struct {
	mu   sync.Mutex
	next chan struct{}
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *broadcast) broadcast() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
