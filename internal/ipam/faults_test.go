package ipam_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

// The tests are named for the field faults in docs: small inputs that broke software of this kind.

func expect(t *testing.T, b *bench, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, b.status()); diff != "" {
		t.Errorf("statuses differ (-want +got):\n%s", diff)
	}
}

func expectWord(t *testing.T, b *bench, name string, want reason.Word) {
	t.Helper()
	if got := b.why(name); got.Word != want {
		t.Errorf("reason of %s = %v, want %s", name, got, want)
	}
}

// permutations calls try with every order of 0..n-1.
func permutations(n int, try func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var permute func(int)
	permute = func(k int) {
		if k == n {
			try(order)
			return
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			permute(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	permute(0)
}

func inOrder(services []*cluster.Service, order []int) []*cluster.Service {
	ordered := make([]*cluster.Service, len(order))
	for i, j := range order {
		ordered[i] = services[j]
	}
	return ordered
}

func TestF01RestartInAnyOrder(t *testing.T) {
	t.Parallel()
	permutations(4, func(order []int) {
		b := newBench(pool("public", "192.0.2.10"))
		b.start(inOrder([]*cluster.Service{
			service("a", 9, holding("public", "192.0.2.10")), service("b", 1), service("c", 2), service("d", 3),
		}, order)...)
		expect(t, b, map[string]string{"a": "192.0.2.10", "b": "", "c": "", "d": ""})
		expectWord(t, b, "b", reason.PoolFull)
	})
}

func TestF02RestartMovesNobody(t *testing.T) {
	t.Parallel()
	permutations(5, func(order []int) {
		b := newBench(pool("public", "192.0.2.10-192.0.2.12"))
		b.start(inOrder([]*cluster.Service{
			service("d", 0), service("e", 1),
			service("a", 2, holding("public", "192.0.2.10")),
			service("b", 3, holding("public", "192.0.2.11")),
			service("c", 4, holding("public", "192.0.2.12")),
		}, order)...)
		expect(t, b, map[string]string{"a": "192.0.2.10", "b": "192.0.2.11", "c": "192.0.2.12", "d": "", "e": ""})
		if len(b.writes) > 0 {
			t.Errorf("a restart wrote the lists of %v", b.writes)
		}
	})
}

func TestF04EventsBeforeAdoption(t *testing.T) {
	t.Parallel()
	held := service("a", 1, holding("public", "192.0.2.10"))
	b := newBench(pool("public", "192.0.2.10-192.0.2.12"))
	b.put(held) // decided about without having been adopted
	b.start(held)
	expect(t, b, map[string]string{"a": "192.0.2.10"})
}

func TestF05FamiliesAreThoseOfTheClusterIPs(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.0/24", "2001:db8::/64"))
	b.put(service("other", 0), service("first", 1), service("b", 2), service("a", 3))
	expect(t, b, map[string]string{"other": "192.0.2.0", "first": "192.0.2.1", "b": "192.0.2.2", "a": "192.0.2.3"})
	b.remove("b")
	expect(t, b, map[string]string{"other": "192.0.2.0", "first": "192.0.2.1", "a": "192.0.2.3"})
}

func TestF06NoPoolsNothingTouched(t *testing.T) {
	t.Parallel()
	b := newBench()
	for name, s := range map[string]*cluster.Service{
		"holds another's address": service("a", 1, found("192.0.2.33")),
		"waits":                   service("b", 2),
	} {
		if got := b.Decide(s); got.Verdict != ipam.Leave {
			t.Errorf("%s: verdict %v, want Leave", name, got)
		}
	}
}

func TestF08NameAloneIsNoClaim(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.10"))
	b.put(service("a", 1))
	b.setPools()
	b.remove("a")
	again := service("a", 2)
	again.UID = "made anew"
	b.put(again)
	expect(t, b, map[string]string{"a": ""})
}

func TestF09OutOfPoolIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.0/24"))
	b.start(service("a", 1, holding("public", "192.0.2.5")))
	b.setPools(pool("public", "198.51.100.0/24"))
	expect(t, b, map[string]string{"a": "192.0.2.5"})
	expectWord(t, b, "a", reason.OutOfPool)
	b.setPools()
	expect(t, b, map[string]string{"a": "192.0.2.5"})
	expectWord(t, b, "a", reason.OutOfPool)
}

func TestF10PoolEditMovesNobody(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.9-192.0.2.50"))
	b.start(service("a", 1, holding("public", "192.0.2.12")), service("b", 2, holding("public", "192.0.2.20")))
	b.setPools(pool("public", "192.0.2.9-192.0.2.39", "192.0.2.49-192.0.2.50"))
	expect(t, b, map[string]string{"a": "192.0.2.12", "b": "192.0.2.20"})
	if len(b.writes) > 0 {
		t.Errorf("the edit wrote the lists of %v", b.writes)
	}
}

func TestF20ReleaseServesWhoWaits(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.10-192.0.2.19"))
	for i := range 11 {
		b.put(service(fmt.Sprintf("s%02d", i), i))
	}
	expectWord(t, b, "s10", reason.PoolFull)
	b.remove("s00")
	if got := b.status()["s10"]; got != "192.0.2.10" {
		t.Errorf("the one that waited holds %q, want 192.0.2.10", got)
	}
}

func TestF21RequestedAddressIsHandedOn(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.0/24"))
	b.put(service("a", 1, asks("192.0.2.10")), service("b", 2, asks("192.0.2.10")))
	if why := b.why("b"); why != (reason.Reason{Word: reason.AddressInUse, Message: "192.0.2.10 is held by Service shop/a"}) {
		t.Errorf("reason of b = %v", why)
	}
	b.remove("a")
	expect(t, b, map[string]string{"b": "192.0.2.10"})
}

func TestF22LeavingFreesTheAddress(t *testing.T) {
	t.Parallel()
	leaves := func(s *cluster.Service) { s.Ours = false }
	for name, leave := range map[string]func(*bench){
		"while the controller runs": func(b *bench) {
			b.start(service("a", 1, holding("public", "192.0.2.10")), service("b", 2))
			b.change("a", leaves)
		},
		"while it was down": func(b *bench) {
			b.start(service("a", 1, holding("public", "192.0.2.10"), leaves), service("b", 2))
		},
		"by a change of type, which the watch shows as a deletion": func(b *bench) {
			b.start(service("a", 1, holding("public", "192.0.2.10")), service("b", 2))
			b.remove("a")
		},
	} {
		b := newBench(pool("public", "192.0.2.10"))
		leave(b)
		if got := b.status(); got["a"] != "" || got["b"] != "192.0.2.10" {
			t.Errorf("%s: statuses %v", name, got)
		}
	}
}

func TestF24RequestedPoolMoves(t *testing.T) {
	t.Parallel()
	b := newBench(pool("p1", "192.0.2.5"), pool("p2", "198.51.100.0/28"))
	b.start(service("a", 1, holding("p1", "192.0.2.5")), service("b", 2, asksPool("p1")))
	b.change("a", asksPool("p2"))
	expect(t, b, map[string]string{"a": "198.51.100.0", "b": "192.0.2.5"})
}

func TestF25PriorityWithoutSelectors(t *testing.T) {
	t.Parallel()
	first, second := int32(1), int32(2)
	p1, p2 := pool("z-first", "192.0.2.10"), pool("a-second", "198.51.100.10")
	p1.Priority, p2.Priority = &first, &second
	b := newBench(p2, p1, pool("a-unset", "203.0.113.10"))
	b.put(service("a", 1), service("b", 2), service("c", 3))
	expect(t, b, map[string]string{"a": "192.0.2.10", "b": "198.51.100.10", "c": "203.0.113.10"})
}

func TestF26EmptyAllocationIsNone(t *testing.T) {
	t.Parallel()
	open := pool("public", "192.0.2.0/28")
	open.Namespaces, open.NamespaceSelectors, open.ServiceSelectors = []string{}, []cluster.Selector{}, []cluster.Selector{}
	b := newBench(open)
	b.put(service("a", 1))
	expect(t, b, map[string]string{"a": "192.0.2.0"})
}

func TestF28NodeAddressIsNeverGiven(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.1-192.0.2.20"))
	b.setCluster(func(c *ipam.Cluster) { c.Nodes = []*cluster.Node{{Name: "n1", Addresses: addrs("192.0.2.5")}} })
	b.put(service("wish", 0, asks("192.0.2.5")))
	want := reason.Reason{Word: reason.AddressSkipped, Message: "192.0.2.5 of pool public is an address of node n1"}
	if got := b.why("wish"); got != want {
		t.Errorf("reason = %v, want %v", got, want)
	}
	for i := range 20 {
		b.put(service(fmt.Sprintf("s%02d", i), i+1))
	}
	given := 0
	for name, address := range b.status() {
		if address == "192.0.2.5" {
			t.Errorf("%s holds the node's address", name)
		}
		if address != "" {
			given++
		}
	}
	if given != 19 {
		t.Errorf("%d Services have an address, want 19", given)
	}
	b.setCluster(func(c *ipam.Cluster) { c.Nodes = nil })
	if got := b.status()["wish"]; got != "192.0.2.5" {
		t.Errorf("after the node has gone the wish has %q", got)
	}
}

func TestF29And30ExactRanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		text   string
		want   int64
	}{
		"not aligned": {"a range is a set of addresses, not of prefixes (F29)", "192.0.2.5-192.0.2.37", 33},
		"start = end": {"one address is a range (F30)", "192.0.2.10-192.0.2.10", 1},
		"IPv6":        {"ranges of IPv6 are counted alike", "2001:db8::5-2001:db8::37", 0x33},
	} {
		b := newBench(pool("public", c.text))
		b.setCluster(func(p *ipam.Cluster) { p.Nodes = []*cluster.Node{{Name: "n1", Addresses: addrs("192.0.2.2")}} })
		counted := usage(t, b.Ledger, "public")
		if got := counted.IPv4.Capacity + counted.IPv6.Capacity; got != c.want {
			t.Errorf("%s: capacity %d, want %d: %s", name, got, c.want, c.reason)
		}
	}
}

