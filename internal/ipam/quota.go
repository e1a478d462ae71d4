package ipam

import (
	"net/netip"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// place is what a quota is about: the addresses of a family of a pool that Services of a namespace hold (rule A8).
type place struct {
	pool      string
	family    cluster.Family
	namespace string
}

// countForQuota adds to what a namespace holds, or takes away from it, unless another of its Services has the address
// too. The entry itself must not be among the holders. Who waits for the quota gets it, or is told the new figure.
func (l *Ledger) countForQuota(address netip.Addr, e *entry, change int64, wakes woken) {
	pool := l.pools.of(address)
	if pool == nil || pool.QuotaPerNamespace == 0 {
		return
	}
	namespace, alone := e.service.Name.Namespace, true
	for other := range l.holders[address].each() {
		if other.service.Name.Namespace == namespace {
			alone = false
			if len(other.last.waits) > 0 { // what it holds alone does not count against it
				wakes.add(other.service)
			}
		}
	}
	if !alone {
		return
	}
	of := place{pool.Name, cluster.FamilyOf(address), namespace}
	l.used[of] += change
	if l.used[of] < pool.QuotaPerNamespace {
		wakes.add(l.waiting.first(waitKey{place: of}))
	} else {
		l.waiting.all(waitKey{place: of}, wakes)
	}
	if l.used[of] == 0 {
		delete(l.used, of)
	}
}

// recountQuotas counts anew what namespaces hold, for another set of pools.
func (l *Ledger) recountQuotas() {
	l.used = map[place]int64{}
	for address, all := range l.holders {
		pool := l.pools.of(address)
		if pool == nil || pool.QuotaPerNamespace == 0 {
			continue
		}
		seen := map[string]bool{}
		for e := range all.each() {
			if namespace := e.service.Name.Namespace; !seen[namespace] {
				seen[namespace] = true
				l.used[place{pool.Name, cluster.FamilyOf(address), namespace}]++
			}
		}
	}
}

// refuseByQuota says why the Service's namespace may hold no further address of a family of a pool; nil if it may. What
// the Service holds there alone does not count: it is to be replaced.
func (l *Ledger) refuseByQuota(service *cluster.Service, pool *poolIndex, family cluster.Family) *reason.Reason {
	if pool.QuotaPerNamespace == 0 {
		return nil
	}
	used := l.used[place{pool.Name, family, service.Name.Namespace}]
	if e := l.entries[service.Name]; e != nil {
		for _, address := range e.all() {
			if cluster.FamilyOf(address) == family && l.pools.of(address) == pool && !l.heldInNamespace(service, address) {
				used--
			}
		}
	}
	if used < pool.QuotaPerNamespace {
		return nil
	}
	return reason.New(reason.QuotaExceeded, "namespace %s holds %d %s addresses of pool %s, and its quota is %d",
		service.Name.Namespace, used, family, pool.Name, pool.QuotaPerNamespace)
}

// heldInNamespace is true if another Service of the same namespace holds the address.
func (l *Ledger) heldInNamespace(service *cluster.Service, address netip.Addr) bool {
	for e := range l.holders[address].each() {
		if e.service.Name != service.Name && e.service.Name.Namespace == service.Name.Namespace {
			return true
		}
	}
	return false
}
