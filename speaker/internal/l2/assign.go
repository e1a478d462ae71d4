package l2

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
)

// duty is what one link has to answer for: each address with the epoch it is announced for.
type duty map[netip.Addr]uint64

// place is where a port is: a link, in one of the two families.
type place struct {
	link   string
	family cluster.Family
}

// families are all there are.
func families() []cluster.Family { return []cluster.Family{cluster.IPv4, cluster.IPv6} }

// assign says which links answer for which addresses: a duty for each link and family. routeTo gives the index of the link
// the node itself would use for an address; it is asked only where the links leave a choice.
//
//  1. Allowed are for IPv4 the links the claim lists, with or without an IPv4 address, and without a list those that have
//     one; for IPv6 those of the list, or of all, that have a link-local address (L1).
//  2. Allowed links in one segment, which is those that share a subnet, would all hear the same request: one of them
//     speaks (L2). It is one whose subnet contains the address, if any does;
//  3. among those the one its route points to;
//  4. else the first by name.
func assign(claims []announce.Claim, links []cluster.Link, routeTo func(netip.Addr) (int, bool)) map[place]duty {
	duties := make(map[place]duty, 2*len(links))
	everywhere := map[cluster.Family][][]cluster.Link{} // what most claims need
	for _, family := range families() {
		for _, link := range links {
			duties[place{link.Name, family}] = duty{}
		}
		everywhere[family] = segmentsOf(allowed(nil, links, family))
	}
	for _, claim := range claims {
		family := cluster.FamilyOf(claim.Address)
		of := everywhere[family]
		if len(claim.Interfaces) > 0 {
			of = segmentsOf(allowed(claim.Interfaces, links, family))
		}
		for _, segment := range of {
			duties[place{speaker(claim.Address, segment, routeTo).Name, family}][claim.Address] = epochOf(claim)
		}
	}
	return duties
}

// unannounced is the epoch of what is answered for and not announced. The real ones are higher.
const unannounced = 0

func epochOf(claim announce.Claim) uint64 {
	if claim.HandedOver {
		return unannounced
	}
	return claim.Epoch
}

// announced is the part of a duty that is announced.
func (d duty) announced() duty {
	part := maps.Clone(d)
	maps.DeleteFunc(part, func(_ netip.Addr, epoch uint64) bool { return epoch == unannounced })
	return part
}

// allowed are the links that may answer (step 1).
func allowed(interfaces []string, links []cluster.Link, family cluster.Family) []cluster.Link {
	var may []cluster.Link
	for _, link := range links {
		if announce.Allowed(link, interfaces, family) {
			may = append(may, link)
		}
	}
	return may
}

// segmentsOf groups links that share a subnet, directly or through another link. Links in a segment keep their order.
func segmentsOf(links []cluster.Link) [][]cluster.Link {
	var segments [][]cluster.Link
	for _, link := range links {
		segment := []cluster.Link{}
		var apart [][]cluster.Link
		for _, other := range segments {
			if slices.ContainsFunc(other, func(o cluster.Link) bool { return shareSubnet(o, link) }) {
				segment = append(segment, other...)
			} else {
				apart = append(apart, other)
			}
		}
		apart = append(apart, append(segment, link))
		segments = apart
	}
	return segments
}

// shareSubnet is true if both links have an address in the same subnet. That of link-local addresses is the same on every
// link, and says nothing.
func shareSubnet(a, b cluster.Link) bool {
	return slices.ContainsFunc(a.Subnets, func(subnet netip.Prefix) bool {
		return !subnet.Addr().IsLinkLocalUnicast() && slices.Contains(b.Subnets, subnet)
	})
}

// speaker is the link of a segment that speaks for an address (steps 2 to 4).
func speaker(address netip.Addr, segment []cluster.Link, routeTo func(netip.Addr) (int, bool)) cluster.Link {
	choice := slices.DeleteFunc(slices.Clone(segment), func(link cluster.Link) bool {
		return !slices.ContainsFunc(link.Subnets, func(subnet netip.Prefix) bool { return subnet.Contains(address) })
	})
	if len(choice) == 0 {
		choice = segment
	}
	if len(choice) == 1 {
		return choice[0]
	}
	if index, ok := routeTo(address); ok {
		for _, link := range choice {
			if link.Index == index {
				return link
			}
		}
	}
	return slices.MinFunc(choice, func(a, b cluster.Link) int { return cmp.Compare(a.Name, b.Name) })
}
