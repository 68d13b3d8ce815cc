package shape

import "github.com/prometheus/client_golang/prometheus"

// metrics of the endpoint.
type metrics struct {
	refetches prometheus.Counter
	snapshots prometheus.Counter
	sessions  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, h *Handler) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "rouse", Subsystem: "shape", Name: name, Help: help})
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "shape", Name: name, Help: help}, f)
	}
	m := &metrics{
		refetches: counter("refetches_total", "Clients that were told to fetch their shape anew."),
		snapshots: counter("snapshots_total", "Snapshots that were read."),
		sessions:  counter("sessions_total", "Row sessions that began."),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.refetches, m.snapshots, m.sessions,
		gauge("up", "1 while rows are read from the log, which they are while somebody asks for shapes.", func() float64 {
			if h.ring.after(0).up {
				return 1
			}
			return 0
		}),
		gauge("requests", "Requests that are being served, those that wait for changes included.", func() float64 { return float64(h.source.busy()) }),
		gauge("ring_bytes", "Memory of the changes that are kept for clients to go on from.", func() float64 { return float64(h.ring.size()) }),
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
