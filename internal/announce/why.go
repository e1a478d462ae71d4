package announce

import (
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

// Exclusions says for every node but the owner which rule keeps it from answering for the address.
func (t *Table) Exclusions(address netip.Addr) []Exclusion {
	verdict, found := t.Of(address)
	if !found {
		return nil
	}
	d := t.decider
	var on []holder
	for _, service := range verdict.Services {
		on = append(on, holder{address: address, service: service})
	}
	claimants, why := d.claimants(on)
	if why != nil {
		return nil // no node is asked: the verdict's own reason says it all
	}
	class := d.classFor(claimants)
	var list []Exclusion
	for i := range d.places {
		if name := d.places[i].node.Name; name != verdict.Owner {
			list = append(list, Exclusion{Node: name, Why: d.exclusion(i, class, claimants, verdict.Owner)})
		}
	}
	return list
}

// exclusion is the first rule that keeps a place from answering.
func (d *decider) exclusion(i int, c *class, claimants []claimant, owner string) *reason.Reason {
	place := &d.places[i]
	interfaces, selected := c.interfaces[place.node.Name]
	switch {
	case place.out != nil:
		return place.out
	case !selected:
		return reason.New(reason.NodeNotSelected, "no advertisement for the Service selects the node")
	case !slices.Contains(c.candidates, i) && len(interfaces) > 0:
		return reason.New(reason.NoLink, "none of the links %s is up", strings.Join(interfaces, ", "))
	case !slices.Contains(c.candidates, i):
		return reason.New(reason.NoLink, "no link with an IPv4 address is up")
	case !d.serves(place.node.Name, claimants):
		return reason.New(reason.NoLocalEndpoints, "policy Local and no ready endpoint on the node")
	case place.member.Stale || !d.ready(i) || c.weights[i] > 0:
		return reason.New(reason.LowerTier, "%s is better placed", owner)
	default:
		return reason.New(reason.LowerHash, "the hash of %s is higher", owner)
	}
}

// whyNobody says why no node answers although the Services on the address have endpoints and advertisements.
func (d *decider) whyNobody(c *class, claimants []claimant) *reason.Reason {
	if len(d.snapshot.Facts.Members) == 0 {
		return reason.New(reason.NoSpeakers, "no speaker is alive")
	}
	byRule := map[string][]string{}
	onlyLocal := len(c.candidates) > 0
	for i := range d.places {
		why := d.exclusion(i, c, claimants, "")
		byRule[why.Message] = append(byRule[why.Message], d.places[i].node.Name)
	}
	if onlyLocal {
		return reason.New(reason.NoLocalEndpoints, "policy Local and no node that could announce has a ready endpoint of %s", names(claimants))
	}
	return reason.New(reason.NoCandidates, "every node is excluded: %s", summary(byRule))
}

// names lists the Services of claimants.
func names(claimants []claimant) string {
	list := make([]string, 0, len(claimants))
	for i := range claimants {
		list = append(list, claimants[i].service.Name.String())
	}
	return strings.Join(list, ", ")
}

// summary lists rules with the nodes they remove, at most three by name.
func summary(byRule map[string][]string) string {
	parts := make([]string, 0, len(byRule))
	for rule, nodes := range byRule {
		shown := nodes
		more := ""
		if len(nodes) > 3 {
			shown, more = nodes[:3], fmt.Sprintf(" and %d more", len(nodes)-3)
		}
		parts = append(parts, fmt.Sprintf("%s (%s%s)", rule, strings.Join(shown, ", "), more))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// Announced tells about a Service whether each of its addresses is answered for, with the reason that its condition
// berth.dev/Announced gives: who answers where, or why nobody does.
func (t *Table) Announced(service *cluster.Service) (bool, *reason.Reason) {
	if len(service.Recorded.Addresses) == 0 {
		return false, reason.New(reason.NoAddress, "the Service has no address yet")
	}
	var answered []string
	for _, address := range service.Recorded.Addresses {
		verdict, found := t.Of(address)
		switch {
		case !found:
			return false, reason.New(reason.NoAddress, "%s is not held by a Service of ours", address)
		case verdict.Why != nil:
			return false, verdict.Why
		case !slices.Contains(verdict.Services, service):
			return false, t.decider.whyNot(address, service)
		}
		answered = append(answered, fmt.Sprintf("%s from node %s, link %s", address, verdict.Owner, verdict.Link))
	}
	return true, reason.New(reason.Announced, "%s", strings.Join(answered, "; "))
}

// whyNot says why an address is announced, but not for this Service.
func (d *decider) whyNot(address netip.Addr, service *cluster.Service) *reason.Reason {
	_, why := d.claimants([]holder{{address: address, service: service}})
	if why == nil {
		why = reason.New(reason.SharersDisagree, "%s is announced for another Service on it: no node could answer for both", address)
	}
	return why
}
