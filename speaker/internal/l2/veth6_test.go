package l2_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/speaker/internal/wire/wiretest"
)

var (
	subnet6   = netip.MustParsePrefix("2001:db8::1/64")
	neighbour = netip.MustParseAddr("fe80::100") // the client by its link-local address
)

// pair6 gives a node on eth0 with both families, and a tap of neighbour discovery at the other end of its link.
func pair6(t *testing.T) (n *node, other *wiretest.Namespace, tap *wiretest.NDTap) {
	t.Helper()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	a.WithoutDAD()
	wiretest.Pair(a, "eth0", b, "peer0")
	a.AddAddress("eth0", subnet)
	a.AddAddress("eth0", subnet6)
	return newNode(t, a), b, b.NDTap("peer0")
}

// answersTo are the messages about the address that come within that time.
func answersTo(tap *wiretest.NDTap, address netip.Addr, within time.Duration) []wiretest.Message {
	return slices.DeleteFunc(tap.During(within), func(m wiretest.Message) bool { return m.Target != address })
}

// awaitAdvertisement asks until a solicited answer comes, and returns it. Frames before it are dropped.
func awaitAdvertisement(tb testing.TB, tap *wiretest.NDTap, address netip.Addr, within time.Duration) wiretest.Message {
	tb.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); {
		tap.Ask(client6, address)
		for asked := time.Now().Add(50 * time.Millisecond); ; {
			m, ok := tap.Next(time.Until(asked))
			if !ok {
				break
			}
			if m.Target == address && m.Solicited {
				return m
			}
		}
	}
	tb.Fatalf("nobody answers for %s within %s", address, within)
	return wiretest.Message{}
}

// settled waits until the burst for an address is over, and forgets what was seen.
func settled(t *testing.T, tap *wiretest.NDTap, address netip.Addr) {
	t.Helper()
	awaitAdvertisement(t, tap, address, 3*time.Second)
	for quiet := time.Now(); time.Since(quiet) < 2500*time.Millisecond; {
		if m, ok := tap.Next(100 * time.Millisecond); ok && m.Target == address {
			quiet = time.Now()
		}
	}
	tap.Drain()
}

// TestEverySolicitationIsAnsweredOnce is F70: to everybody or to one, from a link-local or a global address or from none.
func TestEverySolicitationIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	n, _, tap := pair6(t)
	n.claim(nil, vip6)
	settled(t, tap, vip6)
	mac, from := n.ns.MAC("eth0"), n.ns.LinkLocal("eth0")
	everybody, everybodysMAC := wiretest.AllNodes()
	answer := func(to netip.Addr) wiretest.Message {
		return wiretest.Message{
			From: mac, To: tap.MAC(), Source: from, Destination: to, HopLimit: 255, Type: wiretest.Advertisement,
			Solicited: true, Override: true, Target: vip6, LinkLayer: mac,
		}
	}
	toAll := answer(everybody)
	toAll.To, toAll.Solicited = everybodysMAC, false
	byUnicast := func(m wiretest.Message) wiretest.Message {
		m.To, m.Destination, m.LinkLayer = mac, vip6, [6]byte{}
		return m
	}
	cases := []struct {
		what string
		ask  wiretest.Message
		want wiretest.Message
	}{
		{"multicast from a global address", tap.Solicitation(client6, vip6), answer(client6)},
		{"multicast from a link-local address", tap.Solicitation(neighbour, vip6), answer(neighbour)},
		{"unicast from a global address", byUnicast(tap.Solicitation(client6, vip6)), answer(client6)},
		{"unicast from a link-local address", byUnicast(tap.Solicitation(neighbour, vip6)), answer(neighbour)},
		{"duplicate address detection", tap.Solicitation(netip.IPv6Unspecified(), vip6), toAll},
	}
	for _, c := range cases {
		tap.Raw(c.ask.Bytes())
		got := answersTo(tap, vip6, 300*time.Millisecond)
		for i := range got {
			got[i].At = time.Time{}
		}
		if diff := cmp.Diff([]wiretest.Message{c.want}, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	tap.Ask(client6, vip6.Next())
	if got := answersTo(tap, vip6.Next(), 300*time.Millisecond); len(got) != 0 {
		t.Errorf("an address that is not ours was answered: %v", got)
	}
}

// TestWhichAddressesALinkNeeds is F68: what a link answers depends on its addresses, in whatever order it got them.
func TestWhichAddressesALinkNeeds(t *testing.T) {
	t.Parallel()
	const four, six, local = "192.0.2.1/24", "2001:db8::1/64", "fe80::1/64"
	cases := map[string]struct {
		reason       string
		addresses    []string
		listed       bool
		want4, want6 bool
	}{
		"IPv4 only":          {reason: "no link-local address, no neighbour discovery", addresses: []string{four}, want4: true},
		"IPv6 only":          {reason: "no IPv4 address, no ARP", addresses: []string{local, six}, want6: true},
		"link-local last":    {reason: "the order does not matter", addresses: []string{six, four, local}, want4: true, want6: true},
		"link-local first":   {reason: "the order does not matter", addresses: []string{local, four, six}, want4: true, want6: true},
		"link-local alone":   {reason: "it is enough for IPv6", addresses: []string{local}, want6: true},
		"listed, link-local": {reason: "a listed link answers ARP too", addresses: []string{local}, listed: true, want4: true, want6: true},
		"listed, IPv4":       {reason: "but IPv6 only from a link-local address", addresses: []string{four}, listed: true, want4: true},
		"global without":     {reason: "a global address does not stand in for it", addresses: []string{six, four}, want4: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
			a.WithoutDAD()
			a.Set("net/ipv6/conf/default/addr_gen_mode", "1") // no link-local address by itself
			wiretest.Pair(a, "eth0", b, "peer0")
			for _, address := range c.addresses {
				a.AddAddress("eth0", netip.MustParsePrefix(address))
			}
			n, tap4, tap6 := newNode(t, a), b.Tap("peer0"), b.NDTap("peer0")
			var interfaces []string
			if c.listed {
				interfaces = []string{"eth0"}
			}
			n.claim(interfaces, vip, vip6)
			if c.want4 {
				awaitReply(t, tap4, vip, 2*time.Second)
			}
			if c.want6 {
				awaitAdvertisement(t, tap6, vip6, 2*time.Second)
			}
			tap6.Ask(client6, vip6)
			tap4.Ask(client, vip)
			said6 := answersTo(tap6, vip6, 300*time.Millisecond)
			said4 := slices.DeleteFunc(tap4.During(10*time.Millisecond), func(f wiretest.Frame) bool { return f.SenderIP != vip })
			if !c.want4 && len(said4) > 0 || !c.want6 && len(said6) > 0 {
				t.Errorf("%s: ARP %v, neighbour discovery %v", c.reason, said4, said6)
			}
		})
	}
}

