package l2_test

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/l2"
	"github.com/berthlb/berth/speaker/internal/wire"
	"github.com/berthlb/berth/speaker/internal/wire/wiretest"
)

// node is a responder with its links in a namespace of its own, put together as main does it.
type node struct {
	ns        *wiretest.Namespace
	links     *wire.Links
	responder *l2.Responder
	metrics   *prometheus.Registry
	claims    []announce.Claim
	epoch     uint64
}

// newNode starts a responder in a namespace. It is confirmed all the time, as by a running agent.
func newNode(tb testing.TB, ns *wiretest.Namespace) *node {
	tb.Helper()
	n := &node{
		ns: ns, metrics: prometheus.NewRegistry(),
		links: wire.NewLinks(regexp.MustCompile(wire.DefaultExclude), testr.NewWithInterface(tb, testr.Options{})),
	}
	n.responder = l2.New(l2.Options{
		Links: n.links, Metrics: n.metrics, Log: testr.NewWithInterface(tb, testr.Options{}),
		Open: func(link cluster.Link, family cluster.Family) (l2.Socket, error) {
			if family == cluster.IPv6 {
				return wire.OpenNDP(link)
			}
			return wire.OpenARP(link)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	ns.Go(func() error { return n.links.Run(ctx, n.responder.LinksChanged) })
	ns.Go(func() error { return n.responder.Run(ctx) })
	ns.Go(func() error {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			n.responder.Confirm()
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
	<-n.links.Listed()
	return n
}

// claim gives the node addresses.
func (n *node) claim(interfaces []string, addresses ...netip.Addr) {
	n.epoch++
	n.claims = nil
	for _, address := range addresses {
		n.claims = append(n.claims, announce.Claim{Address: address, Interfaces: interfaces, Epoch: n.epoch})
	}
	n.responder.Set(n.claims)
}

// What is announced, and who asks for it.
var (
	vip    = netip.MustParseAddr("192.0.2.10")
	client = netip.MustParseAddr("192.0.2.100")
	subnet = netip.MustParsePrefix("192.0.2.1/24")
)

// pair gives a node on eth0, and a tap at the other end of its link.
func pair(t *testing.T) (*node, *wiretest.Tap) {
	t.Helper()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "peer0")
	a.AddAddress("eth0", subnet)
	return newNode(t, a), b.Tap("peer0")
}

// awaitReply asks until a reply comes, and returns it. Frames before it are dropped.
func awaitReply(tb testing.TB, tap *wiretest.Tap, address netip.Addr, within time.Duration) wiretest.Frame {
	tb.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); {
		tap.Ask(client, address)
		for asked := time.Now().Add(50 * time.Millisecond); ; {
			frame, ok := tap.Next(time.Until(asked))
			if !ok {
				break
			}
			if isAnswer(frame) {
				return frame
			}
		}
	}
	tb.Fatalf("nobody answers for %s within %s", address, within)
	return wiretest.Frame{}
}

// isAnswer is true for a reply to the client, false for gratuitous frames.
func isAnswer(frame wiretest.Frame) bool {
	return frame.Operation == arp.OperationReply && frame.TargetIP == client
}

func TestExactlyOneReplyWithTheLinksMAC(t *testing.T) {
	t.Parallel()
	n, tap := pair(t)
	n.claim(nil, vip)
	awaitReply(t, tap, vip, 2*time.Second)
	tap.Drain()

	tap.Ask(client, vip)
	answers := slices.DeleteFunc(tap.During(500*time.Millisecond), func(f wiretest.Frame) bool { return !isAnswer(f) })
	if len(answers) != 1 {
		t.Fatalf("one request was answered %d times: %v", len(answers), answers)
	}
	answers[0].At = time.Time{}
	mac := n.ns.MAC("eth0")
	want := wiretest.Frame{
		From: mac, To: tap.MAC(), Operation: arp.OperationReply,
		SenderMAC: mac, SenderIP: vip, TargetMAC: tap.MAC(), TargetIP: client,
	}
	if diff := cmp.Diff(want, answers[0], cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("the reply is another (-want +got):\n%s", diff)
	}
	if have := n.responder.Have(); !slices.Equal(have, []netip.Addr{vip}) {
		t.Errorf("the responder says that it has %v", have)
	}
}

// isGratuitous is true for an announcement of the address.
func isGratuitous(address netip.Addr) func(wiretest.Frame) bool {
	return func(f wiretest.Frame) bool { return f.SenderIP == address && f.TargetIP == address }
}

// awaitGratuitous waits for an announcement of the address, and returns it.
func awaitGratuitous(t *testing.T, tap *wiretest.Tap, address netip.Addr, within time.Duration) wiretest.Frame {
	t.Helper()
	for end := time.Now().Add(within); ; {
		frame, ok := tap.Next(time.Until(end))
		if !ok {
			t.Fatalf("%s is not announced within %s", address, within)
		}
		if isGratuitous(address)(frame) {
			return frame
		}
	}
}

// TestBothForms is F72: neighbours that take only one form of gratuitous ARP learn of a change too.
func TestBothForms(t *testing.T) {
	t.Parallel()
	n, tap := pair(t)
	n.claim(nil, vip)
	mac := n.ns.MAC("eth0")
	request := wiretest.Frame{
		From: mac, To: wiretest.Broadcast(), Operation: arp.OperationRequest, SenderMAC: mac, SenderIP: vip, TargetIP: vip,
	}
	reply := request
	reply.Operation, reply.TargetMAC = arp.OperationReply, mac
	for _, want := range []wiretest.Frame{request, reply} {
		got := awaitGratuitous(t, tap, vip, time.Second)
		got.At = time.Time{}
		if diff := cmp.Diff(want, got, alike()); diff != "" {
			t.Errorf("the announcement is another (-want +got):\n%s", diff)
		}
	}
}

// TestLinkFlap is F52: an owner whose link went and came again announces again, although nothing looks changed to it.
func TestLinkFlap(t *testing.T) {
	t.Parallel()
	n, tap := pair(t)
	n.claim(nil, vip)
	awaitReply(t, tap, vip, 2*time.Second)
	n.ns.Down("eth0")
	tap.During(300 * time.Millisecond)
	n.ns.Up("eth0")
	came := time.Now()
	frame := awaitGratuitous(t, tap, vip, 2*time.Second)
	t.Logf("announced %s after the link came back", frame.At.Sub(came))
	awaitReply(t, tap, vip, time.Second)
}

// TestLinkMadeAnew is F64: networking is restarted, and the link comes back with another index and hardware address.
func TestLinkMadeAnew(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	n := newNode(t, a)
	n.claim(nil, vip)
	for range 20 {
		wiretest.Pair(a, "eth0", b, "peer0")
		a.AddAddress("eth0", subnet)
		tap := b.Tap("peer0")
		if frame := awaitReply(t, tap, vip, 2*time.Second); frame.From != a.MAC("eth0") || frame.SenderMAC != frame.From {
			t.Fatalf("the answer is from %x and says %x, the link has %x", frame.From, frame.SenderMAC, a.MAC("eth0"))
		}
		a.Delete("eth0")
	}
}

// TestNewMAC shows that a link that is given another hardware address answers, and is announced, with that.
func TestNewMAC(t *testing.T) {
	t.Parallel()
	n, tap := pair(t)
	n.claim(nil, vip)
	awaitReply(t, tap, vip, 2*time.Second)
	mac := [6]byte{2, 0xbe, 0, 0, 0, 1}
	n.ns.SetMAC("eth0", mac)
	for end := time.Now().Add(2 * time.Second); ; {
		if frame := awaitGratuitous(t, tap, vip, time.Until(end)); frame.SenderMAC == mac && frame.From == mac {
			break
		}
	}
	tap.Drain()
	if frame := awaitReply(t, tap, vip, time.Second); frame.SenderMAC != mac {
		t.Errorf("answered with %x, the link has %x", frame.SenderMAC, mac)
	}
}

// TestADownLinkIsNeverUsed is F65: one link is down, another has no carrier; no frame is on them or names them.
func TestADownLinkIsNeverUsed(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	for i, name := range []string{"0", "1", "2"} {
		wiretest.Pair(a, "eth"+name, b, "peer"+name)
		a.AddAddress("eth"+name, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(i), 1}), 24))
	}
	a.Down("eth1")
	b.Down("peer2") // takes the carrier from eth2
	taps := []*wiretest.Tap{b.Tap("peer0"), b.Tap("peer1")}
	n := newNode(t, a)
	n.claim(nil, vip)
	up := a.MAC("eth0")
	for _, frame := range taps[0].During(1500 * time.Millisecond) {
		if frame.From != up || frame.SenderMAC != up {
			t.Errorf("a frame from %x says %x, the link that is up has %x", frame.From, frame.SenderMAC, up)
		}
	}
	b.Up("peer2")
	tap := b.Tap("peer2")
	awaitReply(t, tap, vip, 2*time.Second) // it has its carrier now
	if frames := taps[1].During(10 * time.Millisecond); len(frames) != 0 {
		t.Errorf("frames left by the link that is down: %v", frames)
	}
}

