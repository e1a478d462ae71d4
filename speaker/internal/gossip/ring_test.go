package gossip_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/gossip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cloud is some speakers in one process, on loopback addresses.
type cloud struct {
	t     *testing.T
	mu    sync.Mutex
	known map[string][]netip.AddrPort
}

// speaker is one of them.
type speaker struct {
	*gossip.Ring
	name  string
	woken chan struct{} // holds one
	stop  func()        // ends Run and waits
	link  *gossip.Cut
}

func newCloud(t *testing.T) *cloud {
	return &cloud{t: t, known: map[string][]netip.AddrPort{}}
}

// Known are the speakers of the cloud.
func (c *cloud) Known() map[string][]netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := map[string][]netip.AddrPort{}
	for name, addresses := range c.known {
		known[name] = addresses
	}
	return known
}

// options are those of the speaker with that number, at 127.0.0.number.
func (c *cloud) options(number int) gossip.Options {
	return gossip.Options{
		Node:  fmt.Sprintf("n%d", number),
		Bind:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(number)}), 0),
		Keys:  gossip.Keys{[]byte("0123456789abcdef0123456789abcdef")},
		Label: "cluster-uid",
		Log:   testr.New(c.t),
		Known: c.Known,
		Allowed: func(name string, address netip.Addr) bool {
			return slices.ContainsFunc(c.Known()[name], func(a netip.AddrPort) bool { return a.Addr() == address })
		},
	}
}

// start starts a speaker and makes it known.
func (c *cloud) start(options gossip.Options) *speaker {
	c.t.Helper()
	s := &speaker{name: options.Node, woken: make(chan struct{}, 1), link: &gossip.Cut{}}
	options.Through(s.link)
	ring, err := gossip.New(options)
	if err != nil {
		c.t.Fatal(err)
	}
	s.Ring = ring
	c.mu.Lock()
	c.known[options.Node] = []netip.AddrPort{ring.Address()}
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := ring.Run(ctx, s.wake); err != nil {
			c.t.Error(err)
		}
	})
	s.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	c.t.Cleanup(s.stop)
	return s
}

func (s *speaker) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// await waits until the speaker is woken to a state that holds, and returns how long that took.
func (s *speaker) await(t *testing.T, what string, within time.Duration, holds func(*speaker) bool) time.Duration {
	t.Helper()
	began := time.Now()
	deadline := time.After(within)
	for !holds(s) {
		select {
		case <-s.woken:
		case <-deadline:
			t.Fatalf("%s: not within %s: %s; it has %v", s.name, within, what, s.names())
		}
	}
	return time.Since(began)
}

// names are the members a speaker sees.
func (s *speaker) names() []string {
	var names []string
	for name := range s.Members() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// sees is true if a speaker's members are just these.
func sees(names ...string) func(*speaker) bool {
	return func(s *speaker) bool { return slices.Equal(s.names(), names) }
}

func TestThreeSpeakersMeetAndHearEachOther(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	var all []*speaker
	for i := 1; i <= 3; i++ {
		all = append(all, c.start(c.options(i)))
	}
	for _, s := range all {
		t.Logf("%s saw all after %s", s.name, s.await(t, "all three", 5*time.Second, sees("n1", "n2", "n3")))
	}
	said := cluster.Member{
		Node: "n2", ProxyReady: true, Stale: true, Restarting: true, Versions: []int{1, 2},
		Links: []cluster.Link{{
			Name: "eth0", Index: 7, MAC: [6]byte{2, 0, 0, 0, 0, 1}, IPv4: true,
			Subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		}},
	}
	all[1].SetFacts(said)
	for _, s := range all {
		took := s.await(t, "what n2 says", time.Second, func(s *speaker) bool {
			return cmp.Equal(s.Members()["n2"], &said, cmpopts.EquateComparable(netip.Prefix{}))
		})
		t.Logf("%s heard n2 after %s", s.name, took)
	}
}
