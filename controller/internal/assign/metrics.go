package assign

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthlb/berth/internal/kube"
)

// Metrics are the Assigner's metrics.
type Metrics struct {
	Decisions prometheus.Counter
	writes    *prometheus.CounterVec
}

// NewMetrics makes the metrics, all at 0.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		Decisions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_controller_decisions_total", Help: "Decisions about the addresses of a Service.",
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_controller_service_writes_total",
			Help: "Answers to Services by what became of them: written, unchanged (nothing was sent), refused, unknown (no answer came).",
		}, []string{"outcome"}),
	}
	for _, outcome := range []kube.Outcome{kube.Unchanged, kube.Written, kube.NotWritten, kube.Unknown} {
		m.writes.WithLabelValues(label(outcome))
	}
	registry.MustRegister(m.Decisions, m.writes)
	return m
}

// count counts what became of an answer.
func (m *Metrics) count(outcome kube.Outcome) { m.writes.WithLabelValues(label(outcome)).Inc() }

func label(outcome kube.Outcome) string {
	switch outcome {
	case kube.Unchanged:
		return "unchanged"
	case kube.Written:
		return "written"
	case kube.NotWritten:
		return "refused"
	default:
		return "unknown"
	}
}
