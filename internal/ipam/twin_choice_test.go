package ipam_test

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// together is true if two Services can have one address (rule A7).
func together(a, b *cluster.Service) bool {
	if a.SharingKey == "" || a.SharingKey != b.SharingKey || a.Policy != b.Policy {
		return false
	}
	for _, p := range a.Ports {
		if slices.Contains(b.Ports, p) {
			return false
		}
	}
	return a.Policy == cluster.PolicyCluster || a.Selector == b.Selector
}

// isSame is true if the twin's Service of that name is this one.
func (t *twin) isSame(name cluster.Name, s *cluster.Service) bool {
	return name == s.Name && t.holds[name].uid == s.UID
}

// rival is a Service that has a right to the address and cannot have it together with this one.
func (t *twin) rival(s *cluster.Service, address netip.Addr) *cluster.Service {
	for name := range t.holds {
		if !t.isSame(name, s) && t.claims(name, address) && !together(s, t.services[name]) {
			return t.services[name]
		}
	}
	return nil
}

func (t *twin) claims(name cluster.Name, address netip.Addr) bool {
	hold := t.holds[name]
	is := func(g given) bool { return g.address == address }
	return hold != nil && (slices.ContainsFunc(hold.wanted, is) || slices.ContainsFunc(hold.stored, is))
}

// company are the others that may have the address in their status.
func (t *twin) company(s *cluster.Service, address netip.Addr) []*cluster.Service {
	var list []*cluster.Service
	for name, hold := range t.holds {
		if hold.possible[address] && !t.isSame(name, s) {
			list = append(list, t.services[name])
		}
	}
	return list
}

