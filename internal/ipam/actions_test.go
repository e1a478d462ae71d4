package ipam_test

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

// drawWish gives a Service random wishes.
func (w *world) drawWish(s *cluster.Service) {
	four, six := []cluster.Family{cluster.IPv4}, []cluster.Family{cluster.IPv6}
	both := []cluster.Family{cluster.IPv4, cluster.IPv6}
	s.FamilyPolicy = rapid.SampledFrom([]cluster.FamilyPolicy{cluster.SingleStack, cluster.SingleStack, cluster.PreferDualStack, cluster.RequireDualStack}).Draw(w.t, "policy")
	if s.Families = both; s.FamilyPolicy == cluster.SingleStack {
		s.Families = rapid.SampledFrom([][]cluster.Family{four, four, six}).Draw(w.t, "families")
	}
	s.Request, s.RequestPool = nil, rapid.SampledFrom([]string{"", "", "", "", "", "", "p1", "p2", "none"}).Draw(w.t, "pool wish")
	if rapid.IntRange(0, 4).Draw(w.t, "asks") == 0 {
		s.Request = append(s.Request, drawAddress(w.t, 4))
	}
	if rapid.IntRange(0, 7).Draw(w.t, "asks for IPv6") == 0 {
		s.Request = append(s.Request, drawAddress(w.t, 6))
	}
	s.Labels = map[string]string{"tier": rapid.SampledFrom([]string{"gold", "tin"}).Draw(w.t, "tier")}
	s.Ours = rapid.IntRange(0, 9).Draw(w.t, "ours") < 9
	s.SharingKey = rapid.SampledFrom([]string{"", "", "k", "k", "m"}).Draw(w.t, "key")
	s.Ports = rapid.SampledFrom([][]cluster.Port{{{Protocol: "TCP", Number: 80}}, {{Protocol: "TCP", Number: 443}}, {{Protocol: "UDP", Number: 80}, {Protocol: "TCP", Number: 53}}}).Draw(w.t, "ports")
	s.Policy = rapid.SampledFrom([]cluster.TrafficPolicy{cluster.PolicyCluster, cluster.PolicyCluster, cluster.PolicyLocal}).Draw(w.t, "traffic policy")
	s.Selector = rapid.SampledFrom([]string{"app=a", "app=a", "app=b"}).Draw(w.t, "selector")
	s.SharingNamespaces = rapid.SampledFrom([][]string{nil, {"blog"}, {"shop"}}).Draw(w.t, "shares with")
	s.Renumber = rapid.SampledFrom([]string{"", "", "", "1", "2"}).Draw(w.t, "renumber")
	s.ClusterAddresses = nil
	if rapid.IntRange(0, 6).Draw(w.t, "external IP") == 0 {
		s.ClusterAddresses = append(s.ClusterAddresses, drawAddress(w.t, 4))
	}
}

// drawAddress draws from the few addresses that pools are made of. The IPv4 ones lie around a .255 and a .0.
func drawAddress(t *rapid.T, family int) netip.Addr {
	i := byte(rapid.IntRange(0, 7).Draw(t, "address"))
	if family == 4 {
		return netip.AddrFrom4([4]byte{192, 0, 2 + i/4, [8]byte{252, 253, 254, 255, 0, 1, 2, 3}[i]})
	}
	return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i))
}

func (w *world) create() {
	if len(w.live) >= 8 {
		w.t.Skip("enough Services")
	}
	name := cluster.Name{
		Namespace: rapid.SampledFrom([]string{"shop", "blog"}).Draw(w.t, "namespace"),
		Name:      rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(w.t, "name"),
	}
	if w.live[name] != nil {
		w.t.Skip("exists")
	}
	w.make(name)
}

func (w *world) make(name cluster.Name) {
	now := w.tick()
	s := &cluster.Service{Name: name, UID: fmt.Sprintf("%s %d", name, now), Created: epoch().Add(time.Duration(now/3) * time.Second)}
	w.drawWish(s)
	w.live[name] = &object{s, now, now}
	w.due[name] = true
	w.acted[name] = true
}

func (w *world) change() {
	name, found := w.pick()
	if !found {
		w.t.Skip("no Service")
	}
	changed := *w.live[name].service
	w.drawWish(&changed)
	now := w.tick()
	w.live[name] = &object{&changed, now, now}
	w.due[name] = true
	w.acted[name] = true
}

func (w *world) remove() {
	name, found := w.pick()
	if !found {
		w.t.Skip("no Service")
	}
	delete(w.live, name)
	woken := w.ledger.Release(name)
	w.forget(name)
	w.wake(woken)
}

// makeAnew deletes a Service and makes another under its name before anybody has seen the deletion.
func (w *world) makeAnew() {
	name, found := w.pick()
	if !found || w.writes[name] != nil {
		w.t.Skip("no Service, or busy")
	}
	delete(w.open, name)
	w.make(name)
}

func (w *world) forget(name cluster.Name) {
	delete(w.due, name)
	delete(w.writes, name)
	delete(w.open, name)
	w.twin.forget(name)
}

// cooling is what the pools' statuses say of a ledger.
func cooling(w *world, ledger *ipam.Ledger) []ipam.Cooling {
	var list []ipam.Cooling
	for _, pool := range w.picture.Pools {
		list = append(list, usage(w, ledger, pool.Name).Cooling...)
	}
	return list
}

func (w *world) wake(names []cluster.Name) {
	if !slices.IsSortedFunc(names, func(a, b cluster.Name) int { return age(w.known(a), w.known(b)) }) {
		w.t.Fatalf("woken out of order: %v", names)
	}
	for _, name := range names {
		w.due[name] = true
	}
}

