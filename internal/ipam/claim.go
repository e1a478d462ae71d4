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

// loss is an address that a Service has in its status and cannot keep, since another Service has it.
type loss struct {
	address netip.Addr
	to      cluster.Name
	why     string
	broken  bool // the two shared it, or have the same key, and do not go together
}

func lose(service, other *cluster.Service, address netip.Addr, broken bool) loss {
	return loss{address, other.Name, clash(service, other), broken || service.SharingKey != "" && service.SharingKey == other.SharingKey}
}

// claim says which addresses are the Service's own, at most one of each family it wants, and which in its status would
// be if another Service did not hold them. What the status holds comes first; what our record names counts also where
// somebody emptied or overwrote the status (rule P5). The pools are the recorded ones, see poolName.
func (l *Ledger) claim(service *cluster.Service) (own []held, lost []loss) {
	if !service.Ours {
		return nil, nil
	}
	given := record(service)
	for _, address := range service.Recorded.Addresses {
		if !l.ours(service, address) || !lacks(service, own, address) {
			continue
		}
		if other := l.rival(service, address); other != nil {
			lost = append(lost, lose(service, other, address, false))
			continue
		}
		own = append(own, held{address, poolIn(given, address)})
	}
	for _, one := range given {
		if lacks(service, own, one.address) && l.rival(service, one.address) == nil && l.pure(service, one.address) {
			own = append(own, one)
		}
	}
	return own, lost
}

// pure is true if the Service goes together with all that hold the address in whatever way.
func (l *Ledger) pure(service *cluster.Service, address netip.Addr) bool {
	return !slices.ContainsFunc(l.others(service, address), func(other *cluster.Service) bool { return clash(service, other) != "" })
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

// ours is true if a stored address is from Berth: our record names it, or it lies in a pool open to the Service, and is
// not one of a node or of the cluster, as other load balancers put into statuses (rule A14).
func (l *Ledger) ours(service *cluster.Service, address netip.Addr) bool {
	if contains(record(service), address) {
		return true
	}
	pool := l.pools.of(address)
	return pool != nil && l.open(pool, service) && !l.skip.ofCluster(address)
}

// open is true if the Service may have addresses of the pool.
func (l *Ledger) open(pool *poolIndex, service *cluster.Service) bool {
	var labels map[string]string
	if namespace := l.namespaces[service.Name.Namespace]; namespace != nil {
		labels = namespace.Labels
	}
	return pool.Open(service, labels)
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
func (l *Ledger) basis(service *cluster.Service) (own []held, lost []loss) {
	var wanted []held
	if e := l.entries[service.Name]; e != nil && e.service.UID == service.UID {
		wanted = e.wanted
	}
	complete := true
	for _, family := range service.Families {
		one, has := ofFamily(wanted, family)
		if complete = complete && has; !has {
			continue
		}
		if other := l.rival(service, one.address); other != nil { // the Service has changed, and gives way (rule A7)
			lost = append(lost, lose(service, other, one.address, true))
			complete = false
			continue
		}
		own = append(own, held{one.address, l.poolName(service, one)})
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
	for _, other := range others {
		if !slices.ContainsFunc(lost, func(known loss) bool { return known.address == other.address }) {
			lost = append(lost, other)
		}
	}
	return own, slices.DeleteFunc(lost, func(one loss) bool { return !lacks(service, own, one.address) })
}
