package l2

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
)

func link(name string, index uint8, subnets ...string) cluster.Link {
	l := cluster.Link{Name: name, Index: int(index), MAC: [6]byte{2, 0, 0, 0, 0, index}}
	for _, text := range subnets {
		subnet := netip.MustParsePrefix(text)
		l.Subnets = append(l.Subnets, subnet)
		l.IPv4 = l.IPv4 || subnet.Addr().Is4()
		if subnet.Addr().IsLinkLocalUnicast() {
			l.LinkLocal = subnet.Addr().Next()
		}
	}
	return l
}

func TestAssign(t *testing.T) {
	t.Parallel()
	const lan, other, third = "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"
	cases := map[string]struct {
		reason     string
		address    string
		interfaces []string
		links      []cluster.Link
		route      int // index of the link the address is routed to; 0: no route
		want       []string
	}{
		"one link": {
			reason: "1. without a list every link with an IPv4 address answers",
			links:  []cluster.Link{link("eth0", 1, lan)}, want: []string{"eth0"},
		},
		"link without IPv4": {
			reason: "1. ARP only where the link has an IPv4 address (L1)",
			links:  []cluster.Link{link("eth0", 1, lan), link("eth1", 2, "2001:db8::/64")}, want: []string{"eth0"},
		},
		"listed link without IPv4": {
			reason: "1. or is listed", interfaces: []string{"eth1"},
			links: []cluster.Link{link("eth0", 1, lan), link("eth1", 2)}, want: []string{"eth1"},
		},
		"listed link that does not exist": {
			reason: "1. nobody answers then (F66)", interfaces: []string{"eth9"},
			links: []cluster.Link{link("eth0", 1, lan)},
		},
		"one of two in a segment listed": {
			reason: "1. only the listed one answers (F66)", interfaces: []string{"eth1"},
			links: []cluster.Link{link("eth0", 1, lan), link("eth1", 2, lan)}, want: []string{"eth1"},
		},
		"two segments": {
			reason: "2. links in different segments all answer",
			links:  []cluster.Link{link("eth0", 1, lan), link("eth1", 2, other)}, want: []string{"eth0", "eth1"},
		},
		"same segment, no route": {
			reason: "4. of two in a segment the first by name answers, in whatever order they are listed",
			links:  []cluster.Link{link("eth1", 2, lan), link("eth0", 1, lan)}, want: []string{"eth0"},
		},
		"same segment, routed": {
			reason: "3. or the one the address is routed to",
			links:  []cluster.Link{link("eth0", 1, lan), link("eth1", 2, lan)}, route: 2, want: []string{"eth1"},
		},
		"same segment, routed elsewhere": {
			reason: "4. a route by a link that is not one of them does not matter",
			links:  []cluster.Link{link("eth0", 1, lan), link("eth1", 2, lan)}, route: 7, want: []string{"eth0"},
		},
		"same segment, one contains the address": {
			reason: "2. the link whose subnet contains the address answers, before any route",
			links:  []cluster.Link{link("eth0", 1, other), link("eth1", 2, other, lan)}, route: 1, want: []string{"eth1"},
		},
		"segment over a third link": {
			reason: "2. a segment holds together over a link with two subnets; the one that contains the address answers",
			links:  []cluster.Link{link("eth0", 1, lan), link("eth1", 2, other), link("eth2", 3, lan, other)},
			route:  3, want: []string{"eth2"},
		},
		"link-local IPv6 on all": {
			reason: "2. that links share fe80::/64 says nothing about segments",
			links:  []cluster.Link{link("eth0", 1, lan, "fe80::/64"), link("eth1", 2, third, "fe80::/64")}, want: []string{"eth0", "eth1"},
		},
		"IPv6": {
			reason: "1. IPv6 where there is a link-local address (L1)", address: "2001:db8::10",
			links: []cluster.Link{link("eth0", 1, lan), link("eth1", 2, "fe80::/64")}, want: []string{"eth1"},
		},
		"IPv6, listed": {
			reason: "1. to be listed is not enough for IPv6", address: "2001:db8::10", interfaces: []string{"eth0", "eth1"},
			links: []cluster.Link{link("eth0", 1, lan), link("eth1", 2, "fe80::/64"), link("eth2", 3, "fe80::/64")}, want: []string{"eth1"},
		},
		"IPv6, the whole segment": {
			reason: "2. links in one segment, by whichever family, answer once", address: "2001:db8::10",
			links: []cluster.Link{link("eth0", 1, lan, "fe80::/64"), link("eth1", 2, lan, "fe80::/64")}, want: []string{"eth0"},
		},
		"IPv6, subnet": {
			reason: "2. the link whose subnet contains the address", address: "2001:db8::10",
			links: []cluster.Link{
				link("eth0", 1, lan, "fe80::/64"), link("eth1", 2, lan, "2001:db8::/64", "fe80::/64"),
			}, want: []string{"eth1"},
		},
		"IPv6 alone": {
			reason: "2. an IPv6 subnet makes a segment for IPv4 too", interfaces: []string{"eth0", "eth1"},
			links: []cluster.Link{link("eth0", 1, "2001:db8::/64"), link("eth1", 2, "2001:db8::/64")}, want: []string{"eth0"},
		},
		"no links": {reason: "nothing to answer on, no harm"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := netip.MustParseAddr("192.0.2.10")
			if c.address != "" {
				address = netip.MustParseAddr(c.address)
			}
			claims := []announce.Claim{{Address: address, Interfaces: c.interfaces, Epoch: 5}}
			duties := assign(claims, c.links, func(netip.Addr) (int, bool) { return c.route, c.route != 0 })
			var got []string
			for at, d := range duties {
				if epoch, has := d[address]; has {
					got = append(got, at.link)
					if epoch != 5 || at.family != cluster.FamilyOf(address) {
						t.Errorf("%s has epoch %d, want the claim's, in %s", at.link, epoch, at.family)
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestAssignAsksForNoRouteWhereThereIsNoChoice(t *testing.T) {
	t.Parallel()
	claims := []announce.Claim{{Address: netip.MustParseAddr("192.0.2.10")}}
	links := []cluster.Link{link("eth0", 1, "192.0.2.0/24"), link("eth1", 2, "198.51.100.0/24")}
	assign(claims, links, func(netip.Addr) (int, bool) {
		t.Error("asked for a route")
		return 0, false
	})
}
