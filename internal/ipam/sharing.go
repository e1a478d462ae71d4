package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// clash says why two Services cannot have one address together; "" if they can (rule A7). Pools are not asked: what they
// say about sharing binds who comes, not who is there.
func clash(a, b *cluster.Service) string {
	if a.SharingKey == "" || a.SharingKey != b.SharingKey {
		return "they have no common sharing key"
	}
	for _, port := range a.Ports {
		if slices.Contains(b.Ports, port) {
			return fmt.Sprintf("both have port %d/%s", port.Number, port.Protocol)
		}
	}
	switch {
	case a.Policy != b.Policy:
		return "externalTrafficPolicy is Local on one and Cluster on the other"
	case a.Policy == cluster.PolicyLocal && a.Selector != b.Selector:
		return "externalTrafficPolicy is Local and they select different pods"
	}
	return ""
}

// sameSharing is true if two states of a Service share alike.
func sameSharing(a, b *cluster.Service) bool {
	return a.SharingKey == b.SharingKey && a.Policy == b.Policy && a.Selector == b.Selector &&
		slices.Equal(a.Ports, b.Ports) && slices.Equal(a.SharingNamespaces, b.SharingNamespaces)
}

// isThe is true if the entry is that Service's: the same object, not another of the same name.
func (e *entry) isThe(service *cluster.Service) bool {
	return e.service.Name == service.Name && e.service.UID == service.UID
}

// claims is true if the entry has a right to the address, and does not only still have it in its status. What another
// program has written there gives none: nobody loses an address to it (rule P5).
func (e *entry) claims(address netip.Addr) bool {
	return contains(e.wanted, address) || contains(e.stored, address)
}

// rival is who claims the address and cannot have it together with the Service; nil if nobody is. Of those that claim an
// address no two clash: where a change makes them clash, the one that changed gives way (rule A7).
func (l *Ledger) rival(service *cluster.Service, address netip.Addr) *cluster.Service {
	for e := range l.holders[address].each() {
		if !e.isThe(service) && e.claims(address) && clash(service, e.service) != "" {
			return e.service
		}
	}
	return nil
}

// others are the other Services that hold the address in whatever way.
func (l *Ledger) others(service *cluster.Service, address netip.Addr) []*cluster.Service {
	var others []*cluster.Service
	for e := range l.holders[address].each() {
		if !e.isThe(service) {
			others = append(others, e.service)
		}
	}
	return others
}

// earlier orders Services by when they got their addresses, then by age: the first of those that share an address is its
// host.
func earlier(a, b *cluster.Service) int {
	return cmp.Or(
		falseFirst(a.Recorded.Since.IsZero(), b.Recorded.Since.IsZero()),
		a.Recorded.Since.Compare(b.Recorded.Since),
		older(a, b),
	)
}

// forbids says why the pool does not let the Service share with the others, of whom host is the first; "" if it does.
func forbids(pool *cluster.Pool, service, host *cluster.Service, others []*cluster.Service) string {
	namespace := service.Name.Namespace
	abroad := slices.ContainsFunc(others, func(other *cluster.Service) bool { return other.Name.Namespace != namespace })
	switch {
	case pool.Sharing == cluster.Never:
		return fmt.Sprintf("pool %s lets nobody share an address", pool.Name)
	case !abroad:
		return ""
	case pool.Sharing == cluster.SameNamespace:
		return fmt.Sprintf("pool %s lets only Services of one namespace share an address", pool.Name)
	case host.Name.Namespace != namespace && !slices.Contains(host.SharingNamespaces, namespace):
		return fmt.Sprintf("Service %s, which came first, does not list namespace %s in berth.dev/sharing-namespaces", host.Name, namespace)
	}
	return ""
}

