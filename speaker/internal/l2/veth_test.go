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
	t         *testing.T
	ns        *wiretest.Namespace
	links     *wire.Links
	responder *l2.Responder
	metrics   *prometheus.Registry
	claims    []announce.Claim
	epoch     uint64
}

// newNode starts a responder in a namespace. It is confirmed all the time, as by a running agent.
func newNode(t *testing.T, ns *wiretest.Namespace) *node {
	t.Helper()
	n := &node{
		t: t, ns: ns, metrics: prometheus.NewRegistry(),
		links: wire.NewLinks(regexp.MustCompile(wire.DefaultExclude), testr.New(t)),
	}
	n.responder = l2.New(l2.Options{
		Links: n.links, Metrics: n.metrics, Log: testr.New(t),
		Open: func(link cluster.Link) (l2.Receiver, l2.Sender, error) {
			socket, err := wire.OpenARP(link)
			if err != nil {
				return nil, nil, err
			}
			return socket, socket, nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
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

var (
	vip    = netip.MustParseAddr("192.0.2.10")
	client = netip.MustParseAddr("192.0.2.100")
)

// pair gives a node on eth0, and a tap at the other end of its link.
func pair(t *testing.T) (*node, *wiretest.Tap) {
	t.Helper()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "peer0")
	a.AddAddress("eth0", netip.MustParsePrefix("192.0.2.1/24"))
	return newNode(t, a), b.Tap("peer0")
}

// awaitReply asks until a reply comes, and returns it. Frames before it are dropped.
func awaitReply(t *testing.T, tap *wiretest.Tap, address netip.Addr, within time.Duration) wiretest.Frame {
	t.Helper()
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
	t.Fatalf("nobody answers for %s within %s", address, within)
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
