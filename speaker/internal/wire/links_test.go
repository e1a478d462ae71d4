package wire_test

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/wire"
	"github.com/berthlb/berth/speaker/internal/wire/wiretest"
)

// follower follows the links of a namespace.
type follower struct {
	*wire.Links
	t     *testing.T
	woken chan struct{} // holds one
}

func follow(t *testing.T, ns *wiretest.Namespace) *follower {
	t.Helper()
	f := &follower{wire.NewLinks(regexp.MustCompile(wire.DefaultExclude), testr.New(t)), t, make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ns.Go(func() error {
		return f.Run(ctx, func() {
			select {
			case f.woken <- struct{}{}:
			default:
			}
		})
	})
	<-f.Listed()
	return f
}

// await waits, by wakes only, until something holds.
func (f *follower) await(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.After(3 * time.Second); !holds(); {
		select {
		case <-f.woken:
		case <-deadline:
			f.t.Fatalf("not so: %s; the links are %v", what, f.Current())
		}
	}
}

// names are those of the usable links.
func (f *follower) names() []string {
	var names []string
	for _, link := range f.Current() {
		names = append(names, link.Name)
	}
	return names
}

func (f *follower) has(names ...string) func() bool {
	return func() bool { return slices.Equal(f.names(), names) }
}

func TestLinksFollowTheKernel(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth1", b, "peer1")
	f := follow(t, a)
	f.await("eth1 is there from the start", f.has("eth1"))
	wiretest.Pair(a, "eth0", b, "peer0")
	f.await("eth0 came", f.has("eth0", "eth1"))

	a.AddAddress("eth0", netip.MustParsePrefix("192.0.2.1/24"))
	eth0 := func() cluster.Link { return f.Current()[0] }
	f.await("eth0 has its address", func() bool { return eth0().IPv4 && len(eth0().Subnets) > 0 })
	if eth0().MAC != a.MAC("eth0") {
		t.Errorf("eth0 has %x, read %x", a.MAC("eth0"), eth0().MAC)
	}
	a.DropAddress("eth0", netip.MustParsePrefix("192.0.2.1/24"))
	f.await("eth0 lost it", func() bool { return !eth0().IPv4 })

	mac := [6]byte{2, 0xbe, 0, 0, 0, 1}
	a.SetMAC("eth0", mac)
	f.await("eth0 has another hardware address", func() bool { return eth0().MAC == mac })

	a.Down("eth0")
	f.await("eth0 is down", f.has("eth1"))
	b.Down("peer1")
	f.await("eth1 has no carrier", f.has())
	b.Up("peer1")
	a.Up("eth0")
	f.await("both are back", f.has("eth0", "eth1"))
	a.Delete("eth1")
	f.await("eth1 is deleted", f.has("eth0"))
}

// TestLinkLocalAddresses is F69 as far as links go: an address that is tentative, a duplicate or gone is none.
func TestLinkLocalAddresses(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	b.WithoutDAD()
	wiretest.Pair(a, "eth0", b, "peer0")
	f := follow(t, a)
	f.await("eth0 is there", f.has("eth0"))
	usable := func() bool { return len(f.Current()) == 1 && f.Current()[0].LinkLocal.IsValid() }
	if usable() {
		t.Error("an address that is tentative counts as usable")
	}
	f.await("eth0's address has been found to be its own", usable)
	if got, want := f.Current()[0].LinkLocal, a.LinkLocal("eth0"); got != want {
		t.Errorf("eth0 has %s, read %s", want, got)
	}

	before := f.Epoch()
	a.Set("net/ipv6/conf/eth0/disable_ipv6", "1")
	f.await("IPv6 is off", func() bool { return !usable() && f.Epoch() > before })
	b.AddAddress("peer0", netip.MustParsePrefix("fe80::dead/64"))
	a.Set("net/ipv6/conf/eth0/addr_gen_mode", "1") // no address by itself
	a.Set("net/ipv6/conf/eth0/disable_ipv6", "0")
	a.AddAddress("eth0", netip.MustParsePrefix("fe80::dead/64"))
	a.AddAddress("eth0", netip.MustParsePrefix("fe80::f00d/64"))
	f.await("the address that nobody else has is usable", usable)
	if got := f.Current()[0].LinkLocal; got != netip.MustParseAddr("fe80::f00d") {
		t.Errorf("a duplicate counts as usable: %s", got)
	}
}

// TestKindsOfLinks is F62: what stands for other links, or on another, is followed as they are (rule L2); what is part of
// another is not.
func TestKindsOfLinks(t *testing.T) {
	t.Parallel()
	on := func(a *wiretest.Namespace, name string) netlink.LinkAttrs {
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.ParentIndex = name, a.Index("eth0")
		return attributes
	}
	cases := map[string]struct {
		reason string
		make   func(a *wiretest.Namespace)
		want   []string
	}{
		"VLAN": {
			reason: "a VLAN is a link beside its parent", want: []string{"eth0", "eth0.7", "eth1"},
			make: func(a *wiretest.Namespace) {
				a.Add("802.1Q", &netlink.Vlan{LinkAttrs: on(a, "eth0.7"), VlanId: 7})
			},
		},
		"macvlan": {
			reason: "so is a macvlan", want: []string{"eth0", "eth1", "mac0"},
			make: func(a *wiretest.Namespace) {
				a.Add("macvlan", &netlink.Macvlan{LinkAttrs: on(a, "mac0"), Mode: netlink.MACVLAN_MODE_BRIDGE})
			},
		},
		"bond": {
			reason: "a bond speaks for its parts", want: []string{"bond0"},
			make: func(a *wiretest.Namespace) {
				bond := netlink.NewLinkBond(netlink.NewLinkAttrs())
				bond.Name, bond.Mode = "bond0", netlink.BOND_MODE_ACTIVE_BACKUP
				a.Add("bonding", bond)
				for _, part := range []string{"eth0", "eth1"} {
					a.Down(part)
					a.Enslave(part, "bond0")
					a.Up(part)
				}
			},
		},
		"bridge": {
			reason: "so does a bridge", want: []string{"br0"},
			make: func(a *wiretest.Namespace) { a.Bridge("br0", "eth0", "eth1") },
		},
		"renamed": {
			reason: "a link is known by the name it has now", want: []string{"eth1", "lan0"},
			make: func(a *wiretest.Namespace) { a.Down("eth0"); a.Rename("eth0", "lan0"); a.Up("lan0") },
		},
		"renamed to a pod's": {
			reason: "one with a pod's name is left out", want: []string{"eth1"},
			make: func(a *wiretest.Namespace) { a.Down("eth0"); a.Rename("eth0", "cali0"); a.Up("cali0") },
		},
		"tunnel": {
			reason: "what is no Ethernet is none", want: []string{"eth0", "eth1"},
			make: func(a *wiretest.Namespace) {
				attributes := netlink.NewLinkAttrs()
				attributes.Name = "tun9"
				a.Add("tun", &netlink.Tuntap{LinkAttrs: attributes, Mode: netlink.TUNTAP_MODE_TUN})
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
			wiretest.Pair(a, "eth0", b, "peer0")
			wiretest.Pair(a, "eth1", b, "peer1")
			f := follow(t, a)
			f.await("both are there", f.has("eth0", "eth1"))
			c.make(a)
			f.await(c.reason, f.has(c.want...))
		})
	}
}

func TestEnslavedLinks(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "peer0")
	wiretest.Pair(a, "eth1", b, "peer1")
	f := follow(t, a)
	f.await("both are there", f.has("eth0", "eth1"))
	a.Bridge("br0", "eth0")
	f.await("the bridge speaks in eth0's place", f.has("br0", "eth1"))
	a.Free("eth0") // the kernel tells of it as the deletion of a bridge's port, too
	f.await("eth0 is free again", func() bool { return slices.Contains(f.names(), "eth0") })
}

