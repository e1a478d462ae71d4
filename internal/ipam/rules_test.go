package ipam_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

func TestA12DuplicateMovesTheYounger(t *testing.T) {
	t.Parallel()
	since := func(seconds int) func(*cluster.Service) {
		return func(s *cluster.Service) { s.Recorded.Since = epoch().Add(time.Duration(seconds) * time.Second) }
	}
	permutations(3, func(order []int) {
		b := newBench(pool("public", "192.0.2.10-192.0.2.12"))
		b.start(inOrder([]*cluster.Service{
			service("older", 1, holding("public", "192.0.2.10"), since(20)),
			service("first", 5, holding("public", "192.0.2.10"), since(10)),
			service("other", 9, holding("public", "192.0.2.11")),
		}, order)...)
		expect(t, b, map[string]string{"first": "192.0.2.10", "older": "192.0.2.12", "other": "192.0.2.11"})
	})
}

// TestA5OwnExternalIPIsSkippedAtOnce: what a Service says of itself counts for itself, also where it has only now said so.
func TestA5OwnExternalIPIsSkippedAtOnce(t *testing.T) {
	t.Parallel()
	external := func(text string) func(*cluster.Service) {
		return func(s *cluster.Service) { s.ClusterAddresses = addrs(text) }
	}
	const skipped = "192.0.2.10 of pool public is a cluster or external IP of Service shop/a"
	for name, c := range map[string]struct {
		reason string
		first  []func(*cluster.Service) // of a Service that waits at first; none for one that is new
		edits  []func(*cluster.Service)
		want   string
		word   reason.Word
	}{
		"new": {
			"the lowest address is passed over", nil,
			[]func(*cluster.Service){external("192.0.2.10")}, "192.0.2.11", reason.Allocated,
		},
		"new, by request": {
			"a request opens no doors", nil,
			[]func(*cluster.Service){external("192.0.2.10"), asks("192.0.2.10")}, "", reason.AddressSkipped,
		},
		"changed": {
			"the same edit asks for an address and makes it an external IP", []func(*cluster.Service){asks("10.0.0.1")},
			[]func(*cluster.Service){external("192.0.2.10"), asks("192.0.2.10")}, "", reason.AddressSkipped,
		},
		"changed, with another address": {
			"what it had itself until now is free", []func(*cluster.Service){external("192.0.2.10"), asks("10.0.0.1")},
			[]func(*cluster.Service){external("192.0.2.11"), asks()}, "192.0.2.10", reason.Allocated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(pool("public", "192.0.2.10-192.0.2.11"))
			if c.first != nil {
				b.put(service("a", 1, c.first...))
				b.change("a", c.edits...)
			} else {
				b.put(service("a", 1, c.edits...))
			}
			expect(t, b, map[string]string{"a": c.want})
			expectWord(t, b, "a", c.word)
			if why := b.why("a"); c.word == reason.AddressSkipped && why.Message != skipped {
				t.Errorf("%s: the message is %q, want %q", c.reason, why.Message, skipped)
			}
		})
	}
}

// TestP8ManyPoolsAreCounted: the API server refuses a status whose condition is too long, and so the Service would get none.
func TestP8ManyPoolsAreCounted(t *testing.T) {
	t.Parallel()
	var pools []*cluster.Pool
	for i := range 2000 {
		pools = append(pools, pool(fmt.Sprintf("a-pool-with-quite-a-long-name-%04d", i), fmt.Sprintf("10.0.%d.%d", i/256, i%256)))
	}
	b := newBench(pools...)
	b.setCluster(func(c *ipam.Cluster) { c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	b.put(service("a", 1))
	message := b.why("a").Message
	if len(message) > 1000 || !strings.HasSuffix(message, "-0009 and 1990 more have no free IPv4 address for this Service") {
		t.Errorf("a message of %d bytes: %.1000s", len(message), message)
	}
}

func TestA14ForeignAddressIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "198.51.100.0/28"))
	b.start(service("a", 1, found("192.0.2.33")))
	expect(t, b, map[string]string{"a": "192.0.2.33"})
	b.change("a", asks("198.51.100.5"))
	expect(t, b, map[string]string{"a": "192.0.2.33"})
	expectWord(t, b, "a", reason.ForeignAddress)
	b.change("a", func(s *cluster.Service) { s.Request = nil })
	b.setPools(pool("public", "198.51.100.0/28"), pool("theirs", "192.0.2.0/24"))
	expect(t, b, map[string]string{"a": "192.0.2.33"})
	expectWord(t, b, "a", reason.Allocated)
}

