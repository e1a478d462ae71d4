package announce

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/election"
	"github.com/berthlb/berth/internal/reason"
)

// decider is one run of Decide: the snapshot, and what is worked out once for all addresses.
type decider struct {
	snapshot        *cluster.Snapshot
	places          []place
	pools           map[string]*cluster.Pool
	nodeAddresses   map[netip.Addr]bool
	clusterPrefixes []netip.Prefix
	classes         map[string]*class
	scratch         []byte
}

// Decide decides about every address held by a Service of ours.
//
// For each address, in order:
//  1. An address that is never announced is refused: of the cluster, foreign, of a family we do not announce.
//  2. Of the Services on it those count that have a usable endpoint anywhere (rules P7, E1).
//  3. Advertisements for every one of them make nodes candidates (rule E12); candidates pass the rules of E1.
//  4. Of the candidates the best tier stays (rule E2), and of that the highest hash owns (rule E3).
func Decide(snapshot *cluster.Snapshot) *Table {
	d := newDecider(snapshot)
	list := holders(snapshot.Services)
	verdicts := make([]Verdict, 0, len(list))
	for start := 0; start < len(list); {
		end := start + 1
		for end < len(list) && list[end].address == list[start].address {
			end++
		}
		verdicts = append(verdicts, d.verdict(list[start:end]))
		start = end
	}
	return &Table{verdicts: verdicts, epoch: snapshot.Facts.Epoch, decider: d}
}

func newDecider(snapshot *cluster.Snapshot) *decider {
	d := &decider{
		snapshot:        snapshot,
		places:          places(snapshot),
		pools:           make(map[string]*cluster.Pool, len(snapshot.Pools)),
		nodeAddresses:   map[netip.Addr]bool{},
		clusterPrefixes: append([]netip.Prefix(nil), snapshot.ServiceCIDRs...),
		classes:         map[string]*class{},
	}
	for _, pool := range snapshot.Pools {
		d.pools[pool.Name] = pool
	}
	for _, node := range snapshot.Nodes {
		d.clusterPrefixes = append(d.clusterPrefixes, node.PodCIDRs...)
		for _, address := range node.Addresses {
			d.nodeAddresses[address] = true
		}
	}
	return d
}

// down is true for a node whose speaker is held dead.
func (d *decider) down(node string) bool { return d.snapshot.Facts.Down[node] }

// nobodyDown is what down is when no node is held dead.
func nobodyDown(string) bool { return false }

// verdict decides about one address. holders are all Services on it.
func (d *decider) verdict(on []holder) Verdict {
	verdict := Verdict{Address: on[0].address}
	claimants, why := d.claimants(on)
	if why != nil {
		verdict.Why = why
		verdict.Services = servicesOf(on)
		return verdict
	}
	for i := range claimants {
		verdict.Services = append(verdict.Services, claimants[i].service)
	}
	class := d.classFor(claimants)
	winner := d.elect(verdict.Address, class, claimants)
	if winner == nil && len(claimants) > 1 {
		winner, class = d.longestHolder(&verdict, claimants)
	}
	if winner == nil {
		verdict.Why = d.whyNobody(class, claimants)
		return verdict
	}
	verdict.Owner = winner.node.Name
	verdict.Interfaces = class.interfaces[winner.node.Name]
	link, _, _ := LinkFor(winner.member.Links, verdict.Interfaces, verdict.Address)
	verdict.Link = link.Name
	return verdict
}

// longestHolder settles a disagreement: Services that share an address and have no common candidate. The one that has
// held it longest and has candidates decides; the others are not announced, reason SharersDisagree (rule E1).
func (d *decider) longestHolder(verdict *Verdict, claimants []claimant) (*place, *class) {
	byAge := slices.SortedStableFunc(slices.Values(claimants), func(a, b claimant) int {
		return cmp.Or(a.service.Recorded.Since.Compare(b.service.Recorded.Since), a.service.Created.Compare(b.service.Created))
	})
	for i := range byAge {
		alone := byAge[i : i+1]
		class := d.classFor(alone)
		if winner := d.elect(verdict.Address, class, alone); winner != nil {
			verdict.Services = []*cluster.Service{alone[0].service}
			return winner, class
		}
	}
	return nil, d.classFor(claimants)
}

func servicesOf(on []holder) []*cluster.Service {
	list := make([]*cluster.Service, 0, len(on))
	for _, holder := range on {
		list = append(list, holder.service)
	}
	return list
}

// claimants are the Services on an address that count (rule E1), or the reason why none does.
func (d *decider) claimants(on []holder) ([]claimant, *reason.Reason) {
	var why *reason.Reason
	counted := make([]claimant, 0, len(on))
	for _, holder := range on {
		if refusal := d.refusal(holder.address, holder.service); refusal != nil {
			why = refusal
			continue
		}
		chosen := d.selectionFor(holder.address, holder.service)
		if len(chosen.indexes) == 0 {
			why = reason.New(reason.NoAdvertisement, "no L2Advertisement selects pool %q and Service %s",
				holder.service.Recorded.PoolOf(holder.address), holder.service.Name)
			continue
		}
		endpoints := holder.service.EndpointsOf(cluster.FamilyOf(holder.address))
		if !endpoints.Usable(nobodyDown) {
			if why == nil {
				why = reason.New(reason.NoEndpoints, "Service %s has no ready endpoint", holder.service.Name)
			}
			continue
		}
		counted = append(counted, claimant{service: holder.service, endpoints: endpoints, selection: chosen})
	}
	if len(counted) == 0 {
		return nil, why
	}
	return counted, nil
}

// serves is true if the node satisfies P7 for every claimant.
func (d *decider) serves(node string, claimants []claimant) bool {
	for i := range claimants {
		if claimants[i].service.Policy == cluster.PolicyLocal && !claimants[i].endpoints.UsableOn(node, d.down) {
			return false
		}
	}
	return true
}

// local is true if a claimant's policy is Local: then candidates differ from address to address.
func local(claimants []claimant) bool {
	for i := range claimants {
		if claimants[i].service.Policy == cluster.PolicyLocal {
			return true
		}
	}
	return false
}

// elect is the owner of an address; nil if there is no candidate.
func (d *decider) elect(address netip.Addr, class *class, claimants []claimant) *place {
	onSubnet := class.subnetsWith(address)
	var tier []int
	if local(claimants) {
		var candidates []int
		for _, i := range class.candidates {
			if d.serves(d.places[i].node.Name, claimants) {
				candidates = append(candidates, i)
			}
		}
		tier = d.bestTier(class, candidates, onSubnet)
	} else {
		tier = class.clusterTier(d, onSubnet)
	}
	return d.highest(tier, address)
}

// highest is the place with the highest hash for the address, the first by name if two are equal (rule E3).
func (d *decider) highest(tier []int, address netip.Addr) *place {
	var winner *place
	var best uint64
	key := election.KeyOf(address)
	for _, i := range tier {
		if score := election.Score(d.places[i].seed, key); winner == nil || score > best {
			winner, best = &d.places[i], score
		}
	}
	return winner
}
