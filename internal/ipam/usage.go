package ipam

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// Usage is what there is to say about a pool.
type Usage struct {
	IPv4, IPv6 FamilyUsage
	// Overlap says which older pool has a part of this one; nil if none has.
	Overlap *reason.Reason
	// Skipped are addresses of the pool that nobody is given because a node or the cluster has them, in order: the first
	// 64 entries. SkippedMore is true if there are others.
	Skipped     []Skipped
	SkippedMore bool
	// Cooling are the pool's addresses that cool down, in order.
	Cooling []Cooling
}

// Skipped is a part of a pool that is not given out, and whose it is.
type Skipped struct {
	Range netipx.IPRange
	Why   string // "an address of node n1"
}

// mostSkipped is how many entries of Skipped there are at most.
const mostSkipped = 64

// FamilyUsage counts the addresses of one family of a pool. Numbers above 2^63-1 are given as that (rule P17).
type FamilyUsage struct {
	Capacity  int64 // what the pool's author wrote, less what is excluded
	Assigned  int64 // held by Services, each address once
	Available int64 // neither held nor skipped nor reserved nor cooling down nor an older pool's
}

// Usage counts a pool's addresses; false if there is no pool of that name.
func (l *Ledger) Usage(name string) (Usage, bool) {
	pool := l.pools.byName[name]
	if pool == nil {
		return Usage{}, false
	}
	usage := Usage{Overlap: pool.overlap}
	var capacity4, capacity6 count
	for _, r := range pool.Ranges {
		size := span{r.From(), r.To()}.size()
		if cluster.FamilyOf(r.From()) == cluster.IPv4 {
			capacity4 = capacity4.plus(size)
		} else {
			capacity6 = capacity6.plus(size)
		}
	}
	usage.IPv4 = FamilyUsage{capacity4.int64(), pool.held4, pool.free4.free.int64()}
	usage.IPv6 = FamilyUsage{capacity6.int64(), pool.held6, pool.free6.free.int64()}
	usage.Skipped = l.skippedOf(pool)
	if usage.SkippedMore = len(usage.Skipped) > mostSkipped; usage.SkippedMore {
		usage.Skipped = usage.Skipped[:mostSkipped]
	}
	usage.Cooling = l.coolingOf(pool)
	return usage, true
}

// skippedOf is what is skipped of a pool, in order. An address that several reasons concern is named once. To find it
// takes a look at every Service's addresses, so it is kept until one of the pool's addresses is concerned.
func (l *Ledger) skippedOf(pool *poolIndex) []Skipped {
	known, found := l.skippedIn[pool]
	if !found {
		known = l.findSkipped(pool)
		l.skippedIn[pool] = known
	}
	return known
}

func (l *Ledger) findSkipped(pool *poolIndex) []Skipped {
	var skipped []Skipped
	for _, one := range l.skip.prefixes {
		for _, r := range intersect([]netipx.IPRange{netipx.RangeOfPrefix(one.prefix)}, pool.used) {
			skipped = append(skipped, Skipped{r, "in " + one.prefix.String() + ", which is for " + one.use})
		}
	}
	seen := map[netip.Addr]bool{}
	for address := range l.skip.single() {
		if !seen[address] && !l.skip.inPrefix(address) && containsAddress(pool.used, address) {
			seen[address] = true
			skipped = append(skipped, Skipped{netipx.IPRangeFrom(address, address), l.skip.why(address)})
		}
	}
	slices.SortFunc(skipped, func(a, b Skipped) int {
		return cmp.Or(a.Range.From().Compare(b.Range.From()), a.Range.To().Compare(b.Range.To()), cmp.Compare(a.Why, b.Why))
	})
	return skipped
}

// coolingOf is what cools down of a pool, in order.
func (l *Ledger) coolingOf(pool *poolIndex) []Cooling {
	var list []Cooling
	for address, one := range l.cooling.byAddress {
		if l.pools.of(address) == pool {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b Cooling) int { return a.Address.Compare(b.Address) })
	return list
}
