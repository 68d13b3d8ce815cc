package retention

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	seen, changed, failed *prometheus.CounterVec
	seconds               *prometheus.HistogramVec
	behind, finished      *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	job := []string{"job"}
	m := &metrics{
		seen: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_retention_seen_total",
			Help: "Streams or rows that the clean-up looked at, by job."}, job),
		changed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_retention_changed_total",
			Help: "Streams trimmed (jobs streams, wake_streams) or rows deleted (the others), by job."}, job),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_retention_failed_total",
			Help: "Steps of the clean-up that failed, by job."}, job),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rouse_retention_step_seconds",
			Help: "Time of one step of the clean-up, by job.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)}, job),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rouse_retention_behind",
			Help: "1 while a job of the clean-up has more to do."}, job),
		finished: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rouse_retention_finished_timestamp_seconds",
			Help: "When a job of the clean-up had nothing more to do, on this gateway."}, job),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.seen, m.changed, m.failed, m.seconds, m.behind, m.finished} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
