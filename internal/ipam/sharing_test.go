package ipam_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

// shares gives a Service a sharing key and ports, each NUMBER/PROTOCOL.
func shares(key string, ports ...string) func(*cluster.Service) {
	return func(s *cluster.Service) {
		s.SharingKey, s.Ports = key, nil
		for _, text := range ports {
			var port cluster.Port
			if _, err := fmt.Sscanf(strings.ReplaceAll(text, "/", " "), "%d %s", &port.Number, &port.Protocol); err != nil {
				panic(err)
			}
			s.Ports = append(s.Ports, port)
		}
	}
}

func local(selector string) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Policy, s.Selector = cluster.PolicyLocal, selector }
}

func in(namespace string) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Name.Namespace = namespace }
}

func TestF12SharersAfterARestart(t *testing.T) {
	t.Parallel()
	for size := 2; size <= 5; size++ {
		permutations(size, func(order []int) {
			var services []*cluster.Service
			want := map[string]string{}
			for i := range size {
				name := fmt.Sprintf("s%d", i)
				services = append(services, service(name, i, shares("k", fmt.Sprintf("%d/TCP", 80+i)), holding("public", "192.0.2.10")))
				want[name] = "192.0.2.10"
			}
			b := newBench(pool("public", "192.0.2.10-192.0.2.20"))
			b.start(inOrder(services, order)...)
			expect(t, b, want)
			if len(b.writes) > 0 {
				t.Errorf("%d sharers: a restart wrote %v", size, b.writes)
			}
		})
	}
}

func TestF13OneKeyTwoAddresses(t *testing.T) {
	t.Parallel()
	want := map[string]string{"a": "192.0.2.10", "b": "192.0.2.11", "c": "192.0.2.10"}
	b := newBench(pool("public", "192.0.2.10-192.0.2.20"))
	b.put(service("a", 1, shares("k", "80/TCP")), service("b", 2, shares("k", "80/TCP")), service("c", 3, shares("k", "443/TCP")))
	expect(t, b, want)
	var services []*cluster.Service
	for _, s := range b.services {
		services = append(services, s)
	}
	permutations(3, func(order []int) {
		again := newBench(pool("public", "192.0.2.10-192.0.2.20"))
		again.start(inOrder(services, order)...)
		expect(t, again, want)
		if len(again.writes) > 0 {
			t.Errorf("a restart wrote %v", again.writes)
		}
	})
}

func TestF14SharerComesBack(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.10-192.0.2.20"))
	b.put(service("a", 1, shares("k", "80/TCP")), service("b", 2, shares("k", "443/TCP")))
	b.remove("b")
	b.put(service("b", 3, shares("k", "443/TCP")))
	expect(t, b, map[string]string{"a": "192.0.2.10", "b": "192.0.2.10"})
}

// TestWhoComesWithAnAddressInvites: a Service that comes with an address in its status, as one does that another controller
// has written, wakes who can share it, like one that is given the address (rule P16).
func TestWhoComesWithAnAddressInvites(t *testing.T) {
	t.Parallel()
	public := pool("public", "192.0.2.10")
	public.ReleaseDelay = time.Minute
	b := newBench(public)
	b.put(service("old", 1), service("waits", 2, shares("k", "80/TCP")))
	b.remove("old") // its address cools down
	b.put(service("comes", 3, shares("k", "443/TCP"), holding("public", "192.0.2.10")))
	expect(t, b, map[string]string{"waits": "192.0.2.10", "comes": "192.0.2.10"})
}

func TestF16SharingIsBrokenAndMended(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.10-192.0.2.20"))
	b.put(service("a", 1, shares("k", "80/TCP")), service("b", 2, shares("k", "443/TCP"), asks("192.0.2.10")))
	expect(t, b, map[string]string{"a": "192.0.2.10", "b": "192.0.2.10"})
	b.change("b", local("app=web"))
	expect(t, b, map[string]string{"a": "192.0.2.10", "b": ""})
	expectWord(t, b, "b", reason.SharingRefused)
	b.change("a", local("app=web"))
	expect(t, b, map[string]string{"a": "192.0.2.10", "b": "192.0.2.10"})
}

