package announce

import (
	"cmp"
	"net/netip"
	"slices"
)

// tier is how well placed a candidate is for an address: the better, the more of it holds, the first field first (rule E2).
type tier struct {
	fresh    bool // its speaker hears from the API server (rule E9)
	ready    bool // its node is ready; false for all where readiness is ignored
	onSubnet bool // it has an allowed link in the address's subnet
	weight   int  // the sum of preferredNodeSelectors
	settled  bool // it has not just come back (rule E8)
}

func (t tier) compare(other tier) int {
	return cmp.Or(
		falseFirst(t.fresh, other.fresh),
		falseFirst(t.ready, other.ready),
		falseFirst(t.onSubnet, other.onSubnet),
		cmp.Compare(t.weight, other.weight),
		falseFirst(t.settled, other.settled),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// tierOf is the tier of a place among candidates of which some things count or not.
func (d *decider) tierOf(c *class, i int, address netip.Addr, counts counting) tier {
	p := &d.places[i]
	_, onSubnet, _ := LinkFor(p.member.Links, c.interfaces[i], address)
	return tier{
		fresh:    !counts.stale || !p.member.Stale,
		ready:    counts.ready && p.ready,
		onSubnet: onSubnet,
		weight:   c.weights[i],
		settled:  p.member.Settled || p.member.Outlived >= c.delays[i],
	}
}

// counting says what of the candidates counts at all, seen over all of them.
type counting struct{ stale, ready bool }

func (d *decider) counting(candidates []int) counting {
	return counting{stale: d.staleCounts(candidates), ready: d.readyCounts(candidates)}
}

// staleCounts is true if some candidate is sure that the API server answers. Else it may be the API server that has gone
// or just come back, and which speaker noticed first must not move an address (rule E9).
func (d *decider) staleCounts(candidates []int) bool {
	for _, i := range candidates {
		if member := d.places[i].member; !member.Stale && !member.Unsure {
			return true
		}
	}
	return false
}

// readyCounts is true unless fewer than half of the candidates are ready: then it is not the nodes that are in trouble
// but what reports on them, and readiness is ignored (rule E2).
func (d *decider) readyCounts(candidates []int) bool {
	ready := 0
	for _, i := range candidates {
		if d.places[i].ready {
			ready++
		}
	}
	return 2*ready >= len(candidates)
}

// bestTier are the candidates of the best tier. The list is good until the next call.
func (d *decider) bestTier(c *class, candidates []int, address netip.Addr) []int {
	var best tier
	d.tier = d.tier[:0]
	counts := d.counting(candidates)
	for _, i := range candidates {
		one := d.tierOf(c, i, address, counts)
		order := one.compare(best)
		if len(d.tier) == 0 || order > 0 {
			best, d.tier = one, append(d.tier[:0], i)
		} else if order == 0 {
			d.tier = append(d.tier, i)
		}
	}
	return d.tier
}

// tierForAll is the best tier of all the class's candidates. It is the same for all addresses in the same subnets, and
// worked out once for those.
func (d *decider) tierForAll(c *class, address netip.Addr) []int {
	d.key = d.key[:0]
	for i, subnet := range d.subnets {
		if subnet.Contains(address) {
			d.key = appendKey(d.key, i)
		}
	}
	if known, found := c.tiers[string(d.key)]; found {
		return known
	}
	made := slices.Clone(d.bestTier(c, c.candidates, address))
	c.tiers[string(d.key)] = made
	return made
}
