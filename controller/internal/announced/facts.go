package announced

import (
	"net"
	"net/netip"
	"slices"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
)

// factsFrom reads the facts that speakers publish. A speaker is alive if more than half of the others see it: its own
// object cannot say that it has died. Where nobody sees anybody, as between two nodes whose gossip is cut, each goes on
// alone (rule P2), and so all are taken at their word.
func factsFrom(speakers map[string]*v1beta1.Speaker) cluster.Facts {
	all := cluster.Facts{Members: map[string]*cluster.Member{}, Down: map[string]bool{}}
	seen := cluster.Facts{Members: map[string]*cluster.Member{}, Down: map[string]bool{}}
	for name, speaker := range speakers {
		if speaker.Status.GossipAddress == "" {
			continue // has not joined yet
		}
		all.Members[name] = member(name, &speaker.Status)
		if seenByOthers(name, speakers) {
			seen.Members[name] = all.Members[name]
		} else {
			seen.Down[name] = true
		}
	}
	if len(seen.Members) == 0 {
		return all
	}
	return seen
}

// seenByOthers is true if more than half of the other speakers that have joined list it as a member.
func seenByOthers(name string, speakers map[string]*v1beta1.Speaker) bool {
	others, seen := 0, 0
	for other, speaker := range speakers {
		if other == name || speaker.Status.GossipAddress == "" {
			continue
		}
		others++
		if slices.Contains(speaker.Status.Members, name) {
			seen++
		}
	}
	return others == 0 || 2*seen > others
}

// member is what a speaker's object says of it.
func member(name string, status *v1beta1.SpeakerStatus) *cluster.Member {
	m := &cluster.Member{Node: name, ProxyReady: status.ProxyReady, Stale: status.Stale}
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
