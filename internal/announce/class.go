package announce

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// class is what all addresses of a family have in common whose claimants have the same selections.
type class struct {
	candidates []int            // indexes of places that pass E1 but for P7, ascending
	out        []*reason.Reason // by place: the rule of E1 that removes it; nil for candidates
	weights    []int            // by place
	delays     []time.Duration  // by place: the longest failbackDelay
	interfaces [][]string       // by place: names of the links allowed, sorted; nil means every link
	tiers      map[string][]int // the best tier of all candidates, by the subnets an address is in
}

// classFor is the class of an address with these claimants.
func (d *decider) classFor(address netip.Addr, claimants []claimant) *class {
	d.chosen = d.chosen[:0]
	for i := range claimants {
		d.chosen = append(d.chosen, claimants[i].selection)
	}
	slices.SortFunc(d.chosen, func(a, b *selection) int { return cmp.Compare(a.id, b.id) })
	d.chosen = slices.Compact(d.chosen)
	family := cluster.FamilyOf(address)
	d.key = append(d.key[:0], byte(family))
	for _, selection := range d.chosen {
		d.key = appendKey(d.key, selection.id)
	}
	if known := d.classes[string(d.key)]; known != nil {
		return known
	}
	made := d.newClass(family, d.chosen)
	d.classes[string(d.key)] = made
	return made
}

// appendKey adds a number to the key of a map.
func appendKey(key []byte, number int) []byte {
	return binary.AppendUvarint(key, uint64(number)) //nolint:gosec // indexes are not negative
}

// newClass works a class out. selections are those of the claimants, each once.
func (d *decider) newClass(family cluster.Family, selections []*selection) *class {
	c := &class{
		out:        make([]*reason.Reason, len(d.places)),
		weights:    make([]int, len(d.places)),
		delays:     make([]time.Duration, len(d.places)),
		interfaces: make([][]string, len(d.places)),
		tiers:      map[string][]int{},
	}
	advertisements := united(selections)
	for i := range d.places {
		c.interfaces[i], c.out[i] = d.admit(i, family, selections)
		if c.out[i] != nil {
			continue
		}
		c.candidates = append(c.candidates, i)
		for _, a := range advertisements {
			if d.views[a].selects[i] {
				c.weights[i] += d.views[a].weights[i]
				c.delays[i] = max(c.delays[i], d.snapshot.Advertisements[a].FailbackDelay)
			}
		}
	}
	return c
}

// united are the advertisements of all selections, each once: the weight of one that is for two Services on an address
// counts once (rule E12).
func united(selections []*selection) []int {
	var all []int
	for _, selection := range selections {
		all = append(all, selection.advertisements...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// admit gives the links that a place may answer on in a family for all selections, or says which rule of E1 removes it.
func (d *decider) admit(i int, family cluster.Family, selections []*selection) (interfaces []string, out *reason.Reason) {
	p := &d.places[i]
	if p.out != nil {
		return nil, p.out
	}
	for _, selection := range selections {
		allowed, selected := d.interfacesOf(i, selection)
		if !selected && len(selections) > 1 {
			return nil, reason.New(reason.NodeNotSelected, "no advertisement for one of the Services on the address selects the node")
		}
		if !selected {
			return nil, reason.New(reason.NodeNotSelected, "no advertisement for the Service selects the node")
		}
		interfaces = intersect(interfaces, allowed)
	}
	if interfaces != nil && len(interfaces) == 0 {
		return nil, reason.New(reason.NoLink, "the Services on the address are announced on different links")
	}
	if slices.ContainsFunc(p.member.Links, func(link cluster.Link) bool { return Allowed(link, interfaces, family) }) {
		return interfaces, nil
	}
	return nil, noLink(interfaces, family)
}

// noLink says that a node has none of the links it may answer on.
func noLink(interfaces []string, family cluster.Family) *reason.Reason {
	names := strings.Join(interfaces, ", ")
	switch {
	case interfaces == nil && family == cluster.IPv4:
		return reason.New(reason.NoLink, "no link with an IPv4 address is up")
	case interfaces == nil:
		return reason.New(reason.NoLink, "no link with a usable IPv6 link-local address is up")
	case family == cluster.IPv4:
		return reason.New(reason.NoLink, "none of the links %s is up", names)
	default:
		return reason.New(reason.NoLink, "none of the links %s is up with a usable IPv6 link-local address", names)
	}
}

// interfacesOf unites the links that the advertisements allow which select the place; nil means every link. selected is
// false if none selects it (rule E12).
func (d *decider) interfacesOf(i int, chosen *selection) (interfaces []string, selected bool) {
	every := false
	for _, a := range chosen.advertisements {
		if !d.views[a].selects[i] {
			continue
		}
		allowed := d.snapshot.Advertisements[a].Interfaces
		every = every || len(allowed) == 0
		selected = true
		interfaces = append(interfaces, allowed...)
	}
	if every {
		return nil, selected
	}
	slices.Sort(interfaces)
	return slices.Compact(interfaces), selected
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
