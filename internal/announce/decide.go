package announce

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/election"
	"github.com/berthlb/berth/internal/reason"
)

// decider is one run of Decide: the snapshot, and what is worked out once for all addresses. One goroutine uses it, and
// it is not kept.
type decider struct {
	snapshot *cluster.Snapshot
	places   []place
	placeOf  map[string]int // by node
	pools    map[string]*cluster.Pool
	reserved *netipx.IPSet  // of nodes, gateways, ClusterIPs and pods
	subnets  []netip.Prefix // of the links of places, each once
	views    []view         // by advertisement

	labels     []string              // that advertisements look at
	alike      map[string]*selection // by pool and those labels
	selections map[string]*selection // by advertisements
	classes    map[string]*class     // by selections

	// Reused from address to address, so that most of them cost no memory.
	key       []byte
	claimants []claimant
	chosen    []*selection
	serving   []int
	tier      []int
}

// Decide decides about every address held by a Service of ours.
//
// For each address, in order:
//  1. It is refused to a Service to which it must never be announced: it is the cluster's, or foreign.
//  2. Of the other Services on it those count for which there is an advertisement and which have a usable endpoint
//     anywhere (rules E1, P7).
//  3. Nodes are candidates that pass the rules of E1 and P7 for every one of those (rule E12). If there is none, the
//     Service decides that has held the address longest and has candidates alone.
//  4. Of the candidates the best tier stays (rule E2), and of that the highest hash owns (rule E3).
func Decide(snapshot *cluster.Snapshot) *Table {
	d := newDecider(snapshot)
	addresses, services := holders(snapshot.Services)
	verdicts := make([]Verdict, 0, len(addresses))
	for start := 0; start < len(addresses); {
		end := start + 1
		for end < len(addresses) && addresses[end] == addresses[start] {
			end++
		}
		verdicts = append(verdicts, d.verdict(addresses[start], services[start:end:end]))
		start = end
	}
	return &Table{verdicts: verdicts, snapshot: snapshot}
}

func newDecider(snapshot *cluster.Snapshot) *decider {
	d := &decider{
		snapshot:   snapshot,
		places:     places(snapshot),
		placeOf:    make(map[string]int, len(snapshot.Nodes)),
		pools:      make(map[string]*cluster.Pool, len(snapshot.Pools)),
		reserved:   reserved(snapshot),
		labels:     labelsOf(snapshot.Advertisements),
		alike:      map[string]*selection{},
		selections: map[string]*selection{},
		classes:    map[string]*class{},
	}
	for _, pool := range snapshot.Pools {
		d.pools[pool.Name] = pool
	}
	for i := range d.places {
		d.placeOf[d.places[i].node.Name] = i
	}
	d.subnets = subnets(d.places)
	for _, advertisement := range snapshot.Advertisements {
		d.views = append(d.views, viewOf(advertisement, d.places))
	}
	return d
}

// holders lists every address with every Service of ours on it, sorted by address, then by the Service's name, as two
// lists side by side.
func holders(all []*cluster.Service) ([]netip.Addr, []*cluster.Service) {
	type holder struct {
		address netip.Addr
		service *cluster.Service
	}
	list := make([]holder, 0, len(all))
	for _, service := range all {
		if !service.Ours {
			continue
		}
		for _, address := range service.Recorded.Addresses {
			list = append(list, holder{address, service})
		}
	}
	slices.SortStableFunc(list, func(a, b holder) int { return a.address.Compare(b.address) })
	addresses, services := make([]netip.Addr, len(list)), make([]*cluster.Service, len(list))
	for i := range list {
		addresses[i], services[i] = list[i].address, list[i].service
	}
	return addresses, services
}

// verdict decides about one address. on are all Services on it.
func (d *decider) verdict(address netip.Addr, on []*cluster.Service) Verdict {
	verdict := Verdict{Address: address}
	claimants, refused := d.claims(address, on)
	if len(claimants) == 0 {
		verdict.Others, verdict.Why = refused, refused[0].Why
		return verdict
	}
	verdict.Services, verdict.Others = on, refused
	if len(refused) > 0 {
		verdict.Services = servicesOf(claimants)
	}
	c := d.classFor(address, claimants)
	winner := d.elect(address, c, claimants)
	if winner == nil && len(claimants) > 1 {
		winner, c = d.longestHolder(&verdict, claimants)
		verdict.Others = rest(on, verdict.Services, refused, disagree(&verdict))
	}
	if winner == nil {
		verdict.Why = d.whyNobody(c)
		verdict.Services, verdict.Others = nil, rest(on, nil, refused, verdict.Why)
		return verdict
	}
	verdict.Owner = winner.node.Name
	verdict.Interfaces = c.interfaces[d.placeOf[verdict.Owner]]
	link, onSubnet, _ := LinkFor(winner.member.Links, verdict.Interfaces, address)
	verdict.Link, verdict.OffSubnet = link.Name, !onSubnet
	return verdict
}

// elect is the owner of an address; nil if there is no candidate.
func (d *decider) elect(address netip.Addr, c *class, claimants []claimant) *place {
	first := slices.IndexFunc(claimants, claimant.local)
	if first < 0 {
		return d.highest(address, d.tierForAll(c, address))
	}
	return d.highest(address, d.bestTier(c, d.localCandidates(c, claimants, first), address))
}

// highest is the place with the highest hash for the address, the first by name if two are equal (rule E3).
func (d *decider) highest(address netip.Addr, tier []int) *place {
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

// longestHolder settles a disagreement: Services that share an address and have no common candidate. The one that has
// held it longest and has candidates decides; the others are not announced, reason SharersDisagree (rule E1).
func (d *decider) longestHolder(verdict *Verdict, claimants []claimant) (*place, *class) {
	byAge := slices.Clone(claimants)
	slices.SortStableFunc(byAge, func(a, b claimant) int {
		return cmp.Or(a.service.Recorded.Since.Compare(b.service.Recorded.Since), a.service.Created.Compare(b.service.Created))
	})
	for i := range byAge {
		alone := byAge[i : i+1]
		c := d.classFor(verdict.Address, alone)
		if winner := d.elect(verdict.Address, c, alone); winner != nil {
			verdict.Services = servicesOf(alone)
			return winner, c
		}
	}
	return nil, d.classFor(verdict.Address, claimants)
}

// disagree is the reason for the Services on an address that it is not announced for although they count.
func disagree(verdict *Verdict) *reason.Reason {
	return reason.New(reason.SharersDisagree, "%s is announced for Service %s, which has held it longest: no node could answer for all on it",
		verdict.Address, verdict.Services[0].Name)
}

// down is true for a node whose speaker is held dead.
func (d *decider) down(node string) bool { return d.snapshot.Facts.Down[node] }

// reserved are the addresses that are never announced, whatever a status says: of nodes, of the gateways that members know,
// ClusterIPs and pods (rule A14).
func reserved(snapshot *cluster.Snapshot) *netipx.IPSet {
	var set netipx.IPSetBuilder
	for _, prefix := range snapshot.ServiceCIDRs {
		set.AddPrefix(prefix)
	}
	for _, node := range snapshot.Nodes {
		for _, prefix := range node.PodCIDRs {
			set.AddPrefix(prefix)
		}
		for _, address := range node.Addresses {
			set.Add(address)
		}
	}
	for _, member := range snapshot.Facts.Members {
		for _, address := range member.Gateways {
			set.Add(address)
		}
	}
	built, err := set.IPSet()
	if err != nil {
		panic("announce: " + err.Error()) // only invalid addresses are errors, and what was parsed is valid
	}
	return built
}