// known is a Service as it was last decided about.
func (w *world) known(name cluster.Name) *cluster.Service {
	if s := w.twin.services[name]; s != nil {
		return s
	}
	w.t.Fatalf("%s is woken and has never been decided about", name)
	return nil
}

func (w *world) setCluster() {
	w.ledger.SetCluster(w.picture)
	w.twin.picture = w.picture
	w.wake(w.ledger.Plan())
}

func (w *world) editPools() {
	var pools []*cluster.Pool
	for i, name := range []string{"p1", "p2", "p3"} {
		if rapid.IntRange(0, 4).Draw(w.t, "has "+name) == 4 {
			continue
		}
		p := &cluster.Pool{Name: name, UID: name, Created: epoch().Add(time.Duration(7*i%3) * time.Second)}
		p.AutoAssign = rapid.IntRange(0, 4).Draw(w.t, "auto") > 0
		p.Sharing = rapid.SampledFrom([]cluster.Sharing{cluster.SameNamespace, cluster.AcrossNamespaces, cluster.AcrossNamespaces, cluster.Never}).Draw(w.t, "sharing")
		p.QuotaPerNamespace = rapid.SampledFrom([]int64{0, 0, 0, 1, 2}).Draw(w.t, "quota")
		p.ReleaseDelay = rapid.SampledFrom([]time.Duration{0, 0, 10 * time.Second, time.Minute}).Draw(w.t, "release delay")
		p.AvoidBuggyIPs = rapid.Bool().Draw(w.t, "avoid buggy")
		var set netipx.IPSetBuilder
		for _, family := range []int{4, 6} {
			first := drawAddress(w.t, family)
			last := first
			for range rapid.IntRange(0, 2).Draw(w.t, "more addresses") { // few, so that they run out
				last = last.Next()
			}
			set.AddRange(netipx.IPRangeFrom(first, last))
			set.Remove(drawAddress(w.t, family))
		}
		united, err := set.IPSet()
		if err != nil {
			w.t.Fatal(err)
		}
		p.Ranges = united.Ranges()
		if rapid.IntRange(0, 3).Draw(w.t, "restricted") == 3 {
			p.NamespaceSelectors = []cluster.Selector{{{Key: "team", Operator: cluster.Exists}}}
		}
		if rapid.IntRange(0, 3).Draw(w.t, "for gold") == 3 {
			p.ServiceSelectors = []cluster.Selector{{{Key: "tier", Operator: cluster.In, Values: []string{"gold"}}}}
		}
		if rapid.IntRange(0, 9).Draw(w.t, "broken") == 9 {
			p.Problem, p.Ranges = reason.New(reason.InvalidRange, "broken"), nil
		}
		if priority := int32(rapid.IntRange(0, 3).Draw(w.t, "priority")); priority > 0 {
			p.Priority = &priority
		}
		pools = append(pools, p)
	}
	w.picture.Pools = pools
	w.setCluster()
}

func (w *world) editNodes() {
	w.picture.Nodes, w.picture.ServiceCIDRs = nil, nil
	for i := range rapid.IntRange(0, 2).Draw(w.t, "nodes") {
		node := &cluster.Node{Name: fmt.Sprintf("n%d", i), Addresses: []netip.Addr{drawAddress(w.t, 4), drawAddress(w.t, 6)}}
		if rapid.IntRange(0, 3).Draw(w.t, "pods") == 0 {
			node.PodCIDRs = []netip.Prefix{netip.PrefixFrom(drawAddress(w.t, 4), 31).Masked()}
		}
		w.picture.Nodes = append(w.picture.Nodes, node)
	}
	w.picture.Gateways = nil
	if rapid.IntRange(0, 3).Draw(w.t, "gateway") == 0 {
		w.picture.Gateways = []ipam.Gateway{{Address: drawAddress(w.t, 4), Node: "n0"}}
	}
	if rapid.IntRange(0, 3).Draw(w.t, "service CIDR") == 0 {
		w.picture.ServiceCIDRs = []netip.Prefix{netip.PrefixFrom(drawAddress(w.t, 6), 127).Masked()}
	}
	w.setCluster()
}

func (w *world) relabel() {
	namespace := &cluster.Namespace{Name: "shop"}
	if rapid.Bool().Draw(w.t, "team") {
		namespace.Labels = map[string]string{"team": "shop"}
	}
	w.picture.Namespaces = map[string]*cluster.Namespace{"shop": namespace, "blog": {Name: "blog"}}
	w.setCluster()
}

func (w *world) editReservations() {
	w.picture.Reservations = nil
	for i := range rapid.IntRange(0, 2).Draw(w.t, "reservations") {
		name := cluster.Name{Namespace: "shop", Name: rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "for")}
		r := &cluster.Reservation{Name: fmt.Sprintf("r%d", i), UID: "r", Created: epoch(), Service: name}
		if rapid.IntRange(0, 5).Draw(w.t, "broken") == 5 {
			r.Problem = reason.New(reason.InvalidRange, "broken")
		} else {
			first := drawAddress(w.t, rapid.SampledFrom([]int{4, 4, 6}).Draw(w.t, "family"))
			last := first
			if rapid.Bool().Draw(w.t, "two") {
				last = first.Next()
			}
			r.Ranges = []netipx.IPRange{netipx.IPRangeFrom(first, last)}
		}
		w.picture.Reservations = append(w.picture.Reservations, r)
	}
	w.setCluster()
}

func (w *world) timePasses() {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(w.t, "seconds")) * time.Second)
	w.twin.tick(w.now)
	w.wake(w.ledger.Tick(w.now))
}