// TestIPv6ComesAndGoes is F69: IPv4 is answered all the time, IPv6 as long as the link can, and again when it can again.
func TestIPv6ComesAndGoes(t *testing.T) {
	t.Parallel()
	n, other, tap := pair6(t)
	tap4 := other.Tap("peer0")
	n.claim(nil, vip, vip6)
	awaitAdvertisement(t, tap, vip6, 2*time.Second)
	awaitReply(t, tap4, vip, 2*time.Second)
	group, _ := wiretest.SolicitedNode(vip6)
	for range 3 {
		n.ns.Set("net/ipv6/conf/eth0/disable_ipv6", "1")
		n.await(t, "IPv6 is given up", func() bool { return slices.Equal(n.responder.Have(), []netip.Addr{vip}) })
		tap.Drain()
		awaitReply(t, tap4, vip, time.Second)
		tap.Ask(client6, vip6)
		if got := answersTo(tap, vip6, 300*time.Millisecond); len(got) != 0 {
			t.Errorf("without IPv6 there were %v", got)
		}
		n.ns.Set("net/ipv6/conf/eth0/disable_ipv6", "0")
		awaitAdvertisement(t, tap, vip6, 3*time.Second)
		awaitReply(t, tap4, vip, time.Second)
		if !slices.Contains(n.ns.Groups("eth0"), group) {
			t.Errorf("the link is not in %s again", group)
		}
	}
}

// await waits until something holds of the node.
func (n *node) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(8 * time.Second); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestALinkMadeAnewAnswersForIPv6 is F64: the same name, another index and hardware address, and groups joined anew.
func TestALinkMadeAnewAnswersForIPv6(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	a.WithoutDAD()
	n := newNode(t, a)
	n.claim(nil, vip6)
	group, _ := wiretest.SolicitedNode(vip6)
	for i := range 10 {
		wiretest.Pair(a, "eth0", b, "peer0")
		mac := [6]byte{2, 0xbe, 0, 0, 1, byte(i)}
		if i%2 == 1 {
			a.SetMAC("eth0", mac) // while it is up
		}
		tap := b.NDTap("peer0")
		mac = a.MAC("eth0")
		got := awaitAdvertisement(t, tap, vip6, 3*time.Second)
		for end := time.Now().Add(2 * time.Second); got.LinkLayer != mac && time.Now().Before(end); {
			got = awaitAdvertisement(t, tap, vip6, time.Second)
		}
		if got.LinkLayer != mac || got.From != mac || got.Source != n.links.Current()[0].LinkLocal {
			t.Errorf("time %d: answered by %x from %s, the link has %x", i, got.LinkLayer, got.Source, mac)
		}
		if !slices.Contains(a.Groups("eth0"), group) {
			t.Errorf("time %d: the link is not in %s", i, group)
		}
		tap.Close()
		a.Delete("eth0")
	}
}