func firstOf(list []*cluster.Service) *cluster.Service {
	return slices.MinFunc(list, func(a, b *cluster.Service) int {
		zero := func(s *cluster.Service) int {
			if s.Recorded.Since.IsZero() {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(zero(a), zero(b)), a.Recorded.Since.Compare(b.Recorded.Since), age(a, b), cmp.Compare(a.UID, b.UID))
	})
}

// allows is true if the pool lets the Service share with those.
func allows(pool *cluster.Pool, s *cluster.Service, company []*cluster.Service) bool {
	if pool.Sharing == cluster.Never {
		return false
	}
	for _, other := range company {
		if other.Name.Namespace == s.Name.Namespace {
			continue
		}
		first := firstOf(company)
		return pool.Sharing == cluster.AcrossNamespaces &&
			(first.Name.Namespace == s.Name.Namespace || slices.Contains(first.SharingNamespaces, s.Name.Namespace))
	}
	return true
}

// tolerated is true if the Service shares the address only because it was there before the pool forbade it.
func (t *twin) tolerated(s *cluster.Service, address netip.Addr) bool {
	pool := t.poolOf(address)
	company := slices.DeleteFunc(t.company(s, address), func(other *cluster.Service) bool { return !t.claims(other.Name, address) })
	if pool == nil || len(company) == 0 || firstOf(append(slices.Clone(company), s)) == s {
		return false
	}
	return !allows(pool, s, []*cluster.Service{firstOf(company)})
}

// overQuota is true if the namespace may hold no more of the pool.
func (t *twin) overQuota(s *cluster.Service, pool *cluster.Pool, family cluster.Family) bool {
	held := map[netip.Addr]bool{}
	for name, hold := range t.holds {
		if name == s.Name || name.Namespace != s.Name.Namespace {
			continue
		}
		for address := range hold.possible {
			if cluster.FamilyOf(address) == family && t.poolOf(address) == pool {
				held[address] = true
			}
		}
	}
	return pool.QuotaPerNamespace > 0 && int64(len(held)) >= pool.QuotaPerNamespace
}

// reservations are those there are, oldest first.
func (t *twin) reservations() []*cluster.Reservation {
	return slices.SortedFunc(slices.Values(t.picture.Reservations), func(a, b *cluster.Reservation) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

// reservedFor is the Service that the address is reserved for.
func (t *twin) reservedFor(address netip.Addr) *cluster.Name {
	for _, reservation := range t.reservations() {
		for _, r := range reservation.Ranges {
			if r.Contains(address) && reservation.Problem == nil {
				return &reservation.Service
			}
		}
	}
	return nil
}

// refuse says why the Service cannot be given an address of a pool.
func (t *twin) refuse(s *cluster.Service, address netip.Addr, pool *cluster.Pool) reason.Word {
	if !t.open(pool, s) {
		return reason.PoolNotOpen
	}
	if owner := t.reservedFor(address); owner != nil && *owner != s.Name {
		return reason.Reserved
	}
	if t.skippedFor(s, address) {
		return reason.AddressSkipped
	}
	if one, cools := t.cooling[address]; cools && one.Service != s.Name {
		return reason.CoolingDown
	}
	company := t.company(s, address)
	for _, other := range company {
		if !together(s, other) && (s.SharingKey == "" || s.SharingKey != other.SharingKey) {
			return reason.AddressInUse
		}
	}
	if slices.ContainsFunc(company, func(other *cluster.Service) bool { return !together(s, other) }) || len(company) > 0 && !allows(pool, s, company) {
		return reason.SharingRefused
	}
	for name, hold := range t.holds {
		if name != s.Name && name.Namespace == s.Name.Namespace && hold.possible[address] {
			return ""
		}
	}
	if t.overQuota(s, pool, cluster.FamilyOf(address)) {
		return reason.QuotaExceeded
	}
	return ""
}

// joined are addresses of one other Service of the same key that this one can share.
func (t *twin) joined(s *cluster.Service, own []given) (best []given) {
	if s.SharingKey == "" || len(s.Request) > 0 {
		return nil
	}
	most := 0
	for name, hold := range t.holds {
		if t.isSame(name, s) || t.services[name].SharingKey != s.SharingKey {
			continue
		}
		var taken []given
		covered := 0
		for _, family := range s.Families {
			ofFamily := func(g given) bool { return cluster.FamilyOf(g.address) == family }
			i, j := slices.IndexFunc(hold.wanted, ofFamily), slices.IndexFunc(own, ofFamily)
			if i < 0 {
				continue
			}
			theirs := hold.wanted[i].address
			if j >= 0 && !t.leaves(s, own[j]) {
				if own[j].address == theirs {
					covered++
				}
				continue
			}
			pool := t.poolOf(theirs)
			if pool == nil || !t.wantsPool(s, pool) || t.refuse(s, theirs, pool) != "" {
				continue
			}
			covered++
			taken = append(taken, given{theirs, pool.Name})
		}
		byAddress := func(a, b given) int { return a.address.Compare(b.address) }
		if len(taken) > 0 && (covered > most || covered == most && slices.CompareFunc(taken, best, byAddress) < 0) {
			best, most = taken, covered
		}
	}
	return best
}

func (t *twin) leaves(s *cluster.Service, one given) bool {
	return s.RequestPool != "" && one.pool != s.RequestPool ||
		s.Renumber != "" && s.Renumber != s.Recorded.Renumbered && t.poolOf(one.address) == nil
}

// wantsPool is true if automatic choice may take addresses of the pool.
func (t *twin) wantsPool(s *cluster.Service, pool *cluster.Pool) bool {
	if s.RequestPool != "" {
		return s.RequestPool == pool.Name
	}
	return pool.AutoAssign
}

// take chooses an address: reserved, cooling, joined, or the lowest.
func (t *twin) take(s *cluster.Service, family cluster.Family, pools []*cluster.Pool, joined []given) (*given, reason.Word) {
	if chosen, word, found := t.reserved(s, family); found {
		return chosen, word
	}
	if chosen := t.cooled(s, family, false); chosen != nil {
		return chosen, ""
	}
	for _, one := range joined {
		if cluster.FamilyOf(one.address) == family {
			return &one, ""
		}
	}
	full, over := false, false
	for _, pool := range pools {
		exists := false
		var lowest *given
		for address := range t.addresses(pool, family) {
			exists = true
			if lowest == nil && t.reservedFor(address) == nil && t.vacant(s, address) {
				lowest = &given{address, pool.Name}
			}
		}
		switch {
		case !exists:
		case t.overQuota(s, pool, family):
			over = true
		case lowest != nil:
			return lowest, ""
		default:
			full = true
		}
	}
	switch {
	case full:
		return nil, reason.PoolFull
	case over:
		return nil, reason.QuotaExceeded
	default:
		return nil, reason.NoPool
	}
}

// addresses walks those of a family of the pool that no older pool has.
func (t *twin) addresses(pool *cluster.Pool, family cluster.Family) func(func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		if pool.Problem != nil {
			return
		}
		for _, r := range pool.Ranges {
			for address := r.From(); r.Contains(address); address = address.Next() {
				if cluster.FamilyOf(address) == family && t.poolOf(address) == pool && !yield(address) {
					return
				}
			}
		}
	}
}

// vacant is true if nobody has the address, the Service itself included, and it is not kept for anybody.
func (t *twin) vacant(s *cluster.Service, address netip.Addr) bool {
	_, cools := t.cooling[address]
	return !t.skippedFor(s, address) && !cools && len(t.company(s, address)) == 0 && !t.ownOther(s, address)
}

// reserved answers for what is reserved for the Service; found is false if nothing is that it could have.
func (t *twin) reserved(s *cluster.Service, family cluster.Family) (chosen *given, word reason.Word, found bool) {
	type spot struct {
		pool        *cluster.Pool
		reservation *cluster.Reservation
	}
	var spots []spot
	for _, reservation := range t.reservations() {
		for _, pool := range asTried(t.picture.Pools) {
			if reservation.Service == s.Name && reservation.Problem == nil && t.open(pool, s) && (s.RequestPool == "" || s.RequestPool == pool.Name) {
				spots = append(spots, spot{pool, reservation})
			}
		}
	}
	for _, spot := range spots {
		for address := range t.addresses(spot.pool, family) {
			owner := t.reservedFor(address)
			if owner == nil || *owner != s.Name || !slices.ContainsFunc(spot.reservation.Ranges, func(r netipx.IPRange) bool { return r.Contains(address) }) {
				continue
			}
			found = true
			if !t.vacant(s, address) {
				continue
			}
			if t.overQuota(s, spot.pool, family) {
				return nil, reason.QuotaExceeded, true
			}
			return &given{address, spot.pool.Name}, "", true
		}
	}
	if !found {
		return nil, "", false
	}
	if chosen := t.cooled(s, family, true); chosen != nil {
		return chosen, "", true
	}
	return nil, reason.AddressInUse, true
}

// cooled is what the Service had, where that is cooling down.
func (t *twin) cooled(s *cluster.Service, family cluster.Family, reserved bool) *given {
	var lowest *given
	for address, one := range t.cooling {
		pool := t.poolOf(address)
		if one.Service != s.Name || cluster.FamilyOf(address) != family || pool == nil || !t.wantsPool(s, pool) ||
			reserved && t.reservedFor(address) == nil || t.refuse(s, address, pool) != "" {
			continue
		}
		if lowest == nil || address.Less(lowest.address) {
			lowest = &given{address, pool.Name}
		}
	}
	return lowest
}