func TestF33OnlyDotZeroAndDot255AreAvoided(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason    string
		text      string
		avoid     bool
		first     string
		available int64
	}{
		"/27":         {"the first address of a prefix is a good one", "192.0.2.32/27", true, "192.0.2.32", 32},
		"/24":         {".0 and .255 are left out", "203.0.113.0/24", true, "203.0.113.1", 254},
		"/24 without": {"without the flag all are given", "203.0.113.0/24", false, "203.0.113.0", 256},
		"/23":         {"also in the middle", "198.51.100.0/23", true, "198.51.100.1", 508},
		"/31":         {"both ends of a small prefix", "192.0.2.254/31", true, "192.0.2.254", 1},
		"/32":         {"a pool may be empty by it", "192.0.2.255/32", true, "", 0},
		"across":      {"a range over the seam", "192.0.2.255-192.0.3.1", true, "192.0.3.1", 1},
		"IPv6":        {"IPv6 is never concerned", "2001:db8::/120", true, "2001:db8::", 256},
	} {
		p := pool("public", c.text)
		p.AvoidBuggyIPs = c.avoid
		b := newBench(p)
		wants := service("a", 1)
		wants.Families = []cluster.Family{cluster.FamilyOf(p.Ranges[0].From())}
		counted := usage(t, b.Ledger, "public")
		if got := counted.IPv4.Available + counted.IPv6.Available; got != c.available {
			t.Errorf("%s: %d available, want %d: %s", name, got, c.available, c.reason)
		}
		b.put(wants)
		if got := b.status()["a"]; got != c.first {
			t.Errorf("%s: first address %q, want %q: %s", name, got, c.first, c.reason)
		}
	}
}

