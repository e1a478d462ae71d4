package announce

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

// standing is how long a node's readiness must have stood before it counts (rule E2).
const standing = 10 * time.Second

// class is what all addresses have in common whose Services are selected by the same advertisements: there are few
// classes and many addresses, so what can be worked out per class is.
type class struct {
	candidates []int // indexes of places that pass E1 but for P7
	weights    []int // by place
	interfaces map[string][]string
	subnets    []netip.Prefix // of the candidates' allowed links, distinct
	has        [][]bool       // by place, by subnet: has an allowed link in it
	tiers      map[string][]int
}

// classFor is the class of an address with these claimants.
func (d *decider) classFor(claimants []claimant) *class {
	texts := make([]string, 0, len(claimants))
	for i := range claimants {
		texts = append(texts, claimants[i].selection.text)
	}
	slices.Sort(texts)
	key := strings.Join(slices.Compact(texts), "|")
	if known := d.classes[key]; known != nil {
		return known
	}
	made := d.newClass(claimants)
	d.classes[key] = made
	return made
}

func (d *decider) newClass(claimants []claimant) *class {
	c := &class{
		weights:    make([]int, len(d.places)),
		interfaces: map[string][]string{},
		has:        make([][]bool, len(d.places)),
		tiers:      map[string][]int{},
	}
	for i := range d.places {
		interfaces, weight, selected := d.selects(&d.places[i], claimants)
		if !selected {
			continue
		}
		c.weights[i] = weight
		c.interfaces[d.places[i].node.Name] = interfaces
		if d.places[i].out != nil {
			continue
		}
		if _, _, found := LinkFor(d.places[i].member.Links, interfaces, netip.Addr{}); !found {
			continue
		}
		c.candidates = append(c.candidates, i)
	}
	c.indexSubnets(d.places)
	return c
}

// selects tells whether advertisements select the node for every claimant, and what they say about it together: the
// links allowed to all of them, and the sum of weights (rule E12).
func (d *decider) selects(p *place, claimants []claimant) (interfaces []string, weight int, selected bool) {
	for i := range claimants {
		union, sum, matched := d.selectedBy(p, claimants[i].selection.indexes)
		if !matched {
			return nil, 0, false
		}
		weight += sum
		if i == 0 {
			interfaces = union
			continue
		}
		interfaces = intersect(interfaces, union)
		if interfaces != nil && len(interfaces) == 0 {
			return nil, 0, false // the Services on the address allow no common link
		}
	}
	return interfaces, weight, true
}

// selectedBy unites what the advertisements that select the node say: nil interfaces mean every link.
func (d *decider) selectedBy(p *place, advertisements []int) (interfaces []string, weight int, matched bool) {
	every := false
	for _, i := range advertisements {
		advertisement := d.snapshot.Advertisements[i]
		if !advertisement.MatchesNode(p.node.Labels) {
			continue
		}
		matched = true
		weight += advertisement.WeightOf(p.node.Labels)
		every = every || len(advertisement.Interfaces) == 0
		interfaces = append(interfaces, advertisement.Interfaces...)
	}
	if every {
		return nil, weight, matched
	}
	slices.Sort(interfaces)
	return slices.Compact(interfaces), weight, matched
}

// intersect is the links in both lists; nil is every link.
func intersect(a, b []string) []string {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	both := []string{}
	for _, name := range a {
		if _, found := slices.BinarySearch(b, name); found {
			both = append(both, name)
		}
	}
	return both
}

// indexSubnets notes which candidate has an allowed link in which subnet.
func (c *class) indexSubnets(places []place) {
	index := map[netip.Prefix]int{}
	for _, i := range c.candidates {
		for _, prefix := range c.subnetsOf(&places[i]) {
			if _, known := index[prefix]; !known {
				index[prefix] = len(c.subnets)
				c.subnets = append(c.subnets, prefix)
			}
		}
	}
	for _, i := range c.candidates {
		c.has[i] = make([]bool, len(c.subnets))
		for _, prefix := range c.subnetsOf(&places[i]) {
			c.has[i][index[prefix]] = true
		}
	}
}

// subnetsOf are the subnets of a place's allowed links.
func (c *class) subnetsOf(p *place) []netip.Prefix {
	var subnets []netip.Prefix
	for _, link := range p.member.Links {
		if Allowed(link, c.interfaces[p.node.Name]) {
			subnets = append(subnets, link.Subnets...)
		}
	}
	return subnets
}

// subnetsWith are the indexes of the class's subnets that contain the address.
func (c *class) subnetsWith(address netip.Addr) []int {
	var with []int
	for i, prefix := range c.subnets {
		if prefix.Contains(address) {
			with = append(with, i)
		}
	}
	return with
}

// clusterTier is the best tier of all the class's candidates, remembered for each set of subnets an address is in.
func (c *class) clusterTier(d *decider, onSubnet []int) []int {
	key := make([]byte, 0, 16)
	for _, i := range onSubnet {
		key = append(key, byte(i), byte(i>>8))
	}
	if tier, known := c.tiers[string(key)]; known {
		return tier
	}
	tier := d.bestTier(c, c.candidates, onSubnet)
	c.tiers[string(key)] = tier
	return tier
}

// bestTier keeps the best of the candidates, step by step: fresh, ready, on the address's subnet, preferred (rule E2).
func (d *decider) bestTier(c *class, candidates, onSubnet []int) []int {
	best := prefer(candidates, func(i int) bool { return !d.places[i].member.Stale })
	if ready := count(candidates, d.ready); 2*ready >= len(candidates) {
		best = prefer(best, d.ready)
	}
	best = prefer(best, func(i int) bool {
		return slices.ContainsFunc(onSubnet, func(subnet int) bool { return c.has[i][subnet] })
	})
	heaviest := 0
	for _, i := range best {
		heaviest = max(heaviest, c.weights[i])
	}
	return prefer(best, func(i int) bool { return c.weights[i] == heaviest })
}

// ready is true if a place's node counts as ready: a change counts only when it has stood (rule E2).
func (d *decider) ready(i int) bool { return Ready(d.places[i].node, d.snapshot.Now) }

// Ready is true if a node counts as ready at that time: its condition once it has stood for 10 s, before that the
// opposite, which it was.
func Ready(node *cluster.Node, now time.Time) bool {
	if !node.ReadySince.IsZero() && now.Sub(node.ReadySince) < standing {
		return !node.Ready
	}
	return node.Ready
}

// prefer keeps those of the list for which better holds; the whole list if it holds for none.
func prefer(list []int, better func(i int) bool) []int {
	kept := make([]int, 0, len(list))
	for _, i := range list {
		if better(i) {
			kept = append(kept, i)
		}
	}
	if len(kept) == 0 {
		return list
	}
	return kept
}

func count(list []int, holds func(i int) bool) int {
	n := 0
	for _, i := range list {
		if holds(i) {
			n++
		}
	}
	return n
}
