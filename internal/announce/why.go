package announce

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// Exclusion is why one node does not answer for an address.
type Exclusion struct {
	Node string
	Why  *reason.Reason
}

// Exclusions says for every node but the owner which rule keeps it from answering for the address, sorted by node; nil
// if no node is asked, because the verdict's own reason says it all.
func (t *Table) Exclusions(address netip.Addr) []Exclusion {
	verdict, found := t.Of(address)
	if !found {
		return nil
	}
	on := slices.Clone(verdict.Services)
	if verdict.Owner == "" {
		for i := range verdict.Others {
			on = append(on, verdict.Others[i].Service)
		}
	}
	d := newDecider(t.snapshot)
	claimants, _ := d.claims(address, on)
	if len(claimants) == 0 {
		return nil
	}
	list := d.exclusions(&verdict, claimants)
	for _, node := range strangers(t.snapshot) {
		list = append(list, Exclusion{Node: node, Why: gone()})
	}
	slices.SortFunc(list, func(a, b Exclusion) int { return strings.Compare(a.Node, b.Node) })
	return list
}

// exclusions are those of the nodes of the snapshot.
func (d *decider) exclusions(verdict *Verdict, claimants []claimant) []Exclusion {
	c := d.classFor(verdict.Address, claimants)
	candidates := c.candidates
	if first := slices.IndexFunc(claimants, claimant.local); first >= 0 {
		candidates = d.localCandidates(c, claimants, first)
	}
	owner, owned := d.placeOf[verdict.Owner]
	counts := d.counting(candidates)
	var list []Exclusion
	for i := range d.places {
		var why *reason.Reason
		switch {
		case owned && i == owner:
			continue
		case c.out[i] != nil:
			why = c.out[i]
		case !slices.Contains(candidates, i):
			why = reason.New(reason.NoLocalEndpoints, "policy Local and no ready endpoint on the node")
		default:
			why = outranked(verdict, d.tierOf(c, i, verdict.Address, counts), d.tierOf(c, owner, verdict.Address, counts))
		}
		list = append(list, Exclusion{Node: d.places[i].node.Name, Why: why})
	}
	return list
}

// outranked says why a candidate in the tier of loser does not answer and the owner, in that of winner, does.
func outranked(verdict *Verdict, loser, winner tier) *reason.Reason {
	owner := verdict.Owner
	switch {
	case winner.fresh != loser.fresh:
		return reason.New(reason.LowerTier, "%s is better placed: this node's speaker does not hear from the API server", owner)
	case winner.ready != loser.ready:
		return reason.New(reason.LowerTier, "%s is better placed: this node is not ready", owner)
	case winner.onSubnet != loser.onSubnet:
		return reason.New(reason.LowerTier, "%s is better placed: this node has no link in the subnet of %s", owner, verdict.Address)
	case winner.weight != loser.weight:
		return reason.New(reason.LowerTier, "%s is better placed: its weight is %d, this node's is %d", owner, winner.weight, loser.weight)
	default:
		return reason.New(reason.LowerHash, "the hash of %s for %s is higher", owner, verdict.Address)
	}
}

// strangers are the speakers on nodes that have no Node object.
func strangers(snapshot *cluster.Snapshot) []string {
	var list []string
	for name := range snapshot.Facts.Members {
		_, known := slices.BinarySearchFunc(snapshot.Nodes, name, func(n *cluster.Node, name string) int {
			return cmp.Compare(n.Name, name)
		})
		if !known {
			list = append(list, name)
		}
	}
	return list
}

func gone() *reason.Reason {
	return reason.New(reason.NodeGone, "the node has a speaker but no Node object")
}

// whyNobody says why no node answers although Services on the address have endpoints and advertisements. It names rules
// and no nodes: a condition must not change with every node that comes and goes.
func (d *decider) whyNobody(c *class) *reason.Reason {
	switch {
	case len(d.snapshot.Facts.Members) == 0:
		return reason.New(reason.NoSpeakers, "no speaker is alive")
	case len(c.candidates) > 0:
		return reason.New(reason.NoLocalEndpoints, "policy Local, and no node that could announce has a ready endpoint")
	case len(d.places) == 0:
		return reason.New(reason.NoCandidates, "every node is excluded: %s", gone().Message)
	}
	rules := make([]string, 0, len(c.out))
	for _, why := range c.out {
		rules = append(rules, why.Message)
	}
	slices.Sort(rules)
	return reason.New(reason.NoCandidates, "every node is excluded: %s", strings.Join(slices.Compact(rules), "; "))
}

// rest lists the Services on an address that it is not announced for: those that do not count, each with its reason, and
// all others with the reason given.
func rest(on, announced []*cluster.Service, refused []Other, why *reason.Reason) []Other {
	var list []Other
	for _, service := range on {
		if slices.Contains(announced, service) {
			continue
		}
		other := Other{Service: service, Why: why}
		if i := slices.IndexFunc(refused, func(o Other) bool { return o.Service == service }); i >= 0 {
			other = refused[i]
		}
		list = append(list, other)
	}
	return list
}

// Announced tells about a Service whether each of its addresses is answered for, with the reason that its condition
// berth.dev/Announced gives: who answers where, or why nobody does. The message tells of every address; the word is that
// of the first which is not answered for.
func (t *Table) Announced(service *cluster.Service) (bool, *reason.Reason) {
	if len(service.Recorded.Addresses) == 0 {
		return false, reason.New(reason.NoAddress, "the Service has no address yet")
	}
	all, word := true, reason.Announced
	parts := make([]string, 0, len(service.Recorded.Addresses))
	for _, address := range service.Recorded.Addresses {
		answered, why := t.answered(address, service)
		if all && (!answered || word == reason.Announced) {
			word = why.Word
		}
		all = all && answered
		parts = append(parts, why.Message)
	}
	return all, &reason.Reason{Word: word, Message: strings.Join(parts, "; ")}
}

// answered tells whether an address is answered for on behalf of the Service, and by whom or why not.
func (t *Table) answered(address netip.Addr, service *cluster.Service) (bool, *reason.Reason) {
	verdict, found := t.Of(address)
	if !found {
		return false, reason.New(reason.NoAddress, "%s is held by no Service of this installation", address)
	}
	for i := range verdict.Others {
		if verdict.Others[i].Service.Name == service.Name {
			return false, verdict.Others[i].Why
		}
	}
	by := fmt.Sprintf("%s from node %s, link %s", address, verdict.Owner, verdict.Link)
	if verdict.OffSubnet {
		return true, reason.New(reason.OffSubnet, "%s, which is not in the address's subnet: only a route leads there", by)
	}
	return true, &reason.Reason{Word: reason.Announced, Message: by}
}
