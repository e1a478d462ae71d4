package announce

import (
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// allocated is the condition that names the addresses Berth gave (rule A14).
const allocated = "berth.dev/Allocated"

// holder is one Service on one address.
type holder struct {
	address netip.Addr
	service *cluster.Service
}

// holders lists every address with every Service of ours on it, sorted by address, then by the Service's name.
func holders(services []*cluster.Service) []holder {
	list := make([]holder, 0, len(services))
	for _, service := range services {
		if !service.Ours {
			continue
		}
		for _, address := range service.Recorded.Addresses {
			list = append(list, holder{address: address, service: service})
		}
	}
	slices.SortStableFunc(list, func(a, b holder) int { return a.address.Compare(b.address) })
	return list
}

// selection is which advertisements are for a Service on an address: their indexes in the snapshot, and as text to
// compare with another's.
type selection struct {
	indexes []int
	text    string
}

// claimant is a Service on an address that counts: one with a usable endpoint, or, where none of them has one, any.
type claimant struct {
	service   *cluster.Service
	endpoints cluster.Endpoints
	selection selection
}

// refusal says why an address is never announced for a Service whatever the nodes; nil if it may be.
func (d *decider) refusal(address netip.Addr, service *cluster.Service) *reason.Reason {
	switch {
	case address.Is6():
		return reason.New(reason.FamilyNotAnnounced, "%s: IPv6 addresses are not announced by this version", address)
	case d.ofCluster(address):
		return reason.New(reason.AddressOfCluster, "%s belongs to a node or to the cluster and is never announced", address)
	case !slices.Contains(service.Recorded.Named, address):
		return reason.New(reason.ForeignAddress, "%s was not given by Berth: the Service's condition %s does not name it", address, allocated)
	default:
		return nil
	}
}

// ofCluster is true for the address of a node, and for those of ClusterIPs and pods (rule A14).
func (d *decider) ofCluster(address netip.Addr) bool {
	if d.nodeAddresses[address] {
		return true
	}
	for _, prefix := range d.clusterPrefixes {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// poolOf is the pool that contains the address; nil if none does.
func (d *decider) poolOf(address netip.Addr) *cluster.Pool {
	for _, pool := range d.snapshot.Pools {
		if pool.Problem == nil && pool.Contains(address) {
			return pool
		}
	}
	return nil
}

// selectionFor is which advertisements are for the Service on the address.
func (d *decider) selectionFor(address netip.Addr, service *cluster.Service) selection {
	pool, name := (*cluster.Pool)(nil), service.Recorded.PoolOf(address)
	if name == "" {
		if pool = d.poolOf(address); pool != nil {
			name = pool.Name
		}
	} else {
		pool = d.pools[name]
	}
	var chosen selection
	text := d.scratch[:0]
	for i, advertisement := range d.snapshot.Advertisements {
		if advertisement.MatchesService(service, name, pool) {
			chosen.indexes = append(chosen.indexes, i)
			text = append(text, byte(i), byte(i>>8))
		}
	}
	d.scratch = text
	chosen.text = string(text)
	return chosen
}
