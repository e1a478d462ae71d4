package wire_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/wire"
	"github.com/berthlb/berth/speaker/internal/wire/wiretest"
)

var (
	vip6      = netip.MustParseAddr("2001:db8::10")
	client6   = netip.MustParseAddr("2001:db8::100")
	neighbour = netip.MustParseAddr("fe80::100") // by its link-local address
)

// listener6 is a socket for neighbour discovery on a link whose other end is a tap.
type listener6 struct {
	*wire.NDPSocket
	ears
	tap  *wiretest.NDTap
	ns   *wiretest.Namespace
	link cluster.Link
}

func listen6(t *testing.T) *listener6 {
	t.Helper()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	a.WithoutDAD()
	wiretest.Pair(a, "eth0", b, "peer0")
	f := follow(t, a)
	f.await("eth0 is there, with its link-local address", func() bool { return f.has("eth0")() && f.Current()[0].LinkLocal.IsValid() })
	l := &listener6{ears: newEars(t), tap: b.NDTap("peer0"), ns: a, link: f.Current()[0]}
	a.Do(func() (err error) {
		l.NDPSocket, err = wire.OpenNDP(l.link)
		return err
	})
	a.Go(func() error {
		l.ended <- l.Listen(func(sender [6]byte, source, target netip.Addr, at time.Time) {
			l.hear(heard{sender, source, target, time.Since(at)})
		}, l.count)
		return nil
	})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (l *listener6) watch(t *testing.T, addresses ...netip.Addr) {
	t.Helper()
	var err error
	l.ns.Do(func() error {
		err = l.Watch(addresses)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWhatAnNDPSocketHears is F70: whoever asks, and however, is heard; what RFC 4861 says must be discarded is counted.
func TestWhatAnNDPSocketHears(t *testing.T) {
	t.Parallel()
	l := listen6(t)
	l.watch(t, vip6)
	good := l.tap.Solicitation(client6, vip6)
	edit := func(change func(*wiretest.Message)) wiretest.Message {
		m := good
		change(&m)
		return m
	}
	everybody, _ := wiretest.AllNodes()
	cases := []struct {
		what  string
		send  wiretest.Message
		want  *heard // nil: refused
		spoil int    // a byte of the frame to turn over
	}{
		{what: "a multicast question from a global address", send: good, want: &heard{sender: l.tap.MAC(), source: client6, target: vip6}},
		{
			what: "one from a link-local address", send: edit(func(m *wiretest.Message) { m.Source = neighbour }),
			want: &heard{sender: l.tap.MAC(), source: neighbour, target: vip6},
		},
		{
			what: "a unicast one, which may leave out the asker's hardware address",
			send: edit(func(m *wiretest.Message) { m.To, m.Destination, m.LinkLayer = l.link.MAC, vip6, [6]byte{} }),
			want: &heard{sender: l.tap.MAC(), source: client6, target: vip6},
		},
		{
			what: "one whose asker is behind another host", send: edit(func(m *wiretest.Message) { m.LinkLayer = [6]byte{2, 9} }),
			want: &heard{sender: [6]byte{2, 9}, source: client6, target: vip6},
		},
		{
			what: "one from ::, who wants the address himself", send: l.tap.Solicitation(netip.IPv6Unspecified(), vip6),
			want: &heard{sender: l.tap.MAC(), source: netip.IPv6Unspecified(), target: vip6},
		},
		{
			what: "a question about another, from our address",
			send: edit(func(m *wiretest.Message) { m.Source, m.Target = vip6, client6 }),
			want: &heard{sender: l.tap.MAC(), source: vip6, target: client6},
		},
		{
			what: "an advertisement of our address",
			send: edit(func(m *wiretest.Message) { m.Type, m.LinkLayer = wiretest.Advertisement, [6]byte{2, 9} }),
			want: &heard{sender: [6]byte{2, 9}, source: vip6},
		},
		{what: "a wrong checksum", send: good, spoil: 56},
		{
			what: "one from :: that tells a hardware address",
			send: edit(func(m *wiretest.Message) { m.Source = netip.IPv6Unspecified() }),
		},
		{
			what: "one from :: to a single host",
			send: edit(func(m *wiretest.Message) {
				m.Source, m.Destination, m.LinkLayer = netip.IPv6Unspecified(), vip6, [6]byte{}
			}),
		},
		{what: "one from a group", send: edit(func(m *wiretest.Message) { m.Source = everybody })},
		{what: "one whose hardware address is everybody's", send: edit(func(m *wiretest.Message) { m.LinkLayer = wiretest.Broadcast() })},
		{
			what: "a solicited advertisement to everybody",
			send: edit(func(m *wiretest.Message) {
				m.Type, m.Solicited, m.Destination = wiretest.Advertisement, true, everybody
			}),
		},
	}
	refused := 0
	for _, c := range cases {
		frame := c.send.Bytes()
		if c.spoil > 0 {
			frame[c.spoil] ^= 0xff
		}
		l.tap.Raw(frame)
		if c.want == nil {
			refused++
			continue
		}
		got := l.next(t)
		if got.age < 0 || got.age > time.Second {
			t.Errorf("%s: it was received %s ago, it says", c.what, got.age)
		}
		got.age = 0
		if diff := cmp.Diff(*c.want, got, cmp.AllowUnexported(heard{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	l.tap.Raw(good.Bytes())
	l.next(t) // so all before it were looked at
	if got := l.counted("malformed"); got != refused {
		t.Errorf("%d frames were refused, want %d", got, refused)
	}
}

// TestUnrelatedSolicitationsCostNothing: of 20,000 frames for other addresses, of those that are not neighbour discovery
// as it may be and of our own that come back, none is heard, and the kernel delivers only the last.
func TestUnrelatedSolicitationsCostNothing(t *testing.T) {
	t.Parallel()
	l := listen6(t)
	l.watch(t, vip6, vip6.Next().Next())
	for range 20_000 {
		l.tap.Ask(client6, vip6.Next())
	}
	good := l.tap.Solicitation(client6, vip6)
	routed, other, toOthers, ours := good, good, good, good
	routed.HopLimit = 254
	other.Code = 1
	toOthers.To = [6]byte{2, 0xde, 0xad}
	ours.From = l.link.MAC
	for _, m := range []wiretest.Message{routed, other, toOthers, ours, good} {
		l.tap.Raw(m.Bytes())
	}
	if got := l.next(t); got.target != vip6 || got.sender != l.tap.MAC() {
		t.Errorf("heard %v", got)
	}
	if more := len(l.heard); more != 0 || l.counted("malformed") != 0 {
		t.Errorf("%d more frames were heard, %d refused", more, l.counted("malformed"))
	}
	delivered, err := l.Delivered()
	if err != nil {
		t.Fatal(err)
	}
	if delivered != 2 { // with our own, which the kernel cannot tell
		t.Errorf("the kernel delivered %d frames, want 2", delivered)
	}
}

func TestAdvertisesAsItsLink(t *testing.T) {
	t.Parallel()
	l := listen6(t)
	l.watch(t, vip6)
	if err := l.Reply(l.tap.MAC(), client6, vip6); err != nil {
		t.Fatal(err)
	}
	if err := l.Reply(l.tap.MAC(), netip.IPv6Unspecified(), vip6); err != nil {
		t.Fatal(err)
	}
	if err := l.Announce(vip6); err != nil {
		t.Fatal(err)
	}
	mac, everybody := l.link.MAC, wiretest.Message{}
	everybody.Destination, everybody.To = wiretest.AllNodes()
	answer := wiretest.Message{
		From: mac, To: l.tap.MAC(), Source: l.ns.LinkLocal("eth0"), Destination: client6, HopLimit: 255,
		Type: wiretest.Advertisement, Solicited: true, Override: true, Target: vip6, LinkLayer: mac,
	}
	toAll := answer
	toAll.To, toAll.Destination, toAll.Solicited = everybody.To, everybody.Destination, false
	for i, want := range []wiretest.Message{answer, toAll, toAll} {
		got, ok := l.tap.Next(2 * time.Second)
		for ok && got.Target != vip6 { // the kernel asks for addresses of its own
			got, ok = l.tap.Next(2 * time.Second)
		}
		if !ok {
			t.Fatalf("frame %d did not come", i)
		}
		got.At = time.Time{}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("frame %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestGroupsAreCounted: addresses share groups, and a group is left with the last of them.
func TestGroupsAreCounted(t *testing.T) {
	t.Parallel()
	l := listen6(t)
	l.ns.Set("net/core/optmem_max", "20480") // as older kernels have it
	before := len(l.ns.Groups("eth0"))
	one := netip.MustParseAddr("2001:db8::aa:1")
	same := netip.MustParseAddr("2001:db8:0:1::aa:1") // its last 24 bits are the same
	group, _ := wiretest.SolicitedNode(one)
	in := func() bool { return slices.Contains(l.ns.Groups("eth0"), group) }
	steps := []struct {
		watched []netip.Addr
		want    bool
	}{
		{[]netip.Addr{one, same}, true}, {[]netip.Addr{same}, true}, {[]netip.Addr{one}, true}, {nil, false}, {[]netip.Addr{one}, true},
	}
	for _, step := range steps {
		l.watch(t, step.watched...)
		if got := in(); got != step.want {
			t.Errorf("watching %v: in the group %v, want %v", step.watched, got, step.want)
		}
	}
	var many []netip.Addr // more than the kernel has room for in one socket
	for address := one; len(many) < 1000; address = address.Next() {
		many = append(many, address)
	}
	l.watch(t, many...)
	if got := len(l.ns.Groups("eth0")) - before; got != 1000 {
		t.Errorf("1000 addresses have the link in %d groups", got)
	}
	if err := l.Announce(one); err != nil {
		t.Errorf("in 1000 groups: %v", err)
	}
	l.watch(t, many[999])
	if got := len(l.ns.Groups("eth0")) - before; got != 1 {
		t.Errorf("one address of them has the link in %d groups", got)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got := len(l.ns.Groups("eth0")) - before; got != 0 {
		t.Errorf("closed, the link is in %d groups", got)
	}
}

func TestHowListeningForNDPEnds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		end    func(*listener6)
		fails  bool
	}{
		"closed":  {reason: "a socket that is closed ends well", end: func(l *listener6) { _ = l.Close() }},
		"down":    {reason: "a link that goes down is an error", end: func(l *listener6) { l.ns.Down("eth0") }, fails: true},
		"deleted": {reason: "so is one that is deleted", end: func(l *listener6) { l.ns.Delete("eth0") }, fails: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen6(t)
			l.watch(t, vip6)
			c.end(l)
			select {
			case err := <-l.ended:
				if (err != nil) != c.fails {
					t.Errorf("%s: Listen gave %v", c.reason, err)
				}
			case <-time.After(2 * time.Second):
				t.Errorf("%s: Listen did not end", c.reason)
			}
			if c.fails { // what is sent meanwhile is an error and no harm
				if err := l.Announce(vip6); err == nil {
					t.Error("an advertisement could be sent by it")
				}
			}
		})
	}
}

// TestALinkThatIsGoneCannotBeOpened names the link.
func TestALinkThatIsGoneCannotBeOpened(t *testing.T) {
	t.Parallel()
	l := listen6(t)
	l.ns.Delete("eth0")
	l.ns.Do(func() error {
		if s, err := wire.OpenNDP(l.link); err == nil {
			t.Error("a link that is gone could be opened")
			_ = s.Close()
		}
		if s, err := wire.OpenARP(l.link); err == nil {
			t.Error("a link that is gone could be opened for ARP")
			_ = s.Close()
		}
		if err := l.Watch([]netip.Addr{vip6}); err == nil {
			t.Error("a group could be joined on it")
		}
		return nil
	})
	if _, err := wire.OpenNDP(cluster.Link{Name: "eth1", Index: 1}); err == nil {
		t.Error("a link without a link-local address could be opened")
	}
}

// TestAKernelAnswersWhatItIsAsked is rule E4: the kernel at the other end of a link answers for its own address, in each
// family.
func TestAKernelAnswersWhatItIsAsked(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	a.WithoutDAD()
	b.WithoutDAD()
	wiretest.Pair(a, "eth0", b, "eth0")
	a.AddAddress("eth0", netip.MustParsePrefix("198.51.100.1/24"))
	b.AddAddress("eth0", netip.MustParsePrefix("198.51.100.2/24"))
	f := follow(t, a)
	f.await("eth0 has its addresses", func() bool {
		return f.has("eth0")() && f.Current()[0].LinkLocal.IsValid() && len(f.Current()[0].Addresses) > 0
	})
	link, mac := f.Current()[0], b.MAC("eth0")
	type asking interface {
		Watch(addresses []netip.Addr) error
		Ask(to [6]byte, from, address netip.Addr) error
		Listen(heard func([6]byte, netip.Addr, netip.Addr, time.Time), refused func(string, int)) error
		Close() error
	}
	cases := map[string]struct {
		open     func() (asking, error)
		from, to netip.Addr
	}{
		"ARP": {func() (asking, error) { return wire.OpenARP(link) }, netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")},
		"NDP": {func() (asking, error) { return wire.OpenNDP(link) }, link.LinkLocal, b.LinkLocal("eth0")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ears := newEars(t)
			var socket asking
			a.Do(func() (err error) {
				if socket, err = c.open(); err == nil {
					err = socket.Watch([]netip.Addr{c.to})
				}
				return err
			})
			t.Cleanup(func() { _ = socket.Close() })
			a.Go(func() error {
				ears.ended <- socket.Listen(func(sender [6]byte, source, target netip.Addr, _ time.Time) {
					if !target.IsValid() || source == c.to { // the kernel may ask us in turn
						ears.hear(heard{sender: sender, source: source})
					}
				}, ears.count)
				return nil
			})
			if err := socket.Ask(mac, c.from, c.to); err != nil {
				t.Fatal(err)
			}
			if got := ears.next(t); got.sender != mac || got.source != c.to {
				t.Errorf("heard %v, want that %s is at %x", got, c.to, mac)
			}
		})
	}
}
