package ipam

import (
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// Plan decides about every known Service on paper, oldest first, each answer held before the next, and returns those
// whose answer is not the one they have, or waits for something else: the Services that a change of the cluster concerns
// (rule P16). The ledger notes what it promised them, since those after them have been left out of account; besides, it
// stays as it is.
func (l *Ledger) Plan() []cluster.Name {
	paper := l.clone()
	services := make([]*cluster.Service, 0, len(l.entries))
	for _, e := range l.entries {
		services = append(services, e.service)
	}
	slices.SortFunc(services, older)
	var changed []cluster.Name
	for _, service := range services {
		decision := paper.Decide(service)
		paper.Hold(service, decision)
		paper.Settle(service.Name, Written)
		e := l.entries[service.Name]
		e.promised = promised(&decision)
		if !e.decided || !e.last.Equal(&decision) || !slices.Equal(e.last.waits, decision.waits) {
			changed = append(changed, service.Name)
		}
	}
	return changed
}

// promised is what a decision takes, as others may wait for it.
func promised(decision *Decision) []waitKey {
	if decision.Verdict != Set {
		return nil
	}
	keys := make([]waitKey, 0, 2*len(decision.Addresses))
	for i, address := range decision.Addresses {
		keys = append(keys, waitKey{pool: decision.Pools[i], family: cluster.FamilyOf(address)}, waitKey{address: address})
	}
	return keys
}

// Usage is what there is to say about a pool.
type Usage struct {
	IPv4, IPv6 FamilyUsage
	// Overlap says which older pool has a part of this one; nil if none has.
	Overlap *reason.Reason
}

// FamilyUsage counts the addresses of one family of a pool. Numbers above 2^63-1 are given as that (rule P17).
type FamilyUsage struct {
	Capacity  int64 // what the pool's author wrote, less what is excluded
	Assigned  int64 // held by Services, each address once
	Available int64 // neither held nor skipped nor an older pool's
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
	return usage, true
}
