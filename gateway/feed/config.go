package feed

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config of a feed. Only DSN has no default.
type Config struct {
	// DSN of a direct connection (replication does not pass a pooler). The role
	// needs REPLICATION. A secret: it is never logged.
	DSN string
	// Publication that pgoutput is asked for.
	Publication string
	// RouterSlot is the prefix of the router's durable slot; the database's oid
	// is appended, as slot names are shared by a whole server. TailSlot is the
	// prefix of the temporary slots.
	RouterSlot, TailSlot string

	// StatusInterval is the time between two status updates, at most 500 ms.
	StatusInterval time.Duration
	// StandbyInterval is the time between two looks at the router's slot.
	StandbyInterval time.Duration
	// FreezeAfter is how long a holder may stay silent before a standby
	// terminates its backend.
	FreezeAfter time.Duration
	// HolderTimeout and TailTimeout are the wal_sender_timeout of the connection:
	// the server itself ends a silent client's.
	HolderTimeout, TailTimeout time.Duration
	// ReadTimeout ends a connection on which the server says nothing, although
	// each status update asks for an answer.
	ReadTimeout time.Duration
	// ConnectTimeout bounds connecting and each statement but the making of a slot.
	ConnectTimeout time.Duration
	// UserTimeout is TCP_USER_TIMEOUT, on both ends.
	UserTimeout time.Duration
	// ShutdownGrace is how long a stopping server waits for the router to finish
	// before the feed lets go, so that the server can stop.
	ShutdownGrace time.Duration
	// MonitorInterval is the time between two readings of slot and lag metrics.
	MonitorInterval time.Duration
	// RetryMin and RetryMax bound the wait after a failure.
	RetryMin, RetryMax time.Duration
	// PollMin and PollMax bound the interval of the poller that stands in for
	// the feed while it is down.
	PollMin, PollMax time.Duration
	// SettleDelay is when the poller looks once more after the feed came up.
	SettleDelay time.Duration

	Hooks Hooks
}

// Hooks let tests see and steer what happens; nil fields do nothing.
type Hooks struct {
	// Status is asked before each status update; false withholds it.
	Status func() bool
	// Receive is called before each read of the replication socket.
	Receive func()
}

// Deps are what a feed is connected to.
type Deps struct {
	Hub *Hub
	// Router gets actionable notices; without one the feed never takes the
	// router's slot.
	Router RouterSink
	// Delivery gets due wakes; without one they are not collected.
	Delivery DeliverySink
	// Members is told, on every gateway, that membership streams have something
	// to tell. It must not block. May be nil.
	Members func()
	// Registry for metrics; nil keeps them private.
	Registry prometheus.Registerer
	Log      *slog.Logger
}

func orElse[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (c *Config) complete() error {
	if c.DSN == "" {
		return errors.New("feed: DSN is empty")
	}
	orElse(&c.Publication, "rouse_notice")
	orElse(&c.RouterSlot, "rouse_router")
	orElse(&c.TailSlot, "rouse_tail")
	orElse(&c.StatusInterval, 250*time.Millisecond)
	orElse(&c.StandbyInterval, 500*time.Millisecond)
	orElse(&c.FreezeAfter, time.Second)
	orElse(&c.HolderTimeout, 2*time.Second)
	orElse(&c.TailTimeout, 10*time.Second)
	orElse(&c.ReadTimeout, 5*time.Second)
	orElse(&c.ConnectTimeout, 5*time.Second)
	orElse(&c.UserTimeout, 5*time.Second)
	orElse(&c.ShutdownGrace, time.Second)
	orElse(&c.MonitorInterval, 5*time.Second)
	orElse(&c.RetryMin, 50*time.Millisecond)
	orElse(&c.RetryMax, 2*time.Second)
	orElse(&c.PollMin, 100*time.Millisecond)
	orElse(&c.PollMax, time.Second)
	orElse(&c.SettleDelay, time.Second)
	if c.StatusInterval > 500*time.Millisecond {
		return errors.New("feed: StatusInterval is above 500 ms")
	}
	if c.FreezeAfter < 2*c.StatusInterval {
		return errors.New("feed: FreezeAfter is below two status intervals")
	}
	for _, name := range []string{c.Publication, c.RouterSlot, c.TailSlot} {
		for _, r := range name {
			if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' {
				return errors.New("feed: names of slots and publication may hold a-z, 0-9 and _ only")
			}
		}
		if len(name) > 40 {
			return errors.New("feed: names of slots and publication are at most 40 bytes long")
		}
	}
	return nil
}
