package l2

import "github.com/prometheus/client_golang/prometheus"

// metrics are what the responder counts, by link and family.
type metrics struct {
	requests, replies, gratuitous  *prometheus.CounterVec
	stale, refused, rivals, errors *prometheus.CounterVec

	repairs   prometheus.Counter
	addresses prometheus.GaugeFunc
}

// What an error was met at: the values of the label "at".
const (
	atOpen     = "open"
	atReceive  = "receive"
	atWatch    = "watch"
	atReply    = "reply"
	atAnnounce = "announce"
)

// Why a frame was refused, as receivers say it: the values of the label "why".
const (
	malformed = "malformed"
	overflow  = "overflow"
)

// newMetrics registers the metrics. have counts the addresses answered for.
func newMetrics(registerer prometheus.Registerer, have func() float64) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "l2", Name: name, Help: help,
		}, append([]string{"link", "family"}, labels...))
	}
	m := &metrics{
		requests: counter("requests_total", "ARP requests and neighbour solicitations seen for addresses this node answers for. "+
			"0 while neighbours ask means that they do not reach the link."),
		replies:    counter("replies_total", "ARP replies and solicited neighbour advertisements sent."),
		gratuitous: counter("gratuitous_frames_total", "Gratuitous ARP frames, in both forms, and unsolicited neighbour advertisements sent."),
		stale:      counter("stale_requests_total", "Requests dropped because they had waited for more than 200 ms."),
		refused: counter("refused_frames_total", "Frames about an address this node answers for that break the rules of the protocol "+
			"(malformed), and any for which there was no room (overflow).", "why"),
		rivals: counter("rival_claims_total",
			"Frames from elsewhere that claim an address this node answers for. A few at a change of owner are normal."),
		errors: counter("errors_total", "Errors, by link, family, and what was attempted.", "at"),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "l2", Name: "repairs_total",
			Help: "How often the regular check found a link that did not answer as it should, and repaired it.",
		}),
		addresses: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "l2", Name: "addresses", Help: "Addresses this node answers for.",
		}, have),
	}
	registerer.MustRegister(m.requests, m.replies, m.gratuitous, m.stale, m.refused, m.rivals, m.errors, m.repairs, m.addresses)
	return m
}

// portMetrics are the metrics of one family on one link.
type portMetrics struct {
	requests, replies, gratuitous, stale, rivals prometheus.Counter

	refused func(why string) prometheus.Counter
	errors  map[string]prometheus.Counter // by what was attempted
}

// of gives the metrics of a place, which are there with the value 0 from then on.
func (m *metrics) of(at place) *portMetrics {
	family := at.family.String()
	of := func(vec *prometheus.CounterVec) prometheus.Counter { return vec.WithLabelValues(at.link, family) }
	pm := &portMetrics{
		requests:   of(m.requests),
		replies:    of(m.replies),
		gratuitous: of(m.gratuitous),
		stale:      of(m.stale),
		rivals:     of(m.rivals),
		refused:    func(why string) prometheus.Counter { return m.refused.WithLabelValues(at.link, family, why) },
		errors:     map[string]prometheus.Counter{},
	}
	for _, why := range []string{malformed, overflow} {
		pm.refused(why)
	}
	for _, attempt := range []string{atOpen, atReceive, atWatch, atReply, atAnnounce} {
		pm.errors[attempt] = m.errors.WithLabelValues(at.link, family, attempt)
	}
	return pm
}
