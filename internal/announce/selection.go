package announce

import (
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
)

// selection is a set of advertisements: all that are for a Service on an address. Equal sets are one selection: there
// are few sets and many addresses, so what follows from a set is worked out once.
type selection struct {
	id             int
	advertisements []int // indexes in the snapshot, ascending
}

// view is an advertisement as seen from the places.
type view struct {
	selects []bool // by place
	weights []int  // by place
}

func viewOf(advertisement *cluster.Advertisement, places []place) view {
	seen := view{selects: make([]bool, len(places)), weights: make([]int, len(places))}
	for i := range places {
		labels := places[i].node.Labels
		seen.selects[i] = advertisement.MatchesNode(labels)
		seen.weights[i] = advertisement.WeightOf(labels)
	}
	return seen
}

// selectionFor is which advertisements are for the Service on the address. Services with addresses of one pool that
// have the same values of the labels which selectors look at have the same: matching is done once for them all.
func (d *decider) selectionFor(address netip.Addr, service *cluster.Service) *selection {
	pool := d.poolFor(address, service)
	d.key = append(append(d.key[:0], pool...), 0)
	for _, label := range d.labels {
		if value, has := service.Labels[label]; has {
			d.key = append(append(d.key, '='), value...)
		}
		d.key = append(d.key, 0)
	}
	known := d.alike[string(d.key)]
	if known == nil {
		known = d.match(service, pool)
		d.alike[string(d.key)] = known
	}
	return known
}

// match goes through the advertisements.
func (d *decider) match(service *cluster.Service, pool string) *selection {
	made := &selection{id: len(d.selections)}
	var key []byte
	for i, advertisement := range d.snapshot.Advertisements {
		if advertisement.MatchesService(service, pool, d.pools[pool]) {
			made.advertisements = append(made.advertisements, i)
			key = appendKey(key, i)
		}
	}
	if known := d.selections[string(key)]; known != nil {
		return known
	}
	d.selections[string(key)] = made
	return made
}

// labelsOf are the labels that the advertisements' serviceSelectors look at.
func labelsOf(advertisements []*cluster.Advertisement) []string {
	var labels []string
	for _, advertisement := range advertisements {
		for _, selector := range advertisement.ServiceSelectors {
			for _, requirement := range selector {
				labels = append(labels, requirement.Key)
			}
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// poolFor is the name of the pool that an address of a Service came from, as recorded, or, without a record, of the one
// that contains it. The name stays after the pool is gone (rule A10).
func (d *decider) poolFor(address netip.Addr, service *cluster.Service) string {
	if name := service.Recorded.PoolOf(address); name != "" {
		return name
	}
	for _, pool := range d.snapshot.Pools {
		if pool.Problem == nil && pool.Contains(address) {
			return pool.Name
		}
	}
	return ""
}
