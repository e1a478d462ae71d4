package ipam

import (
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
)

// record is what our conditions say the Service was given: the addresses named by Allocated with the pools of Pool. The
// message of Allocated names the addresses held before any other, see holding.
func record(service *cluster.Service) []held {
	recorded := &service.Recorded
	if !recorded.ByUs {
		return nil
	}
	var given []held
	for i, address := range recorded.Named {
		switch {
		case i < len(recorded.Pools):
			given = append(given, held{address, recorded.Pools[i]})
		case len(recorded.Pools) == 0 && slices.Contains(recorded.Addresses, address):
			given = append(given, held{address: address}) // a record without its pools is still a record
		}
	}
	return given
}

// claim says which addresses are the Service's own, at most one of each family it wants, and which in its status would
// be if another Service did not hold them. What the status holds comes first; what our record names counts also where
// somebody emptied or overwrote the status (rule P5). The pools are the recorded ones, see poolName.
func (l *Ledger) claim(service *cluster.Service) (own []held, lost []netip.Addr) {
	if !service.Ours {
		return nil, nil
	}
	given := record(service)
	for _, address := range service.Recorded.Addresses {
		if !l.ours(service, address) || !lacks(service, own, address) {
			continue
		}
		if l.heldByAnother(service, address) != nil {
			lost = append(lost, address)
			continue
		}
		own = append(own, held{address, poolIn(given, address)})
	}
	for _, one := range given {
		if lacks(service, own, one.address) && l.heldByAnother(service, one.address) == nil {
			own = append(own, one)
		}
	}
	return own, lost
}

// lacks is true if the Service wants the address's family and has none of it yet.
func lacks(service *cluster.Service, own []held, address netip.Addr) bool {
	family := cluster.FamilyOf(address)
	_, has := ofFamily(own, family)
	return !has && slices.Contains(service.Families, family)
}

// poolIn is the pool an address has in the list, "" if it is not there.
func poolIn(list []held, address netip.Addr) string {
	for _, one := range list {
		if one.address == address {
			return one.pool
		}
	}
	return ""
}

// ours is true if a stored address is from Berth: our record names it, or it lies in a pool open to the Service
// (rule A14).
func (l *Ledger) ours(service *cluster.Service, address netip.Addr) bool {
	if contains(record(service), address) {
		return true
	}
	pool := l.pools.of(address)
	return pool != nil && l.open(pool, service)
}

// open is true if the Service may have addresses of the pool.
func (l *Ledger) open(pool *poolIndex, service *cluster.Service) bool {
	var labels map[string]string
	if namespace := l.namespaces[service.Name.Namespace]; namespace != nil {
		labels = namespace.Labels
	}
	return pool.Open(service, labels)
}

// heldByAnother is the Service that holds the address before all others, if that is another one; else nil.
func (l *Ledger) heldByAnother(service *cluster.Service, address netip.Addr) *cluster.Service {
	current, taken := l.holders[address]
	if !taken {
		return nil
	}
	if first := current.first.service; first.Name != service.Name || first.UID != service.UID {
		return first
	}
	return nil
}

// poolName is the name of the pool that a held address is from: the one recorded while that has it, or while the Service
// asks for it; else the one that has it now, which may be the old one under a new name; else the recorded one, which
// stays (rule A10).
func (l *Ledger) poolName(service *cluster.Service, one held) string {
	if pool := l.pools.byName[one.pool]; pool != nil && pool.Contains(one.address) {
		return one.pool
	}
	if one.pool != "" && one.pool == service.RequestPool { // no edit of pools makes a wish unmet that was met (P5)
		return one.pool
	}
	if pool := l.pools.of(one.address); pool != nil {
		return pool.Name
	}
	return one.pool
}

// inPool is true if any pool contains the address, also where an older pool has it.
func (l *Ledger) inPool(address netip.Addr) bool { return l.pools.of(address) != nil }

// basis is what the Service holds now, at most one address of each family it wants, in the order of its families; and
// for the families of which it holds none, what its status has that is another Service's. It is the newest answer, also
// one whose write has an unknown outcome: deciding as if it had arrived is what makes the next write settle it.
func (l *Ledger) basis(service *cluster.Service) (own []held, lost []netip.Addr) {
	var wanted []held
	if e := l.entries[service.Name]; e != nil && e.service.UID == service.UID {
		wanted = e.wanted
	}
	complete := true
	for _, family := range service.Families {
		one, has := ofFamily(wanted, family)
		if complete = complete && has; has {
			own = append(own, held{one.address, l.poolName(service, one)})
		}
	}
	if complete {
		return own, nil
	}
	claimed, others := l.claim(service)
	for _, one := range claimed {
		if lacks(service, own, one.address) {
			own = append(own, held{one.address, l.poolName(service, one)})
		}
	}
	return own, slices.DeleteFunc(others, func(address netip.Addr) bool { return !lacks(service, own, address) })
}
