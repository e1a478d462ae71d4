package announce

import (
	"net/netip"
	"slices"
	"time"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/election"
	"github.com/berthlb/berth/internal/reason"
)

// standing is how long a node's trouble must have stood before it counts (rule E2).
const standing = 10 * time.Second

// place is a node as a candidate: what about it is the same for all addresses.
type place struct {
	node   *cluster.Node
	member *cluster.Member // nil without a live speaker
	seed   uint64
	ready  bool
	// out is why the node is no candidate for any address; nil if it may be one for some.
	out *reason.Reason
}

// places lists the nodes of a snapshot, sorted by name, with the rules of E1 that no Service can change.
func places(snapshot *cluster.Snapshot) []place {
	list := make([]place, 0, len(snapshot.Nodes))
	for _, node := range snapshot.Nodes {
		member := snapshot.Facts.Members[node.Name]
		list = append(list, place{
			node:   node,
			member: member,
			seed:   election.Seed(node.Name),
			ready:  ready(node, snapshot.Now),
			out:    excluded(node, member),
		})
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

// ready is true if a node counts as ready at that time (rule E2).
//
// A node that turns NotReady counts as ready until that has stood for 10 s. One that turns Ready counts at once: the
// object does not tell what it was before, and most often that was Ready, but for a few seconds. Its addresses have not
// moved then, and to wait would move them away from the node that has just recovered
// (docs/decisions/0012-readiness-that-stands.md).
func ready(node *cluster.Node, now time.Time) bool {
	return node.Ready || (!node.ReadySince.IsZero() && now.Sub(node.ReadySince) < standing)
}

// Again is when the decision may change although no object does: when a node's trouble will have stood for long enough to
// count. It is zero if there is no such moment. Without it two speakers that decide at different times would disagree for
// longer than rule P1 allows.
func (t *Table) Again() time.Time {
	var again time.Time
	for _, node := range t.snapshot.Nodes {
		counts := node.ReadySince.Add(standing)
		if node.Ready || node.ReadySince.IsZero() || !counts.After(t.snapshot.Now) {
			continue
		}
		if again.IsZero() || counts.Before(again) {
			again = counts
		}
	}
	return again
}

// subnets are the prefixes of all links that may be chosen, each once.
func subnets(places []place) []netip.Prefix {
	var list []netip.Prefix
	seen := map[netip.Prefix]bool{}
	for i := range places {
		if places[i].out != nil {
			continue
		}
		for _, link := range places[i].member.Links {
			for _, prefix := range link.Subnets {
				if !seen[prefix] {
					seen[prefix] = true
					list = append(list, prefix)
				}
			}
		}
	}
	return list
}

// LinkFor is the link of a node that speaks for an address: of those allowed, the first whose subnet contains it, else
// the first; false if none is allowed. onSubnet tells which of the two (rules E2, L1, L2). links are sorted by name.
func LinkFor(links []cluster.Link, interfaces []string, address netip.Addr) (link cluster.Link, onSubnet, found bool) {
	for i := range links {
		if !Allowed(links[i], interfaces, cluster.FamilyOf(address)) {
			continue
		}
		if slices.ContainsFunc(links[i].Subnets, func(p netip.Prefix) bool { return p.Contains(address) }) {
			return links[i], true, true
		}
		if !found {
			link, found = links[i], true
		}
	}
	return link, false, found
}

// Allowed is true if a link may carry announcements of a family for an advertisement with these interfaces: one that is
// listed, or any without a list. IPv4 needs an address of its own there unless the link is listed, IPv6 a link-local one
// (rule L1).
func Allowed(link cluster.Link, interfaces []string, family cluster.Family) bool {
	_, listed := slices.BinarySearch(interfaces, link.Name)
	if family == cluster.IPv6 {
		return link.LinkLocal.IsValid() && (listed || len(interfaces) == 0)
	}
	return listed || len(interfaces) == 0 && link.IPv4
}
