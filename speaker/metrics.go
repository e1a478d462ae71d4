package main

import "github.com/prometheus/client_golang/prometheus"

// registerMembers registers how many speakers this one sees alive and how many there should be. Where fewer are seen than
// expected for long, speakers are down or gossip is cut, and two may answer for one address (fault F53).
func (s *speaker) registerMembers() {
	gauge := func(name, help string, value func() int) {
		s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "speakers", Name: name, Help: help,
		}, func() float64 { return float64(value()) }))
	}
	gauge("seen", "Speakers that this one sees alive, itself included.", func() int { return len(s.ring.Members()) })
	gauge("expected", "Speakers that should be alive: those of Nodes that exist.", func() int { return len(s.directory.known()) })
}
