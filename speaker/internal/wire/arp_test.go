package wire_test

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/wire"
	"github.com/berthlb/berth/speaker/internal/wire/wiretest"
)

var (
	vip    = netip.MustParseAddr("192.0.2.10")
	client = netip.MustParseAddr("192.0.2.100")
)

// heard is one call of Listen's callback.
type heard struct {
	sender         [6]byte
	source, target netip.Addr
	age            time.Duration
}

// listener is a socket on a link whose other end is a tap.
type listener struct {
	*wire.ARPSocket
	ears
	tap  *wiretest.Tap
	ns   *wiretest.Namespace
	link cluster.Link
}

func listen(t *testing.T) *listener {
	t.Helper()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "peer0")
	f := follow(t, a)
	f.await("eth0 is there", f.has("eth0"))
	l := &listener{ears: newEars(t), tap: b.Tap("peer0"), ns: a, link: f.Current()[0]}
	a.Do(func() (err error) {
		l.ARPSocket, err = wire.OpenARP(l.link)
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

// ears keep what a socket hears.
type ears struct {
	heard chan heard
	ended chan error
	over  chan struct{} // closed when the test has ended

	mu      *sync.Mutex
	refused map[string]int
}

func newEars(t *testing.T) ears {
	t.Helper()
	e := ears{
		heard: make(chan heard, 10), ended: make(chan error, 1), over: make(chan struct{}),
		mu: &sync.Mutex{}, refused: map[string]int{},
	}
	t.Cleanup(func() { close(e.over) })
	return e
}

// hear keeps what is heard. It blocks while there is no room.
func (e *ears) hear(one heard) {
	select {
	case e.heard <- one:
	case <-e.over:
	}
}

// count counts what was refused.
func (e *ears) count(why string, frames int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused[why] += frames
}

// counted is how many frames were refused.
func (e *ears) counted(why string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refused[why]
}

// next is what is heard next.
func (e *ears) next(t *testing.T) heard {
	t.Helper()
	select {
	case h := <-e.heard:
		return h
	case <-time.After(2 * time.Second):
		t.Fatal("nothing is heard")
		return heard{}
	}
}

func TestWhatASocketHears(t *testing.T) {
	t.Parallel()
	l := listen(t)
	if err := l.Watch([]netip.Addr{vip}); err != nil {
		t.Fatal(err)
	}
	claim := wiretest.Frame{
		From: l.tap.MAC(), To: wiretest.Broadcast(), Operation: arp.OperationReply,
		SenderMAC: [6]byte{2, 9}, SenderIP: vip, TargetMAC: [6]byte{2, 9}, TargetIP: vip,
	}
	asksFromVIP := claim
	asksFromVIP.Operation, asksFromVIP.TargetIP = arp.OperationRequest, client
	probe := claim
	probe.Operation, probe.SenderIP = arp.OperationRequest, netip.IPv4Unspecified()
	reply := claim
	reply.SenderIP, reply.TargetIP = client, vip // somebody answers us: no request, and no claim of ours

	ofNobody := claim // a hardware address that an answer would reach everybody by
	ofNobody.Operation, ofNobody.SenderIP, ofNobody.SenderMAC, ofNobody.TargetIP = arp.OperationRequest, client, wiretest.Broadcast(), vip

	l.tap.Send(reply)
	l.tap.Send(ofNobody)
	l.tap.Ask(client, vip.Next())
	l.tap.Ask(client, vip)
	l.tap.Send(claim)
	l.tap.Send(asksFromVIP)
	l.tap.Send(probe)
	want := []heard{
		{sender: l.tap.MAC(), source: client, target: vip},
		{sender: [6]byte{2, 9}, source: vip},
		{sender: [6]byte{2, 9}, source: vip, target: client},
		{sender: [6]byte{2, 9}, source: netip.IPv4Unspecified(), target: vip},
	}
	for i, w := range want {
		got := l.next(t)
		if got.age < 0 || got.age > time.Second {
			t.Errorf("frame %d was received %s ago, it says", i, got.age)
		}
		got.age = 0
		if diff := cmp.Diff(w, got, cmp.AllowUnexported(heard{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("frame %d (-want +got):\n%s", i, diff)
		}
	}
	if count := l.counted("malformed"); count != 1 {
		t.Errorf("%d frames were refused, want the one from a broadcast address", count)
	}
}

// TestUnrelatedFramesCostNothing: of 20,000 frames for other addresses, and of frames sent to others, the kernel delivers
// none. They are all sent before the one that is for us, so that it would come behind them.
func TestUnrelatedFramesCostNothing(t *testing.T) {
	t.Parallel()
	l := listen(t)
	if err := l.Watch([]netip.Addr{vip, vip.Next().Next()}); err != nil {
		t.Fatal(err)
	}
	for range 20_000 {
		l.tap.Ask(client, vip.Next())
	}
	l.tap.Send(wiretest.Frame{ // for us by its address, but sent to another host's
		From: l.tap.MAC(), To: [6]byte{2, 0xde, 0xad}, Operation: arp.OperationRequest,
		SenderMAC: l.tap.MAC(), SenderIP: client, TargetIP: vip,
	})
	l.tap.Ask(client, vip)
	if got := l.next(t); got.target != vip || got.sender != l.tap.MAC() {
		t.Errorf("heard %v", got)
	}
	if more := len(l.heard); more != 0 {
		t.Errorf("%d more frames were heard", more)
	}
	delivered, err := l.Delivered()
	if err != nil {
		t.Fatal(err)
	}
	if delivered != 1 {
		t.Errorf("the kernel delivered %d frames, want 1", delivered)
	}
}

func TestWatchIsChangedInFlight(t *testing.T) {
	t.Parallel()
	l := listen(t)
	l.tap.Ask(client, vip) // watched by nobody yet
	var many []netip.Addr
	for address := vip; len(many) < 1000; address = address.Next().Next() { // more spans than a filter holds
		many = append(many, address)
	}
	for _, watched := range [][]netip.Addr{{vip}, many, {vip.Next()}, {}, many[999:]} {
		if err := l.Watch(watched); err != nil {
			t.Fatal(err)
		}
		for _, address := range watched {
			l.tap.Ask(client, address)
			if got := l.next(t); got.target != address {
				t.Fatalf("asked for %s, heard %v", address, got)
			}
		}
	}
}

func TestSendsAsItsLink(t *testing.T) {
	t.Parallel()
	l := listen(t)
	if err := l.Reply(l.tap.MAC(), client, vip); err != nil {
		t.Fatal(err)
	}
	if err := l.Announce(vip); err != nil {
		t.Fatal(err)
	}
	mac := l.link.MAC
	want := []wiretest.Frame{
		{From: mac, To: l.tap.MAC(), Operation: arp.OperationReply, SenderMAC: mac, SenderIP: vip, TargetMAC: l.tap.MAC(), TargetIP: client},
		{From: mac, To: wiretest.Broadcast(), Operation: arp.OperationRequest, SenderMAC: mac, SenderIP: vip, TargetIP: vip},
		{From: mac, To: wiretest.Broadcast(), Operation: arp.OperationReply, SenderMAC: mac, SenderIP: vip, TargetMAC: mac, TargetIP: vip},
	}
	for i, w := range want {
		got, ok := l.tap.Next(2 * time.Second)
		if !ok {
			t.Fatalf("frame %d did not come", i)
		}
		got.At = time.Time{}
		if diff := cmp.Diff(w, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("frame %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestHowListenEnds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		end    func(*listener)
		fails  bool
	}{
		"closed":  {reason: "a socket that is closed ends well", end: func(l *listener) { _ = l.Close() }},
		"down":    {reason: "a link that goes down is an error", end: func(l *listener) { l.ns.Down("eth0") }, fails: true},
		"deleted": {reason: "so is one that is deleted", end: func(l *listener) { l.ns.Delete("eth0") }, fails: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			c.end(l)
			select {
			case err := <-l.ended:
				if (err != nil) != c.fails {
					t.Errorf("%s: Listen gave %v", c.reason, err)
				}
			case <-time.After(2 * time.Second):
				t.Errorf("%s: Listen did not end", c.reason)
			}
		})
	}
}

// TestAFrameThatWaitedIsOld: the time told is the kernel's, not that of reading. The kernel begins to stamp frames a moment
// after it was asked to, so the first try may fail.
func TestAFrameThatWaitedIsOld(t *testing.T) {
	t.Parallel()
	l := listen(t)
	if err := l.Watch([]netip.Addr{vip}); err != nil {
		t.Fatal(err)
	}
	var last heard
	for range 3 {
		for range cap(l.heard) + 2 { // the callback blocks, as if the process were paused
			l.tap.Ask(client, vip)
		}
		l.tap.During(300 * time.Millisecond)
		for range cap(l.heard) + 1 {
			l.next(t) // these were read before the pause
		}
		if last = l.next(t); last.age > 200*time.Millisecond {
			return
		}
	}
	t.Errorf("a frame that waited in the kernel for 300 ms is %s old", last.age)
}

// TestWhatIsLostIsCounted has more frames wait than the socket has room for.
func TestWhatIsLostIsCounted(t *testing.T) {
	t.Parallel()
	l := listen(t)
	if err := l.Watch([]netip.Addr{vip}); err != nil {
		t.Fatal(err)
	}
	const sent = 5000
	for range sent { // the callback blocks after the first few
		l.tap.Ask(client, vip)
	}
	for range 100 {
		l.next(t)
	}
	l.tap.Ask(client, vip) // the kernel says with this one how many it had to throw away before
	for heard := 100; heard+l.counted("overflow") < sent+1; heard++ {
		l.next(t)
	}
}
