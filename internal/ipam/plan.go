package ipam

import (
	"slices"

	"github.com/berthlb/berth/internal/cluster"
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
		e.promised = promised(service, &decision)
		if !e.decided || !e.last.Equal(&decision) || !slices.Equal(e.last.waits, decision.waits) {
			changed = append(changed, service.Name)
		}
	}
	return changed
}

// promised is what a decision takes, as others may wait for it.
func promised(service *cluster.Service, decision *Decision) []waitKey {
	if decision.Verdict != Set {
		return nil
	}
	keys := make([]waitKey, 0, 3*len(decision.Addresses))
	for i, address := range decision.Addresses {
		keys = append(keys, waitKey{address: address},
			waitKey{place: place{pool: decision.Pools[i], family: cluster.FamilyOf(address)}},
			waitKey{place: place{decision.Pools[i], cluster.FamilyOf(address), service.Name.Namespace}})
	}
	return keys
}
