package l2

import "github.com/prometheus/client_golang/prometheus"

// metrics are what the responder counts, by link.
type metrics struct {
	requests, replies, gratuitous *prometheus.CounterVec
	stale, rivals, errors         *prometheus.CounterVec
	repairs                       prometheus.Counter
	addresses                     prometheus.GaugeFunc
}

// What an error was met at: the values of the label "at".
const (
	atOpen     = "open"
	atReceive  = "receive"
	atWatch    = "watch"
	atReply    = "reply"
	atAnnounce = "announce"
)

// newMetrics registers the metrics. have counts the addresses answered for.
func newMetrics(registerer prometheus.Registerer, have func() float64) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "l2", Name: name, Help: help,
		}, labels)
	}
	m := &metrics{
		requests: counter("requests_total",
			"ARP requests seen for addresses this node answers for. 0 while neighbours ask means that they do not reach the link.", "link"),
		replies:    counter("replies_total", "ARP replies sent.", "link"),
		gratuitous: counter("gratuitous_frames_total", "Gratuitous ARP frames sent, both forms.", "link"),
		stale:      counter("stale_requests_total", "ARP requests dropped because they had waited for more than 200 ms.", "link"),
		rivals: counter("rival_claims_total",
			"ARP frames from elsewhere that claim an address this node answers for. A few at a change of owner are normal.", "link"),
		errors: counter("errors_total", "Errors, by link and by what was attempted.", "link", "at"),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "l2", Name: "repairs_total",
			Help: "How often the regular check found a link that did not answer as it should, and repaired it.",
		}),
		addresses: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "l2", Name: "addresses", Help: "Addresses this node answers for.",
		}, have),
	}
	registerer.MustRegister(m.requests, m.replies, m.gratuitous, m.stale, m.rivals, m.errors, m.repairs, m.addresses)
	return m
}

// linkMetrics are the metrics of one link.
type linkMetrics struct {
	requests, replies, gratuitous, stale, rivals prometheus.Counter

	errors map[string]prometheus.Counter // by what was attempted
}

// of gives a link's metrics, which are there with the value 0 from then on.
func (m *metrics) of(link string) *linkMetrics {
	lm := &linkMetrics{
		requests:   m.requests.WithLabelValues(link),
		replies:    m.replies.WithLabelValues(link),
		gratuitous: m.gratuitous.WithLabelValues(link),
		stale:      m.stale.WithLabelValues(link),
		rivals:     m.rivals.WithLabelValues(link),
		errors:     map[string]prometheus.Counter{},
	}
	for _, at := range []string{atOpen, atReceive, atWatch, atReply, atAnnounce} {
		lm.errors[at] = m.errors.WithLabelValues(link, at)
	}
	return lm
}