// TestP5NobodyLosesAnAddressToAForeignOne: another program writes an address into a status that a Service holds by our hand, and
// that Berth would not give to the other, since its pool is not open to it or is gone.
func TestP5NobodyLosesAnAddressToAForeignOne(t *testing.T) {
	t.Parallel()
	closed := pool("closed", "192.0.2.10")
	closed.Namespaces = []string{"shop"}
	elsewhere := func(s *cluster.Service) { s.Name.Namespace = "blog" }
	for name, pools := range map[string][]*cluster.Pool{
		"the pool is not open": {closed, pool("public", "192.0.2.20")}, "the pool is gone": {pool("public", "192.0.2.20")},
	} {
		holder := service("holder", 5, holding("closed", "192.0.2.10"))
		b := newBench(pools...)
		b.start(holder)
		b.put(service("theirs", 1, elsewhere, found("192.0.2.10")))
		b.change("holder", func(s *cluster.Service) { s.Labels = map[string]string{"any": "edit"} })
		want := map[string]string{"holder": "192.0.2.10", "theirs": "192.0.2.10"}
		expect(t, b, want)
		if why := b.why("holder"); why.Word != reason.Allocated && why.Word != reason.OutOfPool {
			t.Errorf("%s: %v", name, why)
		}
		again := newBench(pools...)
		again.start(service("theirs", 1, elsewhere, found("192.0.2.10")), holder)
		expect(t, again, want)
	}
}

