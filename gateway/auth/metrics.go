package auth

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/plugins/contract"
)

// metrics are what is counted of one hook or authorizer. Its labels are resolved
// once: most requests do nothing but count.
type metrics struct {
	remembered prometheus.Counter
	answers    map[contract.Verdict]prometheus.Counter
	failures   prometheus.Counter
	took       prometheus.Observer
}

// vectors are the metrics of a chain.
type vectors struct {
	answers *prometheus.CounterVec
	took    *prometheus.HistogramVec
}

// newVectors registers the metrics; a nil registry keeps them to itself.
func newVectors(r prometheus.Registerer) vectors {
	v := vectors{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_auth_answers_total",
			Help: "Answers of auth hooks and authorizers: allow, deny, no_opinion, failure, or remembered, which asked nobody."}, []string{"hook", "question", "answer"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rouse_auth_seconds", Help: "How long hooks and authorizers took to answer.",
			Buckets: []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3}}, []string{"hook", "question"}),
	}
	if r != nil {
		r.MustRegister(v.answers, v.took)
	}
	return v
}

// of resolves the labels of one hook.
func (v vectors) of(hook, question string) *metrics {
	count := func(answer string) prometheus.Counter { return v.answers.WithLabelValues(hook, question, answer) }
	return &metrics{remembered: count("remembered"), failures: count("failure"), took: v.took.WithLabelValues(hook, question),
		answers: map[contract.Verdict]prometheus.Counter{contract.Allow: count("allow"), contract.Deny: count("deny"), contract.NoOpinion: count("no_opinion")}}
}

// answered counts an answer that a hook gave; one that is none is a failure.
func (m *metrics) answered(began time.Time, v contract.Verdict, err error) {
	m.took.Observe(time.Since(began).Seconds())
	if c := m.answers[v]; c != nil && err == nil {
		c.Inc()
		return
	}
	m.failures.Inc()
}
