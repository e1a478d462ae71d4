package announce

import (
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/election"
	"github.com/berthlb/berth/internal/reason"
)

// place is a node as a candidate: what about it is the same for all addresses.
type place struct {
	node   *cluster.Node
	member *cluster.Member
	seed   uint64
	// out is why the node is no candidate for any address; nil if it may be one for some.
	out *reason.Reason
}

// places lists the nodes of a snapshot, sorted by name, with the rules of E1 that no Service can change.
func places(snapshot *cluster.Snapshot) []place {
	list := make([]place, 0, len(snapshot.Nodes))
	for _, node := range snapshot.Nodes {
		member := snapshot.Facts.Members[node.Name]
		list = append(list, place{node: node, member: member, seed: election.Seed(node.Name), out: excluded(node, member)})
	}
	return list
}

// excluded says which rule of E1 removes a node for every address; nil if none does.
func excluded(node *cluster.Node, member *cluster.Member) *reason.Reason {
	switch {
	case member == nil:
		return reason.New(reason.SpeakerDown, "no live speaker")
	case node.Leaving != nil:
		return node.Leaving
	case node.NetworkUnavailable:
		return reason.New(reason.NetworkUnavailable, "the node's network is not set up (condition NetworkUnavailable)")
	case !member.ProxyReady:
		return reason.New(reason.ProxyNotReady, "kube-proxy has not served since the node booted")
	default:
		return nil
	}
}

// LinkFor is the link of a node that speaks for an address: of those allowed, the first by name whose subnet contains
// it, else the first by name; false if none is allowed. onSubnet tells which of the two (rules E2, L1, L2).
func LinkFor(links []cluster.Link, interfaces []string, address netip.Addr) (link cluster.Link, onSubnet, found bool) {
	for _, candidate := range links {
		if !Allowed(candidate, interfaces) {
			continue
		}
		if slices.ContainsFunc(candidate.Subnets, func(p netip.Prefix) bool { return p.Contains(address) }) {
			return candidate, true, true
		}
		if !found {
			link, found = candidate, true
		}
	}
	return link, false, found
}

// Allowed is true if a link may carry announcements of an advertisement with these interfaces: one that is listed, or,
// without a list, one that has an IPv4 address (rule L1).
func Allowed(link cluster.Link, interfaces []string) bool {
	if len(interfaces) == 0 {
		return link.IPv4
	}
	_, listed := slices.BinarySearch(interfaces, link.Name)
	return listed
}