// TestTwoLinksInOneSubnet is F66: both links hear the request, one answers.
func TestTwoLinksInOneSubnet(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		interfaces []string
		want       string
	}{
		"no list":       {reason: "without a list one of them answers", want: "eth0"},
		"eth1 listed":   {reason: "with a list only the listed one does", interfaces: []string{"eth1"}, want: "eth1"},
		"eth9 listed":   {reason: "with a list of none that exists nobody does", interfaces: []string{"eth9"}},
		"eth1 and eth0": {reason: "with both listed one of them answers", interfaces: []string{"eth0", "eth1"}, want: "eth0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, tap := segment(t)
			n.claim(c.interfaces, vip)
			if c.want != "" {
				awaitReply(t, tap, vip, 2*time.Second)
			}
			tap.Drain()
			tap.Ask(client, vip)
			answers := 0
			for _, frame := range tap.During(time.Second) {
				if from := n.named(frame.SenderMAC); frame.SenderIP == vip && from != c.want {
					t.Errorf("%s: a frame came from %s", c.reason, from)
				}
				if isAnswer(frame) {
					answers++
				}
			}
			if want := min(len(c.want), 1); answers != want {
				t.Errorf("%s: %d answers, want %d", c.reason, answers, want)
			}
		})
	}
}

// segment gives a node with eth0 and eth1 in one subnet and one broadcast domain, and a tap in it.
func segment(t *testing.T) (*node, *wiretest.Tap) {
	t.Helper()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "port0")
	wiretest.Pair(a, "eth1", b, "port1")
	wiretest.Pair(b, "port2", b, "tap")
	b.Bridge("br0", "port0", "port1", "port2")
	a.AddAddress("eth0", netip.MustParsePrefix("192.0.2.1/24"))
	a.AddAddress("eth1", netip.MustParsePrefix("192.0.2.2/24"))
	return newNode(t, a), b.Tap("tap")
}

