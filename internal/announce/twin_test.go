package announce_test

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berthlb/berth/internal/election"
)

// The twin of Decide: for one address of a world, the rules E1, E2, E3, E12 and P7 as they are written, one after the
// other, from lists of names. Only the hash is the product's.

// decision is the twin's answer.
type decision struct {
	owner, link string
	services    []string
}

// decide is who answers for an address, and for which Services.
func (w *world) decide(address string) decision {
	counted := w.counted(address)
	if len(counted) == 0 {
		return decision{}
	}
	candidates := w.candidates(counted, address)
	if len(candidates) == 0 && len(counted) > 1 {
		// E1: the Service that has held the address longest decides, of those that have candidates alone.
		byAge := slices.Clone(counted)
		slices.SortStableFunc(byAge, func(a, b *worldService) int { return int(b.since - a.since) })
		for _, service := range byAge {
			counted = []*worldService{service}
			if candidates = w.candidates(counted, address); len(candidates) > 0 {
				break
			}
		}
	}
	if len(candidates) == 0 {
		return decision{}
	}
	owner := election.Winner(w.bestTier(candidates, counted, address), netip.MustParseAddr(address))
	made := decision{owner: owner, link: w.linkFor(w.node(owner), counted, address)}
	for _, service := range counted {
		made.services = append(made.services, "shop/"+service.name)
	}
	return made
}

// holders are the Services of ours on an address.
func (w *world) holders(address string) []*worldService {
	var list []*worldService
	for i := range w.services {
		if w.services[i].ours && slices.Contains(w.services[i].addresses, address) {
			list = append(list, &w.services[i])
		}
	}
	return list
}

// counted are the Services on an address that count: given by us, advertised by somebody, with a usable endpoint.
func (w *world) counted(address string) []*worldService {
	var list []*worldService
	for _, service := range w.holders(address) {
		advertised := slices.ContainsFunc(w.adverts, func(a worldAdvert) bool { return a.isFor(service) })
		if service.given && advertised && w.usable(service) {
			list = append(list, service)
		}
	}
	return list
}

// isFor is true if the advertisement is for the Service's pool and the Service.
func (a *worldAdvert) isFor(s *worldService) bool {
	return (len(a.pools) == 0 || slices.Contains(a.pools, s.pool)) && (a.app == "" || a.app == s.app)
}

// usable is P7: any endpoint that is ready, or serves. For a Local Service those on dead nodes do not count.
func (w *world) usable(service *worldService) bool {
	for _, endpoint := range service.endpoints {
		if endpoint.state != "dead" && (!service.local || !w.isDead(endpoint.node)) {
			return true
		}
	}
	return false
}

func (w *world) isDead(node string) bool {
	return node != "" && w.node(node).dead
}

// usableOn is P7 for a node's own endpoints: a ready one, or, if none is ready anywhere, one that serves.
func (w *world) usableOn(node string, service *worldService) bool {
	anyReady := false
	for _, endpoint := range service.endpoints {
		anyReady = anyReady || (endpoint.state == "ready" && !w.isDead(endpoint.node))
	}
	for _, endpoint := range service.endpoints {
		if endpoint.node == node && !w.isDead(node) && (endpoint.state == "ready" || (endpoint.state == "serving" && !anyReady)) {
			return true
		}
	}
	return false
}

func (w *world) node(name string) *worldNode {
	i := slices.IndexFunc(w.nodes, func(n worldNode) bool { return n.name == name })
	return &w.nodes[i]
}

// candidates is E1.
func (w *world) candidates(counted []*worldService, address string) []string {
	var list []string
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.object || !n.speaker || n.leaving || n.unavailable || !n.proxied || len(w.allowedLinks(n, counted, address)) == 0 {
			continue
		}
		fits := func(s *worldService) bool {
			return len(w.selecting(n, s)) > 0 && (!s.local || w.usableOn(n.name, s))
		}
		if !slices.ContainsFunc(counted, func(s *worldService) bool { return !fits(s) }) {
			list = append(list, n.name)
		}
	}
	return list
}

