package announced

import (
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
)

// factsFrom reads the facts that speakers publish, those that are alive as members and the others as down.
func factsFrom(speakers map[string]*v1beta1.Speaker) cluster.Facts {
	facts := cluster.Facts{Members: map[string]*cluster.Member{}, Down: map[string]bool{}}
	joined := map[string]map[string]bool{} // speaker → those it sees
	for name, speaker := range speakers {
		if speaker.Status.GossipAddress != "" {
			joined[name] = setOf(speaker.Status.Members)
		}
	}
	alive := living(joined)
	for name := range joined {
		if alive[name] {
			facts.Members[name] = member(speakers[name])
		} else {
			facts.Down[name] = true
		}
	}
	return facts
}

// living are the speakers that are alive. A dead one's own object goes on saying what it saw last, so it is not asked
// about itself, and, once it is found dead, about nobody else: the one seen by the smallest part of the others is taken
// out as long as that is half of them or less. Where nobody sees anybody, as between two nodes whose gossip is cut, each
// goes on alone (rule P2), and so all are alive.
func living(sees map[string]map[string]bool) map[string]bool {
	alive := make(map[string]bool, len(sees))
	for name := range sees {
		alive[name] = true
	}
	names := slices.Sorted(maps.Keys(sees))
	for first := true; len(alive) > 1; first = false {
		least, worst, most := "", len(sees), 0
		for _, name := range names {
			if !alive[name] {
				continue
			}
			seen := observers(name, alive, sees)
			if most = max(most, seen); seen < worst {
				least, worst = name, seen
			}
		}
		if (first && most == 0) || 2*worst >= len(alive) {
			break
		}
		delete(alive, least)
	}
	return alive
}

// observers is how many of the living, but for itself, see a speaker.
func observers(name string, alive map[string]bool, sees map[string]map[string]bool) int {
	seen := 0
	for other := range alive {
		if other != name && sees[other][name] {
			seen++
		}
	}
	return seen
}

// member is what a speaker's object says of it.
func member(speaker *v1beta1.Speaker) *cluster.Member {
	status := &speaker.Status
	m := &cluster.Member{
		Node: speaker.Name, ProxyReady: status.ProxyReady, Stale: status.Stale, Settled: status.Settled,
		Gateways: compile.Gateways(speaker),
	}
	if status.Outlived != nil {
		m.Outlived = status.Outlived.Duration
	}
	for i := range status.Links {
		m.Links = append(m.Links, link(&status.Links[i]))
	}
	for _, version := range status.ElectionVersions {
		m.Versions = append(m.Versions, int(version))
	}
	return m
}

func link(reported *v1beta1.SpeakerLink) cluster.Link {
	l := cluster.Link{Name: reported.Name}
	if mac, err := net.ParseMAC(reported.MAC); err == nil && len(mac) == len(l.MAC) {
		l.MAC = [6]byte(mac)
	}
	if address, err := netip.ParseAddr(reported.LinkLocal); err == nil && address.Is6() {
		l.LinkLocal = address.WithZone("")
	}
	for _, text := range reported.Subnets {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		l.Subnets = append(l.Subnets, prefix.Masked())
		l.IPv4 = l.IPv4 || prefix.Addr().Is4()
	}
	return l
}
