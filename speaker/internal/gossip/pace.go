package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// fastMembers is up to how many members memberlist runs at the fast pace.
	fastMembers = 50
	// paceMargin is by how much fewer there must be before the pace is fast again.
	paceMargin = 10
	// suspicion is memberlist's SuspicionMult: so many probe intervals pass, for few members, between suspecting a
	// member and holding it for dead.
	suspicion = 3
)

// pace is how often members probe each other and gossip. Measured on loopback: at the fast pace a dead member is known to
// all within 0.8 to 1.6 s up to 50 members, but 100 members on two processors then find dead who is not.
type pace struct{ probe, timeout, gossip time.Duration }

// paceOf is the pace for so many members, given the one at which they run now.
func paceOf(now pace, members int) pace {
	fast := pace{probe: 200 * time.Millisecond, timeout: 100 * time.Millisecond, gossip: 50 * time.Millisecond}
	slow := pace{probe: 500 * time.Millisecond, timeout: 200 * time.Millisecond, gossip: 100 * time.Millisecond}
	limit := fastMembers
	if now == slow {
		limit -= paceMargin
	}
	if members > limit {
		return slow
	}
	return fast
}

// detection is the shortest time in which members can hold one for dead that has fallen silent: one probe interval until
// it is suspected, and so many until it is dead.
func (p pace) detection() time.Duration { return (1 + suspicion) * p.probe }

// apply sets memberlist's timers.
func (p pace) apply(config *memberlist.Config) {
	config.ProbeInterval, config.ProbeTimeout, config.GossipInterval = p.probe, p.timeout, p.gossip
	config.SuspicionMult, config.SuspicionMaxTimeoutMult = suspicion, 2
}
