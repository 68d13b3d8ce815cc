package dispatch

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	routed          *prometheus.CounterVec
	routeSeconds    prometheus.Histogram
	scanSeconds     prometheus.Histogram
	recovered       prometheus.Counter
	expired         prometheus.Counter
	redelivered     prometheus.Counter
	deliveries      *prometheus.CounterVec
	deliverySeconds prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	fast := prometheus.ExponentialBuckets(0.0005, 2, 14)
	m := &metrics{
		routed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_dispatch_routed_total",
			Help: "Streams handed to dispatch_route, by outcome."}, []string{"outcome"}),
		routeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rouse_dispatch_route_seconds",
			Help: "Time of one dispatch_route call.", Buckets: fast}),
		scanSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rouse_dispatch_scan_seconds",
			Help: "Time of one recovery scan.", Buckets: fast}),
		recovered: prometheus.NewCounter(prometheus.CounterOpts{Name: "rouse_dispatch_recovered_total",
			Help: "Streams the recovery scan found and routed."}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{Name: "rouse_claims_expired_total",
			Help: "Leases that ended without a release."}),
		redelivered: prometheus.NewCounter(prometheus.CounterOpts{Name: "rouse_wakes_redelivered_total",
			Help: "Unclaimed wakes that were told again."}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_deliveries_total",
			Help: "Delivery attempts of push transports, by outcome."}, []string{"outcome"}),
		deliverySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rouse_delivery_seconds",
			Help: "Time of one delivery attempt.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.routed, m.routeSeconds, m.scanSeconds, m.recovered, m.expired, m.redelivered, m.deliveries, m.deliverySeconds} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
