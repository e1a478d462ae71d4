package announce

import (
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// claimant is a Service on an address that counts.
type claimant struct {
	service   *cluster.Service
	endpoints cluster.Endpoints // of the address's family
	selection *selection
}

// local is true if only nodes with an endpoint of their own may announce for it.
func (c claimant) local() bool { return c.service.Policy == cluster.PolicyLocal }

func servicesOf(claimants []claimant) []*cluster.Service {
	list := make([]*cluster.Service, len(claimants))
	for i := range claimants {
		list[i] = claimants[i].service
	}
	return list
}

// claims splits the Services on an address into those that count and the others, each with its reason. The claimants are
// good until the next call.
func (d *decider) claims(address netip.Addr, on []*cluster.Service) ([]claimant, []Other) {
	d.claimants = d.claimants[:0]
	var others []Other
	for _, service := range on {
		if one, why := d.claim(address, service); why == nil {
			d.claimants = append(d.claimants, one)
		} else {
			others = append(others, Other{Service: service, Why: why})
		}
	}
	return d.claimants, others
}

// claim is the Service as a claimant of the address, or the reason why it is none: the steps 1 and 2 of Decide.
func (d *decider) claim(address netip.Addr, service *cluster.Service) (claimant, *reason.Reason) {
	if why := d.refusal(address, service); why != nil {
		return claimant{}, why
	}
	chosen := d.selectionFor(address, service)
	if len(chosen.advertisements) == 0 {
		return claimant{}, reason.New(reason.NoAdvertisement, "no L2Advertisement selects pool %q and Service %s",
			service.Recorded.PoolOf(address), service.Name)
	}
	endpoints := service.EndpointsOf(cluster.FamilyOf(address))
	if why := d.idle(address, service, endpoints); why != nil {
		return claimant{}, why
	}
	return claimant{service: service, endpoints: endpoints, selection: chosen}, nil
}

// refusal says why an address is never announced for a Service whatever the nodes; nil if it may be.
func (d *decider) refusal(address netip.Addr, service *cluster.Service) *reason.Reason {
	switch {
	case d.reserved.Contains(address):
		return reason.New(reason.AddressOfCluster, "%s belongs to a node, a router or the cluster and is never announced", address)
	case !slices.Contains(service.Recorded.Named, address):
		return reason.New(reason.ForeignAddress, "%s was not given by Berth: the Service's condition %s does not name it", address, allocated)
	default:
		return nil
	}
}

// allocated is the condition that names the addresses Berth gave (rule A14).
const allocated = "berth.dev/Allocated"

// idle says why a Service has no endpoint that takes traffic; nil if it has one (rule P7).
//
// Endpoints on nodes whose speaker is held dead count for a Cluster Service: the node may forward still, and then silence
// would be an outage (docs/decisions/0010-down-nodes-endpoints.md). For a Local Service they do not: only the dead speaker
// could announce them.
func (d *decider) idle(address netip.Addr, service *cluster.Service, endpoints cluster.Endpoints) *reason.Reason {
	switch local := service.Policy == cluster.PolicyLocal; {
	case local && endpoints.Usable(d.down):
		return nil
	case !endpoints.Usable(func(string) bool { return false }) && address.Is6():
		return reason.New(reason.NoEndpoints, "Service %s has no ready IPv6 endpoint", service.Name)
	case !endpoints.Usable(func(string) bool { return false }):
		return reason.New(reason.NoEndpoints, "Service %s has no ready endpoint", service.Name)
	case local:
		return reason.New(reason.NoLocalEndpoints, "policy Local, and Service %s has ready endpoints only on nodes whose speaker is dead", service.Name)
	default:
		return nil
	}
}

// localCandidates are the candidates of a class that satisfy P7 for every claimant, the first-th of which is Local. They
// are found from that one's endpoints: those are few where nodes are many. The list is good until the next call.
func (d *decider) localCandidates(c *class, claimants []claimant, first int) []int {
	d.serving = d.serving[:0]
	for node := range claimants[first].endpoints.UsableNodes(d.down) {
		i, known := d.placeOf[node]
		if known && c.out[i] == nil && d.serves(node, claimants[first+1:]) {
			d.serving = append(d.serving, i)
		}
	}
	return d.serving
}

// serves is true if the node satisfies P7 for every one of the claimants.
func (d *decider) serves(node string, claimants []claimant) bool {
	for i := range claimants {
		if claimants[i].local() && !claimants[i].endpoints.UsableOn(node, d.down) {
			return false
		}
	}
	return true
}
