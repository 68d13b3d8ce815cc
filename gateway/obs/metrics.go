package obs

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is a gateway's own registry: two gateways in one process do not meet in it.
type Metrics struct {
	Registry *prometheus.Registry

	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	panics   prometheus.Counter
}

// NewMetrics makes a registry with the process's and the runtime's figures and those of the HTTP middleware. release
// is shown as rouse_build_info.
func NewMetrics(release string) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_http_requests_total",
			Help: "Requests answered, by route and status."}, []string{"route", "method", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rouse_http_request_seconds",
			Help:    "Time to the first byte of the answer, by route: a waiting long-poll or SSE counts until it has something to say.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"route", "method"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rouse_http_requests_in_flight",
			Help: "Requests being answered, open streams included."}, []string{"method"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "rouse_http_panics_total",
			Help: "Requests that ended in a recovered panic."}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "rouse_build_info", Help: "1, labelled with the release.",
		ConstLabels: prometheus.Labels{"release": release}})
	build.Set(1)
	m.Registry.MustRegister(m.requests, m.latency, m.inFlight, m.panics, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the registry.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry})
}
