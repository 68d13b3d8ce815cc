package feed

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// pollChunk is how many streams one query of the poller asks for.
const pollChunk = 10_000

// poll stands in for the log while the feed is down or still reads a backlog:
// one goroutine asks for all watched streams at once, whatever the number of
// readers.
//
// After the feed has come up it looks once more: a commit that the log showed
// before the session began can become visible after the readers have read.
func (f *Feed) poll(ctx context.Context) {
	c := &control{cfg: f.sqlCfg, timeout: f.cfg.ConnectTimeout}
	defer func() { c.close(ctx) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	interval, settled := f.cfg.PollMin, true
	for {
		changed := f.state.wait()
		live := f.live()
		switch {
		case !live:
			settled = false
			timer.Reset(interval)
		case !settled:
			timer.Reset(f.cfg.SettleDelay)
		default:
			c.close(ctx)
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			continue
		case <-timer.C:
		}
		began := time.Now()
		news, err := f.pollOnce(ctx, c)
		interval = f.nextPoll(interval, news, err, time.Since(began))
		settled = live && err == nil
	}
}

// nextPoll shortens the interval while there is news, lengthens it else, and
// leaves the database at least four fifths of the time in peace.
func (f *Feed) nextPoll(interval time.Duration, news bool, err error, took time.Duration) time.Duration {
	switch {
	case err != nil:
		interval = f.cfg.PollMax
	case news:
		interval = f.cfg.PollMin
	default:
		interval = min(interval*3/2, f.cfg.PollMax)
	}
	return max(interval, 4*took)
}

// pollOnce publishes what the tables say of all watched streams.
func (f *Feed) pollOnce(ctx context.Context, c *control) (news bool, err error) {
	ids := f.hub.Watched()
	for len(ids) > 0 && err == nil {
		n := min(len(ids), pollChunk)
		var fresh bool
		fresh, err = f.pollChunk(ctx, c, ids[:n])
		news = news || fresh
		ids = ids[n:]
	}
	if ctx.Err() != nil {
		return news, ctx.Err()
	}
	if err != nil {
		f.metrics.polls.WithLabelValues("error").Inc()
		f.log.DebugContext(ctx, "poll of watched streams failed", "err", err)
	} else {
		f.metrics.polls.WithLabelValues("ok").Inc()
	}
	return news, err
}

func (f *Feed) pollChunk(ctx context.Context, c *control, ids []int64) (news bool, err error) {
	err = c.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `
			select w.id, coalesce(s.tail, 0), s.closed_at is not null,
			       s.id is null or s.path is null or s.deleted_at is not null or coalesce(s.expires_at <= now(), false)
			from unnest($1::bigint[]) w(id)
			left join rouse.streams s on s.id = w.id`, ids)
		if err != nil {
			return err
		}
		var (
			id, tail     int64
			closed, gone bool
		)
		_, err = pgx.ForEachRow(rows, []any{&id, &tail, &closed, &gone}, func() error {
			var flags Flags
			if closed {
				flags |= Closed
			}
			if gone {
				flags |= Gone
			}
			if f.hub.publish(id, tail, flags) {
				news = true
			}
			return nil
		})
		return err
	})
	return news, err
}
