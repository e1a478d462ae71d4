package ipam

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// corner is the part of a pool that a reservation keeps for one Service (rule A9). Its free addresses are apart from the
// pool's.
type corner struct {
	stock

	reservation *cluster.Reservation
	pool        *poolIndex
	ranges      []netipx.IPRange
}

// has is true if the corner has addresses of the family, free or not.
func (c *corner) has(family cluster.Family) bool { return hasFamily(c.ranges, family) }

// reserve gives each reservation its corners. Where two overlap the older one has the overlap.
func (p *pools) reserve(all []*cluster.Reservation, skip *skipped) {
	byAge := slices.SortedFunc(slices.Values(all), func(a, b *cluster.Reservation) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	var taken []netipx.IPRange
	for i, reservation := range byAge {
		p.reservations[reservation.Name] = reservation
		if reservation.Problem != nil {
			p.reservationProblems[reservation.Name] = reservation.Problem
			continue
		}
		if problem := overlapOf(reservation, byAge[:i]); problem != nil {
			p.reservationProblems[reservation.Name] = problem
		}
		ranges := subtract(reservation.Ranges, taken)
		taken = unite(taken, ranges)
		p.cut(reservation, ranges, skip)
	}
}

// overlapOf says which older reservation has a part of this one; nil if none has.
func overlapOf(reservation *cluster.Reservation, olderOnes []*cluster.Reservation) *reason.Reason {
	for _, other := range olderOnes {
		if common, overlap := firstCommon(reservation.Ranges, other.Ranges); overlap && other.Problem == nil {
			return reason.New(reason.Overlaps, "%s is also in the older reservation %s, which keeps it", common, other.Name)
		}
	}
	return nil
}

// cut cuts a reservation's corners out of the pools.
func (p *pools) cut(reservation *cluster.Reservation, ranges []netipx.IPRange, skip *skipped) {
	outside := ranges
	for _, pool := range p.ordered {
		inside := intersect(ranges, pool.used)
		if len(inside) == 0 {
			continue
		}
		outside = subtract(outside, inside)
		c := &corner{reservation: reservation, pool: pool, ranges: inside}
		c.fill(inside, pool.AvoidBuggyIPs, skip)
		pool.unreserved = subtract(pool.unreserved, inside)
		p.corners[reservation.Service] = append(p.corners[reservation.Service], c)
		for _, r := range inside {
			p.regions = append(p.regions, region{r, pool, c})
		}
	}
	if len(outside) > 0 && p.reservationProblems[reservation.Name] == nil {
		p.reservationProblems[reservation.Name] = reason.New(reason.NotInPool, "%s is in no pool: it cannot be given", outside[0])
	}
}

// fromReservation answers a Service for which addresses are reserved; false if none are that it could have. It waits for
// them rather than take others.
func (l *Ledger) fromReservation(service *cluster.Service, a *answer) bool {
	var names []string
	for _, c := range l.pools.corners[service.Name] {
		if !c.has(a.family) || !l.open(c.pool, service) || service.RequestPool != "" && service.RequestPool != c.pool.Name {
			continue
		}
		address, free := c.free(a.family).lowest(service.ClusterAddresses)
		if refusal := l.refuseByQuota(service, c.pool, a.family); free && refusal != nil {
			a.keep(refusal, waitKey{place: place{c.pool.Name, a.family, service.Name.Namespace}}, waitKey{reservedFor: service.Name})
			return true
		}
		if free {
			a.chosen = held{address, c.pool.Name}
			return true
		}
		names = append(names, c.reservation.Name)
	}
	if len(names) == 0 {
		return false
	}
	if l.fromCooling(service, a, true) {
		return true
	}
	why := reason.New(reason.AddressInUse, "no %s address of reservation %s, which is for this Service, is free",
		a.family, strings.Join(slices.Compact(names), ", "))
	a.keep(why, waitKey{reservedFor: service.Name})
	return true
}

// Reservation says what is wrong with a reservation; nil if it is used as written. known is false if there is none of
// that name.
func (l *Ledger) Reservation(name string) (problem *reason.Reason, known bool) {
	reservation := l.pools.reservations[name]
	if reservation == nil {
		return nil, false
	}
	if problem := l.pools.reservationProblems[name]; problem != nil {
		return problem, true
	}
	for _, c := range l.pools.corners[reservation.Service] {
		if c.reservation != reservation {
			continue
		}
		if problem := l.heldByOthers(c); problem != nil {
			return problem, true
		}
	}
	return nil, true
}

// heldByOthers says which address of a corner another Service holds; nil if none does. It keeps it: a reservation binds
// what is given from now on (rule P5).
func (l *Ledger) heldByOthers(c *corner) *reason.Reason {
	var lowest netip.Addr
	var holder cluster.Name
	for address := range l.heldIn(c.ranges) {
		for e := range l.holders[address].each() {
			if e.service.Name != c.reservation.Service && (!lowest.IsValid() || address.Less(lowest)) {
				lowest, holder = address, e.service.Name
			}
		}
	}
	if !lowest.IsValid() {
		return nil
	}
	return reason.New(reason.AddressInUse, "%s is held by Service %s, which keeps it", lowest, holder)
}

// heldIn are the held addresses of ranges. It walks the ranges or the holders, whichever are fewer.
func (l *Ledger) heldIn(ranges []netipx.IPRange) iter.Seq[netip.Addr] {
	var size count
	for _, r := range ranges {
		size = size.plus(span{r.From(), r.To()}.size())
	}
	if size.int64() > int64(len(l.holders)) {
		return func(yield func(netip.Addr) bool) {
			for address := range l.holders {
				if containsAddress(ranges, address) && !yield(address) {
					return
				}
			}
		}
	}
	return func(yield func(netip.Addr) bool) {
		for _, r := range ranges {
			for address := r.From(); r.Contains(address); address = address.Next() {
				if _, held := l.holders[address]; held && !yield(address) {
					return
				}
			}
		}
	}
}