// named is the node's link that has a hardware address.
func (n *node) named(mac [6]byte) string {
	for _, link := range n.links.Current() {
		if link.MAC == mac {
			return link.Name
		}
	}
	return "nobody"
}

// TestSilenceOnALink is F80 on a real link: no frame for an address leaves after it was lost.
func TestSilenceOnALink(t *testing.T) {
	t.Parallel()
	n, tap := pair(t)
	for range 5 {
		n.claim(nil, vip)
		awaitReply(t, tap, vip, 2*time.Second)
		n.claim(nil)
		lost := time.Now()
		tap.Ask(client, vip)
		for _, frame := range tap.During(700 * time.Millisecond) {
			if late := frame.At.Sub(lost); frame.SenderIP == vip && late > 100*time.Millisecond {
				t.Errorf("a frame came %s after the address was lost", late)
			}
		}
	}
}

// TestManyAddresses gains 1,000 addresses at once: each is announced within a second, and answered.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	n, tap := pair(t)
	all := addresses(1000)
	n.claim(nil, all...)
	missing := map[netip.Addr]bool{}
	for _, address := range all {
		missing[address] = true
	}
	began := time.Now()
	for end := began.Add(3 * time.Second); len(missing) > 0; {
		frame, ok := tap.Next(time.Until(end))
		if !ok {
			t.Fatalf("%d addresses were not announced", len(missing))
		}
		delete(missing, frame.SenderIP)
	}
	t.Logf("all announced after %s", time.Since(began))
	for _, address := range []netip.Addr{all[0], all[500], all[999]} {
		awaitReply(t, tap, address, time.Second)
	}
}
