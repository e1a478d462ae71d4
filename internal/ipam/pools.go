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
	stock // of what is not reserved

	used       []netipx.IPRange // the pool's ranges less what older pools have
	unreserved []netipx.IPRange // of these, what no reservation has
	overlap    *reason.Reason   // says which older pool has a part of this one; nil if none has
	held4      int64            // addresses of the used ranges that somebody holds
	held6      int64
}

// stock is free addresses.
type stock struct{ free4, free6 *freeSet }

// free are the free addresses of a family.
func (s *stock) free(family cluster.Family) *freeSet {
	if family == cluster.IPv4 {
		return s.free4
	}
	return s.free6
}

// fill makes every address of the ranges free that is not skipped.
func (s *stock) fill(ranges []netipx.IPRange, avoidBuggy bool, skip *skipped) {
	s.free4, s.free6 = newFreeSet(avoidBuggy), newFreeSet(false)
	for _, r := range subtract(ranges, skip.ranges) {
		s.free(cluster.FamilyOf(r.From())).fill(span{r.From(), r.To()})
	}
	for address := range skip.single() {
		s.free(cluster.FamilyOf(address)).take(address)
	}
}

// clone is a copy that can be changed.
func (s *stock) clone() stock { return stock{s.free4.clone(), s.free6.clone()} }

// held is the number of held addresses of a family.
func (p *poolIndex) held(family cluster.Family) *int64 {
	if family == cluster.IPv4 {
		return &p.held4
	}
	return &p.held6
}

// has is true if the pool may hand out addresses of the family.
func (p *poolIndex) has(family cluster.Family) bool { return hasFamily(p.used, family) }

// hasFamily is true if there are addresses of the family.
func hasFamily(ranges []netipx.IPRange, family cluster.Family) bool {
	return slices.ContainsFunc(ranges, func(r netipx.IPRange) bool { return cluster.FamilyOf(r.From()) == family })
}

// clone is a copy that can be changed.
func (p *poolIndex) clone() *poolIndex {
	copied := *p
	copied.stock = p.stock.clone()
	return &copied
}

// pools are all pools in the order in which they are tried, and where each address belongs.
type pools struct {
	ordered []*poolIndex          // in the order of rule A4
	byName  map[string]*poolIndex //
	regions []region              // the used ranges of all pools: sorted, without overlaps

	corners             map[cluster.Name][]*corner // what is reserved for each Service, in the order of the pools
	reservations        map[string]*cluster.Reservation
	reservationProblems map[string]*reason.Reason
}

// region is a used range of a pool, or of a corner of it.
type region struct {
	netipx.IPRange
	pool   *poolIndex
	corner *corner // nil if the range is not reserved
}

// stock is where the free addresses of the region are.
func (r *region) stock() *stock {
	if r.corner != nil {
		return &r.corner.stock
	}
	return &r.pool.stock
}

// newPools lays the pools out. Where two overlap the older one has the overlap: the newer one is not used there, and
// says so (rule A6). What is skipped is not free.
func newPools(all []*cluster.Pool, reservations []*cluster.Reservation, skip *skipped) pools {
	byAge := slices.SortedFunc(slices.Values(all), func(a, b *cluster.Pool) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	laid := pools{
		byName:              make(map[string]*poolIndex, len(all)),
		corners:             map[cluster.Name][]*corner{},
		reservations:        make(map[string]*cluster.Reservation, len(reservations)),
		reservationProblems: map[string]*reason.Reason{},
	}
	for i, pool := range byAge {
		index := &poolIndex{Pool: pool, used: pool.Ranges}
		if pool.Problem != nil {
			index.used = nil
		}
		for _, older := range byAge[:i] {
			index.yield(laid.byName[older.Name])
		}
		index.unreserved = index.used
		laid.byName[pool.Name] = index
		laid.ordered = append(laid.ordered, index)
	}
	slices.SortFunc(laid.ordered, compareOrder)
	laid.reserve(reservations, skip)
	for _, index := range laid.ordered {
		index.fill(index.unreserved, index.AvoidBuggyIPs, skip)
		for _, r := range index.unreserved {
			laid.regions = append(laid.regions, region{r, index, nil})
		}
	}
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

// of is the pool that may hand out the address; nil if none may.
func (p *pools) of(address netip.Addr) *poolIndex {
	if at := p.at(address); at != nil {
		return at.pool
	}
	return nil
}

// at is the region of the address; nil if no pool may hand it out.
func (p *pools) at(address netip.Addr) *region {
	i, found := slices.BinarySearchFunc(p.regions, address, func(r region, a netip.Addr) int { return compareRange(r.IPRange, a) })
	if !found {
		return nil
	}
	return &p.regions[i]
}

// clone is a copy that can be changed.
func (p *pools) clone() pools {
	copied := *p // what is not copied below is never changed
	copied.byName, copied.ordered, copied.regions = make(map[string]*poolIndex, len(p.byName)), nil, nil
	for _, index := range p.ordered {
		fresh := index.clone()
		copied.ordered = append(copied.ordered, fresh)
		copied.byName[fresh.Name] = fresh
	}
	fresh := map[*corner]*corner{nil: nil}
	copied.corners = make(map[cluster.Name][]*corner, len(p.corners))
	for name, corners := range p.corners {
		for _, c := range corners {
			twin := *c
			twin.stock, twin.pool = c.clone(), copied.byName[c.pool.Name]
			fresh[c] = &twin
			copied.corners[name] = append(copied.corners[name], &twin)
		}
	}
	for _, r := range p.regions {
		copied.regions = append(copied.regions, region{r.IPRange, copied.byName[r.pool.Name], fresh[r.corner]})
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

// unite is a and b.
func unite(a, b []netipx.IPRange) []netipx.IPRange {
	var set netipx.IPSetBuilder
	for _, r := range slices.Concat(a, b) {
		set.AddRange(r)
	}
	return mustRanges(&set)
}

// intersect is what a and b have in common.
func intersect(a, b []netipx.IPRange) []netipx.IPRange { return subtract(a, subtract(a, b)) }

// containsAddress is true if the address is in one of the sorted ranges.
func containsAddress(ranges []netipx.IPRange, address netip.Addr) bool {
	_, found := slices.BinarySearchFunc(ranges, address, compareRange)
	return found
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
