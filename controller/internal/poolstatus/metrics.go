package poolstatus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthlb/berth/internal/ipam"
)

// Metrics are the gauges of pools.
type Metrics struct {
	addresses *prometheus.GaugeVec
	pools     map[string]bool // those that are shown
}

// NewMetrics makes the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{pools: map[string]bool{}, addresses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "berth_pool_addresses",
		Help: "Addresses of a pool by family and by state: capacity, assigned, available. Numbers above 2^63-1 are shown as that.",
	}, []string{"pool", "family", "state"})}
	registry.MustRegister(m.addresses)
	return m
}

// keep drops all pools but these.
func (m *Metrics) keep(names map[string]bool) {
	for name := range m.pools {
		if !names[name] {
			delete(m.pools, name)
			m.addresses.DeletePartialMatch(prometheus.Labels{"pool": name})
		}
	}
}

// set shows a pool's counts.
func (m *Metrics) set(pool string, usage ipam.Usage) {
	m.pools[pool] = true
	for family, counts := range map[string]ipam.FamilyUsage{"ipv4": usage.IPv4, "ipv6": usage.IPv6} {
		if counts == (ipam.FamilyUsage{}) {
			continue
		}
		m.addresses.WithLabelValues(pool, family, "capacity").Set(float64(counts.Capacity))
		m.addresses.WithLabelValues(pool, family, "assigned").Set(float64(counts.Assigned))
		m.addresses.WithLabelValues(pool, family, "available").Set(float64(counts.Available))
	}
}