func TestF34CountersSaturate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason    string
		addresses []string
		want      int64
	}{
		"a /64":         {"2^64 does not fit", []string{"2001:db8::/64", "192.0.2.0/24"}, math.MaxInt64},
		"order swapped": {"whatever comes first", []string{"192.0.2.0/24", "2001:db8::/64"}, math.MaxInt64},
		"several /65":   {"their sum does not fit", []string{"2001:db8::/65", "2001:db8:1::/65", "2001:db8:2::/65"}, math.MaxInt64},
		"one /65":       {"2^63 is one too many", []string{"2001:db8::/65"}, math.MaxInt64},
		"one /66":       {"2^62 fits", []string{"2001:db8::/66"}, 1 << 62},
		"::/0":          {"2^128 does not even fit 128 bits", []string{"::/0"}, math.MaxInt64},
	} {
		b := newBench(pool("public", c.addresses...))
		if got := usage(t, b.Ledger, "public").IPv6; got.Capacity != c.want || got.Available != c.want {
			t.Errorf("%s: %+v, want %d: %s", name, got, c.want, c.reason)
		}
		b.put(service("a", 1, families(cluster.SingleStack, cluster.IPv6)))
		if got := usage(t, b.Ledger, "public").IPv6; got.Assigned != 1 || got.Available < c.want-1 {
			t.Errorf("%s: after one was given: %+v", name, got)
		}
	}
}