// TestEpochGrowsOverAFlap: the list is the same before and after, and the epoch tells that it was not meanwhile.
func TestEpochGrowsOverAFlap(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "peer0")
	f := follow(t, a)
	f.await("eth0 is there", f.has("eth0"))
	for range 10 {
		before := f.Epoch()
		a.Down("eth0")
		a.Up("eth0")
		f.await("the epoch has grown and eth0 is there", func() bool { return f.Epoch() > before && f.has("eth0")() })
	}
}

// TestPodsWakeNobody: on a busy node links of pods come and go all the time.
func TestPodsWakeNobody(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "peer0")
	f := follow(t, a)
	f.await("eth0 is there", f.has("eth0"))
	before := f.Epoch()
	for range 10 {
		wiretest.Pair(a, "veth1", b, "pod1")
		a.Delete("veth1")
	}
	a.Down("eth0")
	f.await("eth0 is down", f.has())
	// Of eth0's own events there are few; each pod would have made at least two.
	if grown := f.Epoch() - before; grown > 6 {
		t.Errorf("the epoch has grown by %d over 10 pods", grown)
	}
}

// TestAFloodOfEventsLosesNothing lets more events come than the kernel keeps for us, and looks whether the list is right
// in the end.
func TestAFloodOfEventsLosesNothing(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "peer0")
	f := follow(t, a)
	for i := range 300 {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 24)
		if i > 255 {
			address = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 1}), 24)
		}
		a.AddAddress("eth0", address)
	}
	f.await("all 300 subnets are known", func() bool {
		count := 0
		for _, link := range f.Current() {
			for _, subnet := range link.Subnets {
				if subnet.Addr().Is4() {
					count++
				}
			}
		}
		return count == 300
	})
}

func TestRouteTo(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "peer0")
	a.AddAddress("eth0", netip.MustParsePrefix("192.0.2.1/24"))
	f := follow(t, a)
	f.await("eth0 is there", f.has("eth0"))
	a.Do(func() error {
		if index, ok := f.RouteTo(netip.MustParseAddr("192.0.2.10")); !ok || index != f.Current()[0].Index {
			t.Errorf("the route to 192.0.2.10 is by link %d (%v), want eth0, which is %d", index, ok, f.Current()[0].Index)
		}
		if index, ok := f.RouteTo(netip.MustParseAddr("203.0.113.1")); ok {
			t.Errorf("there is a route to 203.0.113.1, by link %d", index)
		}
		return nil
	})
}