// TestF17WhoCanShare is the truth table: key, ports, policy and selector of a second Service that asks for the first one's
// address.
func TestF17WhoCanShare(t *testing.T) {
	t.Parallel()
	first := []func(*cluster.Service){shares("k", "80/TCP"), local("app=web")}
	for name, c := range map[string]struct {
		edits []func(*cluster.Service)
		word  reason.Word // "" if it can share
		text  string      // in the message, besides the holder's name
	}{
		"another port":             {[]func(*cluster.Service){shares("k", "443/TCP"), local("app=web")}, "", ""},
		"the same port":            {[]func(*cluster.Service){shares("k", "80/TCP"), local("app=web")}, reason.SharingRefused, "80/TCP"},
		"one of several":           {[]func(*cluster.Service){shares("k", "443/TCP", "80/TCP"), local("app=web")}, reason.SharingRefused, "80/TCP"},
		"the same number by UDP":   {[]func(*cluster.Service){shares("k", "80/UDP"), local("app=web")}, "", ""},
		"another key":              {[]func(*cluster.Service){shares("m", "443/TCP"), local("app=web")}, reason.AddressInUse, ""},
		"no key":                   {[]func(*cluster.Service){shares("", "443/TCP"), local("app=web")}, reason.AddressInUse, ""},
		"another policy":           {[]func(*cluster.Service){shares("k", "443/TCP")}, reason.SharingRefused, "externalTrafficPolicy"},
		"other pods":               {[]func(*cluster.Service){shares("k", "443/TCP"), local("app=blog")}, reason.SharingRefused, "select different pods"},
		"another policy, no key":   {[]func(*cluster.Service){shares("", "443/TCP")}, reason.AddressInUse, ""},
		"the same port, other pod": {[]func(*cluster.Service){shares("k", "80/TCP"), local("app=blog")}, reason.SharingRefused, "80/TCP"},
	} {
		b := newBench(pool("public", "192.0.2.10-192.0.2.20"))
		b.put(service("a", 1, first...), service("b", 2, append(c.edits, asks("192.0.2.10"))...))
		want := map[string]string{"a": "192.0.2.10", "b": "192.0.2.10"}
		if c.word != "" {
			want["b"] = ""
		}
		if diff := cmp.Diff(want, b.status()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		why := b.why("b")
		if c.word != "" && (why.Word != c.word || !strings.Contains(why.Message, "shop/a") || !strings.Contains(why.Message, c.text)) {
			t.Errorf("%s: reason %v", name, why)
		}
	}
}

func TestF17ClusterSharersMaySelectAnyPods(t *testing.T) {
	t.Parallel()
	selects := func(selector string) func(*cluster.Service) {
		return func(s *cluster.Service) { s.Selector = selector }
	}
	b := newBench(pool("public", "192.0.2.10-192.0.2.20"))
	b.put(service("a", 1, shares("k", "80/TCP"), selects("app=web")), service("b", 2, shares("k", "443/TCP"), selects("app=blog")))
	expect(t, b, map[string]string{"a": "192.0.2.10", "b": "192.0.2.10"})
}

func TestF18TwoProtocolsOnePort(t *testing.T) {
	t.Parallel()
	six := families(cluster.SingleStack, cluster.IPv6)
	permutations(4, func(order []int) {
		all := []*cluster.Service{
			service("tcp4", 1, shares("k4", "443/TCP"), local("app=web")), service("udp4", 1, shares("k4", "443/UDP"), local("app=web")),
			service("tcp6", 1, six, shares("k6", "443/TCP"), local("app=web")), service("udp6", 1, six, shares("k6", "443/UDP"), local("app=web")),
		}
		b := newBench(pool("public", "192.0.2.20-192.0.2.29", "2001:db8::20-2001:db8::29"))
		b.put(inOrder(all, order)...)
		expect(t, b, map[string]string{"tcp4": "192.0.2.20", "udp4": "192.0.2.20", "tcp6": "2001:db8::20", "udp6": "2001:db8::20"})
	})
}

func TestF36SharedAddressCountsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.10-192.0.2.13"))
	b.put(service("a", 1, shares("k", "80/TCP")), service("b", 2, shares("k", "443/TCP")))
	for _, step := range []struct {
		gone     string
		assigned int64
	}{{"", 1}, {"a", 1}, {"b", 0}} {
		if step.gone != "" {
			b.remove(step.gone)
		}
		want := ipam.FamilyUsage{Capacity: 4, Assigned: step.assigned, Available: 4 - step.assigned}
		if got := usage(t, b.Ledger, "public").IPv4; got != want {
			t.Errorf("without %q: %+v, want %+v", step.gone, got, want)
		}
	}
}

