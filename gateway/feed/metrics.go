package feed

import "github.com/prometheus/client_golang/prometheus"

// metrics of a feed. Labels have few, fixed values.
type metrics struct {
	sessions  *prometheus.CounterVec
	ends      *prometheus.CounterVec
	slots     *prometheus.CounterVec
	gaps      *prometheus.CounterVec
	takeovers *prometheus.CounterVec
	notices   prometheus.Counter
	wakes     prometheus.Counter
	malformed prometheus.Counter
	polls     *prometheus.CounterVec
	retained  prometheus.Gauge
	walStatus *prometheus.GaugeVec
	lag       prometheus.Gauge
}

// walStatuses are the values of pg_replication_slots.wal_status, and absent.
var walStatuses = []string{"reserved", "extended", "unreserved", "lost", "absent"}

func newMetrics(reg prometheus.Registerer, f *Feed) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "rouse", Subsystem: "feed", Name: name, Help: help})
	}
	counters := func(name, label, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rouse", Subsystem: "feed", Name: name, Help: help}, []string{label})
	}
	gaugeFunc := func(name, help string, fn func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "feed", Name: name, Help: help}, fn)
	}
	m := &metrics{
		sessions:  counters("sessions_total", "role", "Replication sessions that began to stream, by role (holder, tail)."),
		ends:      counters("session_ends_total", "code", "Replication sessions that ended other than by the gateway's wish, by reason code."),
		slots:     counters("router_slot_created_total", "reason", "Times this gateway made the router's slot: absent, or anew after it was lost."),
		gaps:      counters("gaps_total", "reason", "Gaps announced to the router, each closed by a recovery scan."),
		takeovers: counters("takeovers_total", "reason", "Times this gateway took the router's slot over: free, or from a frozen holder."),
		notices:   counter("notices_total", "Stream notices read from the log."),
		wakes:     counter("wakes_total", "Due wakes read from the log."),
		malformed: counter("malformed_total", "Logical messages that could not be read in full."),
		polls:     counters("polls_total", "result", "Passes of the poller that stands in for the log."),
		retained: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "feed", Name: "router_slot_retained_bytes",
			Help: "Bytes of log that the router's slot retains."}),
		walStatus: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "feed", Name: "router_slot_wal_status",
			Help: "1 for the wal_status that the router's slot has."}, []string{"status"}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "feed", Name: "lag_bytes",
			Help: "Bytes of log that the server has flushed and this gateway has not read."}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.sessions, m.ends, m.slots, m.gaps, m.takeovers, m.notices, m.wakes, m.malformed, m.polls, m.retained, m.walStatus, m.lag,
		gaugeFunc("up", "1 while the log is streamed.", func() float64 { return asFloat(f.Up()) }),
		gaugeFunc("holder", "1 while this gateway holds the router's slot.", func() float64 { return asFloat(f.Holder()) }),
		gaugeFunc("watchers", "Readers that wait for streams to grow.", func() float64 { return float64(f.hub.Watchers()) }),
		gaugeFunc("router_backlog", "Streams whose notices the router has not taken.", func() float64 { return float64(f.router.backlog()) }),
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func asFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// slot records what the server says of the router's slot.
func (m *metrics) slot(s slotState, received LSN) {
	status := s.walStatus
	if !s.exists {
		status = "absent"
	}
	for _, each := range walStatuses {
		m.walStatus.WithLabelValues(each).Set(asFloat(each == status))
	}
	m.retained.Set(float64(s.retained))
	if received > 0 {
		m.lag.Set(float64(s.flushed - min(received, s.flushed)))
	}
}