func TestF37DualStackMatrix(t *testing.T) {
	t.Parallel()
	four, six := "192.0.2.0/28", "2001:db8::/124"
	both := []cluster.Family{cluster.IPv4, cluster.IPv6}
	for name, c := range map[string]struct {
		pools  []*cluster.Pool
		policy cluster.FamilyPolicy
		want   string
		word   reason.Word
	}{
		"prefer, IPv4 only":  {[]*cluster.Pool{pool("p", four)}, cluster.PreferDualStack, "192.0.2.0", reason.PartlyAllocated},
		"prefer, IPv6 only":  {[]*cluster.Pool{pool("p", six)}, cluster.PreferDualStack, "2001:db8::", reason.PartlyAllocated},
		"prefer, both":       {[]*cluster.Pool{pool("p", four, six)}, cluster.PreferDualStack, "192.0.2.0 2001:db8::", reason.Allocated},
		"prefer, two pools":  {[]*cluster.Pool{pool("p4", four), pool("p6", six)}, cluster.PreferDualStack, "192.0.2.0 2001:db8::", reason.Allocated},
		"require, IPv4 only": {[]*cluster.Pool{pool("p", four)}, cluster.RequireDualStack, "", reason.NoPool},
		"require, both":      {[]*cluster.Pool{pool("p", four, six)}, cluster.RequireDualStack, "192.0.2.0 2001:db8::", reason.Allocated},
		"require, two pools": {[]*cluster.Pool{pool("p4", four), pool("p6", six)}, cluster.RequireDualStack, "192.0.2.0 2001:db8::", reason.Allocated},
	} {
		b := newBench(c.pools...)
		b.put(service("a", 1, families(c.policy, both...)))
		if got := b.status()["a"]; got != c.want {
			t.Errorf("%s: holds %q, want %q", name, got, c.want)
		}
		expectWord(t, b, "a", c.word)
	}
}

func TestF38MissingFamilyIsAddedLater(t *testing.T) {
	t.Parallel()
	b := newBench(pool("p4", "192.0.2.0/28"))
	b.put(service("a", 1, families(cluster.PreferDualStack, cluster.IPv4, cluster.IPv6)))
	b.setPools(pool("p4", "192.0.2.0/28"), pool("p6", "2001:db8::/124"))
	expect(t, b, map[string]string{"a": "192.0.2.0 2001:db8::"})
}

func TestF40And41RequestOfIPv6(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.0/28", "2001:db8::/124"))
	b.put(service("a", 1, families(cluster.SingleStack, cluster.IPv6), asks("2001:DB8:0::0005")))
	expect(t, b, map[string]string{"a": "2001:db8::5"})
}