// segment6 is a client and two nodes on a bridge, all with both families.
func segment6(t *testing.T) (nodes [2]*node, client *wiretest.Namespace) {
	t.Helper()
	middle := wiretest.NewNamespace(t)
	client = wiretest.NewNamespace(t)
	client.WithoutDAD()
	wiretest.Pair(client, "eth0", middle, "port9")
	client.AddAddress("eth0", netip.PrefixFrom(client6, 64))
	var spaces [2]*wiretest.Namespace
	for i := range spaces {
		spaces[i] = wiretest.NewNamespace(t)
		spaces[i].WithoutDAD()
		wiretest.Pair(spaces[i], "eth0", middle, fmt.Sprint("port", i))
		spaces[i].AddAddress("eth0", netip.MustParsePrefix(fmt.Sprintf("2001:db8::%d/64", i+1)))
	}
	middle.Bridge("br0", "port0", "port1", "port9")
	for i := range nodes {
		nodes[i] = newNode(t, spaces[i])
	}
	return nodes, client
}

// TestAKernelFollowsTheOwner is F73: a host's neighbour entry changes with the owner though it never asks itself, and a
// host that wants to have the address finds that it is taken.
func TestAKernelFollowsTheOwner(t *testing.T) {
	t.Parallel()
	nodes, client := segment6(t)
	nodes[0].claim(nil, vip6)
	known := func(want int) func() bool {
		return func() bool { return client.Neighbour("eth0", vip6) == nodes[want].ns.MAC("eth0") }
	}
	nodes[0].await(t, "the client finds the owner", func() bool { client.Knock(vip6); return known(0)() })
	for i := range 4 {
		loser, winner := nodes[i%2], nodes[(i+1)%2]
		loser.claim(nil)
		winner.claim(nil, vip6)
		winner.await(t, fmt.Sprintf("the client has followed, time %d", i), known((i+1)%2))
	}
	client.Set("net/ipv6/conf/all/accept_dad", "1")
	client.Set("net/ipv6/conf/eth0/accept_dad", "1")
	client.Set("net/ipv6/conf/eth0/dad_transmits", "5") // on a busy machine an answer may be left out
	client.AddAddress("eth0", netip.PrefixFrom(vip6, 64))
	nodes[0].await(t, "the address is found to be taken", func() bool { return client.IsDuplicate("eth0", vip6) })
}

// TestSilenceForIPv6 is F80 on a real link: no frame for an address leaves after it was lost.
func TestSilenceForIPv6(t *testing.T) {
	t.Parallel()
	n, _, tap := pair6(t)
	for range 5 {
		n.claim(nil, vip6)
		awaitAdvertisement(t, tap, vip6, 2*time.Second)
		n.claim(nil)
		lost := time.Now()
		tap.Ask(client6, vip6)
		for _, m := range answersTo(tap, vip6, 700*time.Millisecond) {
			if late := m.At.Sub(lost); late > 100*time.Millisecond {
				t.Errorf("a frame came %s after the address was lost", late)
			}
		}
	}
}

// TestManyAddressesOfBothFamilies gains 500 of each at once: each is announced within a second, and answered.
func TestManyAddressesOfBothFamilies(t *testing.T) {
	t.Parallel()
	n, other, tap := pair6(t)
	tap4 := other.Tap("peer0")
	all := addresses(500)
	missing := map[netip.Addr]bool{}
	for address := vip6; len(all) < 1000; address = address.Next() {
		all = append(all, address)
	}
	for _, address := range all {
		missing[address] = true
	}
	n.claim(nil, all...)
	began := time.Now()
	for end := began.Add(3 * time.Second); len(missing) > 0; {
		m, ok := tap.Next(time.Millisecond)
		if ok {
			delete(missing, m.Target)
		}
		if frame, ok := tap4.Next(time.Millisecond); ok {
			delete(missing, frame.SenderIP)
		}
		if time.Now().After(end) {
			t.Fatalf("%d addresses were not announced", len(missing))
		}
	}
	t.Logf("all announced after %s", time.Since(began))
	for _, address := range []netip.Addr{all[500], all[750], all[999]} {
		awaitAdvertisement(t, tap, address, time.Second)
	}
}

// TestALinkThatVanishesInABurst: everything on the other link goes on, and nothing ends.
func TestALinkThatVanishesInABurst(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	a.WithoutDAD()
	wiretest.Pair(a, "eth0", b, "peer0")
	wiretest.Pair(a, "eth1", b, "peer1")
	n, tap := newNode(t, a), b.NDTap("peer1")
	var all []netip.Addr
	for address := vip6; len(all) < 500; address = address.Next() {
		all = append(all, address)
	}
	for range 3 {
		n.claim(nil, all...)
		b.Delete("peer0")
		for _, address := range []netip.Addr{all[0], all[499]} {
			if got := awaitAdvertisement(t, tap, address, 2*time.Second); got.LinkLayer != a.MAC("eth1") {
				t.Errorf("%s is answered by %x", address, got.LinkLayer)
			}
		}
		wiretest.Pair(a, "eth0", b, "peer0")
	}
}
