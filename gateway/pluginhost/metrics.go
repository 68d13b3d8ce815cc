package pluginhost

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	up       *prometheus.GaugeVec
	starts   *prometheus.CounterVec
	failures *prometheus.CounterVec
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		up:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rouse_plugin_up", Help: "1 while the plugin's process runs and is configured."}, []string{"plugin"}),
		starts:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_plugin_starts_total", Help: "Starts of the plugin's process that were tried."}, []string{"plugin"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_plugin_failures_total", Help: "Failures of the plugin's process by code."}, []string{"plugin", "code"}),
		calls:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_plugin_calls_total", Help: "Calls of the plugin by result: ok or a code."}, []string{"plugin", "call", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rouse_plugin_call_seconds", Help: "How long calls of the plugin took.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 3, 12)}, []string{"plugin", "call"}),
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.up, m.starts, m.failures, m.calls, m.seconds} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// called counts one call.
func (m *metrics) called(plugin, call string, began time.Time, err error) {
	result := "ok"
	if err != nil {
		if result = CodeOf(err); result == "" {
			result = "error"
		}
	}
	m.calls.WithLabelValues(plugin, call, result).Inc()
	m.seconds.WithLabelValues(plugin, call).Observe(time.Since(began).Seconds())
}