// merelyTolerated says why the Service would not be let on an address that it shares, were it to come to its host now; ""
// if it would. The host itself is never asked.
func (l *Ledger) merelyTolerated(service *cluster.Service, address netip.Addr) string {
	pool := l.pools.of(address)
	if pool == nil {
		return ""
	}
	var host *cluster.Service
	for e := range l.holders[address].each() {
		if !e.isThe(service) && e.claims(address) && (host == nil || earlier(e.service, host) < 0) {
			host = e.service
		}
	}
	if host == nil || earlier(service, host) < 0 {
		return ""
	}
	if why := forbids(pool.Pool, service, host, []*cluster.Service{host}); why != "" {
		return fmt.Sprintf("shared with Service %s, though %s", host.Name, why)
	}
	return ""
}

// reconsider wakes those that share an address, where the pool might not let them: who is the host, or whether there is
// one, has changed.
func (l *Ledger) reconsider(address netip.Addr, wakes woken) {
	current, pool := l.holders[address], l.pools.of(address)
	if current.first == nil || pool == nil {
		return
	}
	doubtful := pool.Sharing == cluster.Never
	for e := range current.each() {
		doubtful = doubtful || e.service.Name.Namespace != current.first.service.Name.Namespace ||
			e.last.Reason.Word == reason.SharingNotAllowed
	}
	if !doubtful {
		return
	}
	for e := range current.each() {
		wakes.add(e.service)
	}
}

// refuseCompany says why the Service cannot join those that hold the address; "" if it can, or if nobody holds it. first
// is the one it does not get along with, before others one without the key.
func (l *Ledger) refuseCompany(service *cluster.Service, address netip.Addr, pool *cluster.Pool) (first *cluster.Service, why string) {
	others := l.others(service, address)
	if len(others) == 0 {
		return nil, ""
	}
	for _, other := range others {
		switch found := clash(service, other); {
		case found == "":
		case service.SharingKey == "" || other.SharingKey != service.SharingKey: // no change of ports would help
			return other, found
		case why == "":
			first, why = other, found
		}
	}
	if why != "" {
		return first, why
	}
	host := slices.MinFunc(others, earlier)
	return host, forbids(pool, service, host, others)
}

// joined chooses addresses that Services of the same key hold, for the families that the Service lacks (rule A7). They
// are those of one of these Services: of the one that covers most families, then of the lowest addresses.
func (l *Ledger) joined(service *cluster.Service, own []held) []held {
	if service.SharingKey == "" || service.RequestProblem != nil || len(service.Request) > 0 {
		return nil
	}
	var best []held
	most := 0
	for e := range l.keys[service.SharingKey] {
		if e.isThe(service) {
			continue
		}
		taken, covered := l.joinedWith(service, own, e)
		if len(taken) > 0 && (covered > most || covered == most && slices.CompareFunc(taken, best, compareHeld) < 0) {
			best, most = taken, covered
		}
	}
	return best
}

func compareHeld(a, b held) int { return a.address.Compare(b.address) }

// joinedWith are the addresses of another Service that this one can join, and how many of its families it would then have
// together with it.
func (l *Ledger) joinedWith(service *cluster.Service, own []held, e *entry) (taken []held, covered int) {
	for _, family := range service.Families {
		theirs, has := ofFamily(e.wanted, family)
		if !has {
			continue
		}
		if mine, had := ofFamily(own, family); had && !l.leaves(service, mine) {
			if mine.address == theirs.address {
				covered++
			}
			continue
		}
		pool := l.pools.of(theirs.address)
		if pool == nil || !l.joinable(service, theirs.address, pool) {
			continue
		}
		covered++
		taken = append(taken, held{theirs.address, pool.Name})
	}
	return taken, covered
}

// joinable is true if the Service may be given the address by automatic choice, which others hold.
func (l *Ledger) joinable(service *cluster.Service, address netip.Addr, pool *poolIndex) bool {
	if service.RequestPool == "" && !pool.AutoAssign || service.RequestPool != "" && service.RequestPool != pool.Name {
		return false
	}
	return len(l.refuseFresh(service, address, pool)) == 0
}
