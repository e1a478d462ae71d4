package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// poolIndex is a pool with its free addresses.
type poolIndex struct {
	*cluster.Pool
	used    []netipx.IPRange // the pool's ranges less what older pools have
	overlap *reason.Reason   // says which older pool has a part of this one; nil if none has
	free4   *freeSet
	free6   *freeSet
	held4   int64 // addresses of the used ranges that somebody holds
	held6   int64
}

// free are the pool's free addresses of a family.
func (p *poolIndex) free(family cluster.Family) *freeSet {
	if family == cluster.IPv4 {
		return p.free4
	}
	return p.free6
}

// held is the number of held addresses of a family.
func (p *poolIndex) held(family cluster.Family) *int64 {
	if family == cluster.IPv4 {
		return &p.held4
	}
	return &p.held6
}

// has is true if the pool may hand out addresses of the family.
func (p *poolIndex) has(family cluster.Family) bool {
	return slices.ContainsFunc(p.used, func(r netipx.IPRange) bool { return cluster.FamilyOf(r.From()) == family })
}

// clone is a copy that can be changed.
func (p *poolIndex) clone() *poolIndex {
	copied := *p
	copied.free4, copied.free6 = p.free4.clone(), p.free6.clone()
	return &copied
}

// pools are all pools in the order in which they are tried, and where each address belongs.
type pools struct {
	ordered []*poolIndex          // in the order of rule A4
	byName  map[string]*poolIndex //
	regions []region              // the used ranges of all pools: sorted, without overlaps
}

// region is a used range of a pool.
type region struct {
	netipx.IPRange
	pool *poolIndex
}

// newPools lays the pools out. Where two overlap the older one has the overlap: the newer one is not used there, and
// says so (rule A6). What is skipped is not free.
func newPools(all []*cluster.Pool, skip *skipped) pools {
	byAge := slices.SortedFunc(slices.Values(all), func(a, b *cluster.Pool) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	laid := pools{byName: make(map[string]*poolIndex, len(all))}
	for i, pool := range byAge {
		index := &poolIndex{Pool: pool, used: pool.Ranges}
		if pool.Problem != nil {
			index.used = nil
		}
		for _, older := range byAge[:i] {
			index.yield(laid.byName[older.Name])
		}
		index.fill(skip)
		laid.byName[pool.Name] = index
		laid.ordered = append(laid.ordered, index)
		for _, r := range index.used {
			laid.regions = append(laid.regions, region{r, index})
		}
	}
	slices.SortFunc(laid.ordered, compareOrder)
	slices.SortFunc(laid.regions, func(a, b region) int { return a.From().Compare(b.From()) })
	return laid
}

// compareOrder is the order in which pools are tried: those that say by selector whom they are for, then the others;
// in each, by priority, those without one last; then by name (rule A4).
func compareOrder(a, b *poolIndex) int {
	return cmp.Or(
		falseFirst(!a.Restricted(), !b.Restricted()),
		falseFirst(a.Priority == nil, b.Priority == nil),
		comparePriority(a.Priority, b.Priority),
		strings.Compare(a.Name, b.Name),
	)
}

// comparePriority compares two priorities; it is 0 where one is missing.
func comparePriority(a, b *int32) int {
	if a == nil || b == nil {
		return 0
	}
	return cmp.Compare(*a, *b)
}

// falseFirst orders false before true.
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

// yield leaves to an older pool what both have.
func (p *poolIndex) yield(older *poolIndex) {
	common, overlap := firstCommon(p.used, older.used)
	if !overlap {
		return
	}
	p.used = subtract(p.used, older.used)
	if p.overlap == nil {
		p.overlap = reason.New(reason.Overlaps, "%s is also in the older pool %s, which keeps it", common, older.Name)
	}
}

// fill makes every address free that is not skipped.
func (p *poolIndex) fill(skip *skipped) {
	p.free4, p.free6 = newFreeSet(p.AvoidBuggyIPs), newFreeSet(false)
	for _, r := range subtract(p.used, skip.ranges) {
		p.free(cluster.FamilyOf(r.From())).fill(span{r.From(), r.To()})
	}
	for address := range skip.nodes {
		p.free(cluster.FamilyOf(address)).take(address)
	}
	for address := range skip.services {
		p.free(cluster.FamilyOf(address)).take(address)
	}
}

// of is the pool that may hand out the address; nil if none may.
func (p *pools) of(address netip.Addr) *poolIndex {
	i, found := slices.BinarySearchFunc(p.regions, address, func(r region, a netip.Addr) int { return compareRange(r.IPRange, a) })
	if !found {
		return nil
	}
	return p.regions[i].pool
}

// clone is a copy that can be changed.
func (p *pools) clone() pools {
	copied := pools{byName: make(map[string]*poolIndex, len(p.byName))}
	for _, index := range p.ordered {
		fresh := index.clone()
		copied.ordered = append(copied.ordered, fresh)
		copied.byName[fresh.Name] = fresh
	}
	for _, r := range p.regions {
		copied.regions = append(copied.regions, region{r.IPRange, copied.byName[r.pool.Name]})
	}
	return copied
}

// subtract is a less b.
func subtract(a, b []netipx.IPRange) []netipx.IPRange {
	var set netipx.IPSetBuilder
	for _, r := range a {
		set.AddRange(r)
	}
	for _, r := range b {
		set.RemoveRange(r)
	}
	return mustRanges(&set)
}

// firstCommon is the first range that two sorted lists have in common.
func firstCommon(a, b []netipx.IPRange) (common netipx.IPRange, found bool) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].To().Less(b[0].From()):
			a = a[1:]
		case b[0].To().Less(a[0].From()):
			b = b[1:]
		default:
			from := slices.MaxFunc([]netip.Addr{a[0].From(), b[0].From()}, netip.Addr.Compare)
			to := slices.MinFunc([]netip.Addr{a[0].To(), b[0].To()}, netip.Addr.Compare)
			return netipx.IPRangeFrom(from, to), true
		}
	}
	return netipx.IPRange{}, false
}

// mustRanges are the ranges of a set built from ranges that were checked when they were parsed.
func mustRanges(builder *netipx.IPSetBuilder) []netipx.IPRange {
	set, err := builder.IPSet()
	if err != nil {
		panic(fmt.Sprintf("ipam: a range of a pool is not valid: %v", err))
	}
	return set.Ranges()
}