func TestF50PortFiftyThree(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.10"))
	b.put(service("dns", 1, shares("k", "53/TCP", "53/UDP")), service("other", 2, shares("k", "53/UDP"), asks("192.0.2.10")))
	expect(t, b, map[string]string{"dns": "192.0.2.10", "other": ""})
	if why := b.why("other"); why.Word != reason.SharingRefused || !strings.Contains(why.Message, "53/UDP") {
		t.Errorf("reason %v", why)
	}
}

func TestA7PoolsSayWhoShares(t *testing.T) {
	t.Parallel()
	abroad := func(s *cluster.Service) { s.SharingNamespaces = []string{"blog"} }
	for name, c := range map[string]struct {
		sharing cluster.Sharing
		host    func(*cluster.Service)
		guest   string // its namespace
		shared  bool
	}{
		"one namespace":                    {cluster.SameNamespace, nil, "shop", true},
		"another namespace":                {cluster.SameNamespace, abroad, "blog", false},
		"across, without the host's leave": {cluster.AcrossNamespaces, nil, "blog", false},
		"across":                           {cluster.AcrossNamespaces, abroad, "blog", true},
		"across, another one":              {cluster.AcrossNamespaces, abroad, "news", false},
		"across, at home":                  {cluster.AcrossNamespaces, nil, "shop", true},
		"never":                            {cluster.Never, abroad, "shop", false},
	} {
		p := pool("public", "192.0.2.10")
		p.Sharing = c.sharing
		b := newBench(p)
		host := service("host", 1, shares("k", "80/TCP"))
		if c.host != nil {
			c.host(host)
		}
		b.put(host, service("guest", 2, shares("k", "443/TCP"), in(c.guest)))
		want := map[string]string{"host": "192.0.2.10", "guest": ""}
		if c.shared {
			want["guest"] = "192.0.2.10"
		}
		if diff := cmp.Diff(want, b.status()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestA7EditsOfSharingMoveNobody: who shares an address goes on when the pool forbids it, and is told; nobody else may
// join.
func TestA7EditsOfSharingMoveNobody(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.10-192.0.2.20"))
	b.put(service("a", 1, shares("k", "80/TCP")), service("b", 2, shares("k", "443/TCP")))
	never := pool("public", "192.0.2.10-192.0.2.20")
	never.Sharing = cluster.Never
	b.writes = nil
	b.setPools(never)
	b.put(service("c", 3, shares("k", "8080/TCP")))
	expect(t, b, map[string]string{"a": "192.0.2.10", "b": "192.0.2.10", "c": "192.0.2.11"})
	expectWord(t, b, "a", reason.Allocated)
	expectWord(t, b, "b", reason.SharingNotAllowed)
	b.remove("a")
	expectWord(t, b, "b", reason.Allocated)
}

// TestA7ChangeCostsWhoChanged: of two that share an address the one that changes gets another, whichever came first.
func TestA7ChangeCostsWhoChanged(t *testing.T) {
	t.Parallel()
	for _, changed := range []string{"a", "b"} {
		b := newBench(pool("public", "192.0.2.10-192.0.2.20"))
		b.put(service("a", 1, shares("k", "80/TCP")), service("b", 2, shares("k", "443/TCP")))
		edited := *b.services[cluster.Name{Namespace: "shop", Name: changed}]
		shares("k", "80/TCP", "443/TCP")(&edited)
		decided := b.Decide(&edited)
		b.put(&edited)
		want := map[string]string{"a": "192.0.2.10", "b": "192.0.2.10"}
		want[changed] = "192.0.2.11"
		expect(t, b, want)
		if decided.Reason.Word != reason.SharingBroken {
			t.Errorf("%s changed: reason %v", changed, decided.Reason)
		}
	}
}

func TestA8QuotaOfANamespace(t *testing.T) {
	t.Parallel()
	p := pool("public", "192.0.2.10-192.0.2.20", "2001:db8::10-2001:db8::20")
	p.QuotaPerNamespace = 2
	b := newBench(p)
	b.put(
		service("a", 1), service("b", 2), service("c", 3), service("d", 4, asks("192.0.2.15")),
		service("six", 5, families(cluster.SingleStack, cluster.IPv6)), service("other", 6, in("blog")),
	)
	expect(t, b, map[string]string{"a": "192.0.2.10", "b": "192.0.2.11", "c": "", "d": "", "six": "2001:db8::10", "other": "192.0.2.12"})
	for _, name := range []string{"c", "d"} {
		if why := b.why(name); why.Word != reason.QuotaExceeded || !strings.Contains(why.Message, "namespace shop holds 2 IPv4 addresses of pool public, and its quota is 2") {
			t.Errorf("%s: reason %v", name, why)
		}
	}
	b.change("b", asks("192.0.2.19")) // it takes no more than it had
	b.remove("a")                     // the first in line gets the place
	expect(t, b, map[string]string{"b": "192.0.2.19", "c": "192.0.2.10", "d": "", "six": "2001:db8::10", "other": "192.0.2.12"})
	b.writes = nil
	smaller := *p
	smaller.QuotaPerNamespace = 1
	b.setPools(&smaller)
	if len(b.writes) > 0 {
		t.Errorf("an edit of the quota moved %v", b.writes)
	}
}

func TestA9ReservedForOneService(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.10-192.0.2.12"))
	b.setCluster(func(c *ipam.Cluster) {
		c.Reservations = []*cluster.Reservation{{
			Name: "web", Created: epoch(), Service: cluster.Name{Namespace: "shop", Name: "web"}, Ranges: pool("", "192.0.2.10-192.0.2.11").Ranges,
		}}
	})
	b.put(service("a", 1), service("b", 2), service("c", 3, asks("192.0.2.11")), service("web", 4))
	expect(t, b, map[string]string{"a": "192.0.2.12", "b": "", "c": "", "web": "192.0.2.10"})
	expectWord(t, b, "b", reason.PoolFull)
	if why := b.why("c"); why.Word != reason.Reserved || !strings.Contains(why.Message, "shop/web") {
		t.Errorf("reason %v", why)
	}
	b.writes = nil
	b.setCluster(func(c *ipam.Cluster) { c.Reservations = nil })
	expect(t, b, map[string]string{"a": "192.0.2.12", "b": "192.0.2.11", "c": "", "web": "192.0.2.10"}) // b is older than c
}

// TestA9ReservationWaits: what is reserved and held by another stays there; its Service waits for it and takes no other.
func TestA9ReservationWaits(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.10-192.0.2.12"))
	b.put(service("a", 1))
	b.setCluster(func(c *ipam.Cluster) {
		c.Reservations = []*cluster.Reservation{{
			Name: "web", Created: epoch(), Service: cluster.Name{Namespace: "shop", Name: "web"}, Ranges: pool("", "192.0.2.10").Ranges,
		}}
	})
	b.put(service("web", 2))
	expect(t, b, map[string]string{"a": "192.0.2.10", "web": ""})
	if problem, known := b.Reservation("web"); !known || problem == nil || problem.Word != reason.AddressInUse || !strings.Contains(problem.Message, "shop/a") {
		t.Errorf("the reservation: %v", problem)
	}
	b.remove("a")
	expect(t, b, map[string]string{"web": "192.0.2.10"})
	if problem, known := b.Reservation("web"); !known || problem != nil {
		t.Errorf("the reservation: %v", problem)
	}
}

func TestA9ReleaseDelay(t *testing.T) {
	t.Parallel()
	p := pool("public", "192.0.2.10")
	p.ReleaseDelay = time.Minute
	b := newBench(p)
	b.Tick(epoch())
	b.put(service("a", 1))
	b.remove("a")
	b.put(service("b", 2), service("c", 3, asks("192.0.2.10")))
	expect(t, b, map[string]string{"b": "", "c": ""})
	if why := b.why("c"); why.Word != reason.CoolingDown || !strings.Contains(why.Message, "shop/a") || !strings.Contains(why.Message, "2026-01-01T12:01:00Z") {
		t.Errorf("reason %v", why)
	}
	cooling := usage(t, b.Ledger, "public").Cooling
	if end, cools := b.NextExpiry(); len(cooling) != 1 || !cools || !end.Equal(epoch().Add(time.Minute)) {
		t.Fatalf("cooling: %v, until %v", cooling, end)
	}

	restarted := newBench(p) // from the pool's status alone
	restarted.Tick(epoch().Add(time.Second))
	restarted.AdoptCooling(cooling)
	restarted.start(service("b", 2))
	expect(t, restarted, map[string]string{"b": ""})

	b.drain(b.Tick(epoch().Add(59 * time.Second)))
	expect(t, b, map[string]string{"b": "", "c": ""})
	b.drain(b.Tick(epoch().Add(60 * time.Second)))
	expect(t, b, map[string]string{"b": "192.0.2.10", "c": ""})

	restarted.put(service("a", 9)) // the same name has it back before
	expect(t, restarted, map[string]string{"a": "192.0.2.10", "b": ""})
}

func TestA10MovesByConsentOnly(t *testing.T) {
	t.Parallel()
	consent := func(value string) func(*cluster.Service) {
		return func(s *cluster.Service) { s.Renumber = value }
	}
	b := newBench(pool("public", "192.0.2.0/28"))
	b.put(service("a", 1, asks()), service("b", 2, consent("early")))
	b.setPools(pool("public", "198.51.100.0/28"))
	expect(t, b, map[string]string{"a": "192.0.2.0", "b": "192.0.2.1"}) // an old consent is used up
	expectWord(t, b, "b", reason.OutOfPool)
	b.change("a", consent("1"))
	expect(t, b, map[string]string{"a": "198.51.100.0", "b": "192.0.2.1"})
	b.setPools(pool("public", "203.0.113.0/28"))
	expect(t, b, map[string]string{"a": "198.51.100.0", "b": "192.0.2.1"})
	b.change("a", consent("2"))
	expect(t, b, map[string]string{"a": "203.0.113.0", "b": "192.0.2.1"})
}

// TestA10ConsentWaits: a consent that cannot be followed takes nothing away and is followed as soon as it can be.
func TestA10ConsentWaits(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.1-192.0.2.2"))
	b.put(service("a", 1), service("holder", 2))
	b.setPools(pool("public", "192.0.2.2"))
	b.change("a", func(s *cluster.Service) { s.Renumber = "1" })
	expect(t, b, map[string]string{"a": "192.0.2.1", "holder": "192.0.2.2"})
	expectWord(t, b, "a", reason.RequestUnmet)
	b.remove("holder")
	expect(t, b, map[string]string{"a": "192.0.2.2"})
}

func TestA14ConsentTakesOverAForeignAddress(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.1"))
	b.start(service("holder", 1), service("a", 2, found("203.0.113.9")))
	b.change("a", func(s *cluster.Service) { s.Renumber = "yes" })
	expect(t, b, map[string]string{"holder": "192.0.2.1", "a": "203.0.113.9"})
	expectWord(t, b, "a", reason.ForeignAddress)
	b.remove("holder")
	expect(t, b, map[string]string{"a": "192.0.2.1"})
}

func TestA5GatewayIsSkippedAndShown(t *testing.T) {
	t.Parallel()
	b := newBench(pool("public", "192.0.2.0/30"))
	b.setCluster(func(c *ipam.Cluster) {
		c.Gateways = []ipam.Gateway{{Address: addr("192.0.2.0"), Node: "n1"}}
		c.Nodes = []*cluster.Node{{Name: "n1", Addresses: addrs("192.0.2.1")}}
	})
	b.put(service("a", 1), service("b", 2, asks("192.0.2.0")))
	expect(t, b, map[string]string{"a": "192.0.2.2", "b": ""})
	want := []ipam.Skipped{
		{Range: parseRange("192.0.2.0"), Why: "the default gateway of node n1"},
		{Range: parseRange("192.0.2.1"), Why: "an address of node n1"},
	}
	if diff := cmp.Diff(want, usage(t, b.Ledger, "public").Skipped, compareAddr(), cmp.Comparer(func(a, b ipam.Skipped) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}