func TestF42RequestIsTheWholeWish(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy cluster.FamilyPolicy
		want   string
		why    reason.Reason
	}{
		"prefer": {cluster.PreferDualStack, "192.0.2.101", reason.Reason{Word: reason.Allocated, Message: "192.0.2.101 from pool public"}},
		"require": {cluster.RequireDualStack, "", reason.Reason{
			Word: reason.RequestUnmet, Message: "the request names no IPv6 address, and ipFamilyPolicy RequireDualStack needs one of each family",
		}},
	} {
		b := newBench(pool("public", "192.0.2.0/24", "2001:db8::/64"))
		b.put(service("a", 1, families(c.policy, cluster.IPv4, cluster.IPv6), asks("192.0.2.101")))
		if got := b.status()["a"]; got != c.want {
			t.Errorf("%s: holds %q, want %q", name, got, c.want)
		}
		if got := b.why("a"); got != c.why {
			t.Errorf("%s: reason %v, want %v", name, got, c.why)
		}
	}
}

func TestF44TwoServicesTwoAddresses(t *testing.T) {
	t.Parallel()
	// Both are decided about before either status is written.
	ledger := newBench(pool("public", "192.0.2.0/24")).Ledger
	given := map[string]bool{}
	for i := range 100 {
		s := service(fmt.Sprintf("s%02d", i), i)
		decision := ledger.Decide(s)
		ledger.Hold(s, decision)
		if given[decision.Addresses[0].String()] {
			t.Fatalf("%s is given twice", decision.Addresses[0])
		}
		given[decision.Addresses[0].String()] = true
	}
}

func TestF45RequestsAndAutomaticChoiceKnowEachOther(t *testing.T) {
	t.Parallel()
	wish, auto := service("a", 1, asks("192.0.2.1")), service("b", 2)
	b := newBench(pool("public", "192.0.2.1-192.0.2.9"))
	b.put(wish, auto)
	expect(t, b, map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"})
	b = newBench(pool("public", "192.0.2.1-192.0.2.9"))
	b.put(auto, wish)
	expect(t, b, map[string]string{"a": "", "b": "192.0.2.1"})
	expectWord(t, b, "a", reason.AddressInUse)
}

func TestF46ContradictionStands(t *testing.T) {
	t.Parallel()
	b := newBench(pool("p1", "192.0.2.0/28"), pool("p2", "198.51.100.0/28"))
	b.put(service("a", 1))
	for range 3 {
		b.change("a", asks("192.0.2.5"), asksPool("p2"))
		expect(t, b, map[string]string{"a": "192.0.2.0"})
		expectWord(t, b, "a", reason.RequestUnmet)
	}
}

func TestF48PoolMadeAnewHasNothingInUse(t *testing.T) {
	t.Parallel()
	for name, deletion := range map[string]func(*bench){
		"pool first":     func(b *bench) { b.setPools(); b.remove("a", "b") },
		"Services first": func(b *bench) { b.remove("a", "b"); b.setPools() },
		"in between":     func(b *bench) { b.remove("a"); b.setPools(); b.remove("b") },
	} {
		b := newBench(pool("public", "192.0.2.0/28"))
		b.put(service("a", 1), service("b", 2))
		deletion(b)
		b.setPools(pool("public", "192.0.2.0/28"))
		want := ipam.Usage{IPv4: ipam.FamilyUsage{Capacity: 16, Available: 16}}
		if diff := cmp.Diff(want, usage(t, b.Ledger, "public")); diff != "" {
			t.Errorf("%s: usage differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestF49GarbageIsDropped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record cluster.Record
		want   string
	}{
		"two of one family":   {cluster.Record{Addresses: addrs("192.0.2.3", "192.0.2.4")}, "192.0.2.3"},
		"no address":          {cluster.Record{Garbage: true}, "192.0.2.0"},
		"a family not wanted": {cluster.Record{Addresses: addrs("2001:db8::1")}, "192.0.2.0"},
	} {
		b := newBench(pool("public", "192.0.2.0/28", "2001:db8::/124"))
		b.start(service("a", 1, func(s *cluster.Service) { s.Recorded = c.record }))
		if got := b.status()["a"]; got != c.want {
			t.Errorf("%s: holds %q, want %q", name, got, c.want)
		}
		if again := b.Plan(); len(again) > 0 {
			t.Errorf("%s: not quiet: %v", name, again)
		}
		if got := usage(t, b.Ledger, "public"); got.IPv4.Assigned != 1 || got.IPv6.Assigned != 0 {
			t.Errorf("%s: counts %+v", name, got)
		}
	}
}
