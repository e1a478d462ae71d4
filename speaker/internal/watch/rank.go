package watch

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/election"
)

// watchers is how many nodes watch each.
const watchers = 2

// Watchers are the nodes that watch a node: of those that share a link with it, the two that rank highest by hash, so that
// the watching is spread evenly and a change of members moves little of it. All speakers that know the same members agree.
func Watchers(node string, members map[string]*cluster.Member) []string {
	watched := members[node]
	if watched == nil {
		return nil
	}
	type ranked struct {
		name  string
		score uint64
	}
	var list []ranked
	seed := election.Seed("watch " + node)
	for name, member := range members {
		if name != node && meets(member.Links, watched.Links) {
			list = append(list, ranked{name, election.Score(seed, election.Seed(name))})
		}
	}
	slices.SortFunc(list, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name)) })
	names := make([]string, 0, watchers)
	for _, one := range list[:min(len(list), watchers)] {
		names = append(names, one.name)
	}
	return names
}

// targets are the nodes that this one is to watch, sorted.
func targets(self string, members map[string]*cluster.Member) []Target {
	own := members[self]
	if own == nil {
		return nil
	}
	var list []Target
	for name, member := range members {
		if name != self && slices.Contains(Watchers(name, members), self) {
			list = append(list, Target{Node: name, Paths: paths(own.Links, member.Links)})
		}
	}
	slices.SortFunc(list, func(a, b Target) int { return cmp.Compare(a.Node, b.Node) })
	return list
}

// paths are the ways to ask from links of ours to links of another node: one for each pair that shares a subnet.
func paths(ours, theirs []cluster.Link) []Path {
	var list []Path
	for i := range ours {
		for j := range theirs {
			if from, to, shared := meet(&ours[i], &theirs[j]); shared {
				list = append(list, Path{Link: ours[i].Index, From: from, MAC: theirs[j].MAC, Address: to})
			}
		}
	}
	return list
}

// meets is true if there is such a path.
func meets(ours, theirs []cluster.Link) bool {
	for i := range ours {
		for j := range theirs {
			if _, _, shared := meet(&ours[i], &theirs[j]); shared {
				return true
			}
		}
	}
	return false
}

// meet finds addresses by which a kernel on one of two links can ask the one on the other: IPv4 addresses in one subnet of
// ours, else the links' own link-local ones, if both have addresses in one IPv6 subnet and so are in one segment.
func meet(ours, theirs *cluster.Link) (from, to netip.Addr, shared bool) {
	for _, subnet := range ours.Subnets {
		switch {
		case subnet.Addr().Is4():
			i, j := slices.IndexFunc(ours.Addresses, subnet.Contains), slices.IndexFunc(theirs.Addresses, subnet.Contains)
			if i >= 0 && j >= 0 {
				return ours.Addresses[i], theirs.Addresses[j], true
			}
		case subnet.Addr().IsLinkLocalUnicast(): // the same on every link
		case ours.LinkLocal.IsValid() && theirs.LinkLocal.IsValid() && slices.Contains(theirs.Subnets, subnet):
			from, to, shared = ours.LinkLocal, theirs.LinkLocal, true
		}
	}
	return from, to, shared
}