// selecting are the advertisements for the Service that select the node.
func (w *world) selecting(n *worldNode, service *worldService) []worldAdvert {
	var list []worldAdvert
	for _, advert := range w.adverts {
		if advert.isFor(service) && (advert.rack == "" || advert.rack == n.rack) {
			list = append(list, advert)
		}
	}
	return list
}

// allowedLinks is E12: a link is allowed if for each Service some advertisement lists it or lists none. It is L1 too: for
// IPv6 only links with a link-local address are, and where no Service is bound to a list, for IPv4 only those with an IPv4
// address.
func (w *world) allowedLinks(n *worldNode, counted []*worldService, address string) []string {
	var list []string
	for _, link := range n.links {
		allowed, bound := true, false
		for _, service := range counted {
			every, listed := false, false
			for _, advert := range w.selecting(n, service) {
				every = every || len(advert.links) == 0
				listed = listed || slices.Contains(advert.links, link)
			}
			allowed = allowed && (every || listed)
			bound = bound || !every
		}
		can := bound || worldLinks()[link].IPv4
		if isIPv6(address) {
			can = worldLinks()[link].LinkLocal.IsValid()
		}
		if allowed && can {
			list = append(list, link)
		}
	}
	return list
}

func isIPv6(address string) bool { return strings.Contains(address, ":") }

// onSubnet is true if a link is in the address's subnet.
func onSubnet(link, address string) bool {
	return slices.ContainsFunc(worldLinks()[link].Subnets, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr(address)) })
}

func (w *world) linkFor(n *worldNode, counted []*worldService, address string) string {
	allowed := w.allowedLinks(n, counted, address)
	if i := slices.IndexFunc(allowed, func(link string) bool { return onSubnet(link, address) }); i >= 0 {
		return allowed[i]
	}
	return allowed[0]
}

// bestTier is E2, step by step.
func (w *world) bestTier(candidates []string, counted []*worldService, address string) []string {
	tier := candidates
	if slices.ContainsFunc(candidates, func(node string) bool { return !w.node(node).stale && !w.node(node).unsure }) {
		tier = prefer(tier, func(node string) bool { return !w.node(node).stale })
	}
	if 2*len(filter(candidates, w.countsAsReady)) >= len(candidates) {
		tier = prefer(tier, w.countsAsReady)
	}
	tier = prefer(tier, func(node string) bool {
		return slices.ContainsFunc(w.allowedLinks(w.node(node), counted, address), func(link string) bool { return onSubnet(link, address) })
	})
	heaviest := 0
	for _, node := range tier {
		heaviest = max(heaviest, w.weight(node, counted))
	}
	tier = prefer(tier, func(node string) bool { return w.weight(node, counted) == heaviest })
	return prefer(tier, func(node string) bool { return w.node(node).settled || w.node(node).outlived >= w.delay(node, counted) })
}

// delay is the longest of all advertisements for one of the Services that select the node.
func (w *world) delay(node string, counted []*worldService) time.Duration {
	n, longest := w.node(node), time.Duration(0)
	for _, advert := range w.adverts {
		if slices.ContainsFunc(counted, advert.isFor) && (advert.rack == "" || advert.rack == n.rack) && advert.delay > longest {
			longest = advert.delay
		}
	}
	return longest
}

// countsAsReady is E2: what ended or began within 10 s moves nothing.
func (w *world) countsAsReady(node string) bool {
	return w.node(node).ready || w.node(node).readyFor < 10*time.Second
}

// weight is the sum over all advertisements for one of the Services that select the node.
func (w *world) weight(node string, counted []*worldService) int {
	n, sum := w.node(node), 0
	for _, advert := range w.adverts {
		if slices.ContainsFunc(counted, advert.isFor) && (advert.rack == "" || advert.rack == n.rack) && advert.prefer == n.rack {
			sum += int(advert.weight + advert.evenMore)
		}
	}
	return sum
}

func filter(list []string, holds func(string) bool) []string {
	var kept []string
	for _, one := range list {
		if holds(one) {
			kept = append(kept, one)
		}
	}
	return kept
}

// prefer keeps those for which it holds; all if it holds for none.
func prefer(list []string, holds func(string) bool) []string {
	if kept := filter(list, holds); len(kept) > 0 {
		return kept
	}
	return list
}