// TestA14NodeAddressesAreForeign: other load balancers put the addresses of nodes into statuses. They are left alone also
// where a pool contains them, since no pool gives them.
func TestA14NodeAddressesAreForeign(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"a node": "192.0.2.1", "a gateway": "192.0.2.2", "a Service's": "192.0.2.9", "a pod's": "192.0.2.13"} {
		b := newBench(pool("public", "192.0.2.0/28"))
		b.setCluster(func(c *ipam.Cluster) {
			c.Gateways = []ipam.Gateway{{Address: addr("192.0.2.2"), Node: "n1"}}
			c.Nodes = []*cluster.Node{{Name: "n1", Addresses: addrs("192.0.2.1"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.12/30")}}}
			c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.8/30")}
		})
		b.start(service("a", 1, found(address)))
		if why := b.why("a"); why.Word != reason.ForeignAddress || !strings.Contains(why.Message, address) {
			t.Errorf("%s: %v", name, why)
		}
		expect(t, b, map[string]string{"a": address})
		b.change("a", func(s *cluster.Service) { s.Renumber = "yes" })
		expect(t, b, map[string]string{"a": "192.0.2.0"})
	}
	// One that Berth gave stays, should a node come with it.
	b := newBench(pool("public", "192.0.2.0/28"))
	b.put(service("a", 1))
	b.setCluster(func(c *ipam.Cluster) { c.Nodes = []*cluster.Node{{Name: "n1", Addresses: addrs("192.0.2.0")}} })
	expect(t, b, map[string]string{"a": "192.0.2.0"})
	expectWord(t, b, "a", reason.Allocated)
}

func TestA3WishTakesNothingAway(t *testing.T) {
	t.Parallel()
	closed, public := pool("closed", "203.0.113.0/28"), pool("public", "192.0.2.0/28")
	closed.Namespaces, closed.Excluded = []string{"other"}, pool("", "203.0.113.32/28").Ranges
	public.Excluded = pool("", "192.0.2.16/28").Ranges
	for name, c := range map[string]struct {
		edit func(*cluster.Service)
		word string // of the refusal, within the message
	}{
		"in no pool":          {asks("10.0.0.1"), "NotInPool"},
		"excluded":            {asks("192.0.2.17"), "AddressSkipped: 192.0.2.17 is left out by pool public: exclude"},
		"excluded elsewhere":  {asks("203.0.113.33"), "NotInPool: 203.0.113.33 is in no pool"},
		"in use":              {asks("192.0.2.2"), "AddressInUse"},
		"pool not open":       {asks("203.0.113.1"), "PoolNotOpen"},
		"no such pool":        {asksPool("none"), "NoPool"},
		"closed pool by name": {asksPool("closed"), "PoolNotOpen"},
		"another family":      {asks("2001:db8::1"), "RequestUnmet"},
		"not readable": {func(s *cluster.Service) {
			s.RequestProblem = reason.New(reason.InvalidRequest, "spec.loadBalancerIP: nonsense")
		}, "InvalidRequest"},
	} {
		b := newBench(public, closed)
		b.start(service("a", 1, holding("public", "192.0.2.1")), service("b", 2, holding("public", "192.0.2.2")))
		b.change("a", c.edit)
		expect(t, b, map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"})
		got := b.why("a")
		if prefix := "keeps 192.0.2.1 from pool public; " + c.word; got.Word != reason.RequestUnmet || !strings.HasPrefix(got.Message, prefix) {
			t.Errorf("%s: reason %v", name, got)
		}
	}
}

func TestA6OverlapStaysWithTheOlderPool(t *testing.T) {
	t.Parallel()
	older, newer := pool("z-older", "192.0.2.0/30"), pool("a-newer", "192.0.2.2-192.0.2.5")
	newer.Created = epoch().Add(time.Hour)
	b := newBench(newer, older)
	if got := usage(t, b.Ledger, "a-newer"); got.Overlap == nil || got.IPv4 != (ipam.FamilyUsage{Capacity: 4, Available: 2}) {
		t.Errorf("the newer pool: %+v", got)
	}
	if got := usage(t, b.Ledger, "z-older"); got.Overlap != nil || got.IPv4 != (ipam.FamilyUsage{Capacity: 4, Available: 4}) {
		t.Errorf("the older pool: %+v", got)
	}
	b.put(service("a", 1, asksPool("a-newer")))
	expect(t, b, map[string]string{"a": "192.0.2.4"})
}

func TestP16PromiseOfAPlanIsPassedOn(t *testing.T) {
	t.Parallel()
	forGold := func(p *cluster.Pool) *cluster.Pool {
		p.ServiceSelectors = []cluster.Selector{{{Key: "tier", Operator: cluster.In, Values: []string{"gold"}}}}
		return p
	}
	gold := func(s *cluster.Service) { s.Labels = map[string]string{"tier": "gold"} }
	for name, act := range map[string]func(*ipam.Ledger, *cluster.Service) []cluster.Name{
		"the promised one wants something else": func(l *ipam.Ledger, s *cluster.Service) []cluster.Name {
			changed := *s
			changed.Request = addrs("10.0.0.1")
			return l.Hold(&changed, l.Decide(&changed))
		},
		"the promised one is gone": func(l *ipam.Ledger, s *cluster.Service) []cluster.Name { return l.Release(s.Name) },
	} {
		ledger := ipam.NewLedger()
		ledger.SetCluster(ipam.Cluster{Pools: []*cluster.Pool{forGold(pool("p", "192.0.2.1"))}})
		promised := service("promised", 1)
		waits := service("waits", 3, gold)
		for _, s := range []*cluster.Service{service("holder", 2, gold), promised, waits} {
			ledger.Hold(s, ledger.Decide(s))
			ledger.Settle(s.Name, ipam.Written)
		}
		ledger.SetCluster(ipam.Cluster{Pools: []*cluster.Pool{pool("p", "192.0.2.1-192.0.2.2")}})
		if got := ledger.Plan(); len(got) != 1 || got[0] != promised.Name {
			t.Fatalf("%s: the plan concerns %v", name, got)
		}
		if got := act(ledger, promised); len(got) != 1 || got[0] != waits.Name {
			t.Errorf("%s: woken are %v, want the one that waits", name, got)
		}
	}
}
