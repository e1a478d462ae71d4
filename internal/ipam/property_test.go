package ipam_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

// TestRandomHistories walks the ledger and its twin through the same random history: Services come, change and go, pools
// are edited, nodes join, writes are delayed, fail or have unknown outcomes, and controllers start anew. After every step
// the invariants must hold, and every decision must be the twin's.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.editPools()
		t.Repeat(map[string]func(*rapid.T){
			"create":      func(*rapid.T) { w.create() },
			"create more": func(*rapid.T) { w.create() },
			"change":      func(*rapid.T) { w.change() },
			"delete":      func(*rapid.T) { w.remove() },
			"make anew":   func(*rapid.T) { w.makeAnew() },
			"edit pools":  func(*rapid.T) { w.editPools() },
			"edit nodes":  func(*rapid.T) { w.editNodes() },
			"relabel":     func(*rapid.T) { w.relabel() },
			"decide":      func(*rapid.T) { w.decideOldest() },
			"decide more": func(*rapid.T) { w.decideOldest() },
			"answer":      func(*rapid.T) { w.answer() },
			"land":        func(*rapid.T) { w.land() },
			"restart":     func(*rapid.T) { w.restart() },
			"settle down": func(*rapid.T) { w.settleDown() },
			"calm":        func(*rapid.T) { w.settleDown() },
			"":            func(*rapid.T) { w.check() },
		})
		w.settleDown()
	})
}

// world is the API server and the controller around the ledger.
type world struct {
	t       *rapid.T
	ledger  *ipam.Ledger
	twin    *twin
	picture ipam.Cluster
	live    map[cluster.Name]*object
	due     map[cluster.Name]bool
	writes  map[cluster.Name]*write   // under way: the Service is not decided about meanwhile
	open    map[cluster.Name][]*write // of unknown outcome: each may still land
	last    map[cluster.Name]ipam.Decision
	acted   map[cluster.Name]bool // somebody changed the Service since it was last decided about
	unmet   map[cluster.Name]bool // its wish was not met then, or has not been since
	clock   int
}

// object is a Service as the API server has it.
type object struct {
	service *cluster.Service
	version int
	spec    int // the version in which somebody last changed the Service itself
}

// write is a status on its way, bound to the object it was made from.
type write struct {
	service  *cluster.Service
	version  int
	spec     int
	decision ipam.Decision
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, live: map[cluster.Name]*object{}, acted: map[cluster.Name]bool{}}
	w.picture.Namespaces = map[string]*cluster.Namespace{"shop": {Name: "shop"}, "blog": {Name: "blog"}}
	w.begin()
	return w
}

// begin is a controller's start: from the statuses alone, in a random order.
func (w *world) begin() {
	w.ledger = ipam.NewLedger()
	w.twin = &twin{services: map[cluster.Name]*cluster.Service{}, holds: map[cluster.Name]*twinHold{}}
	w.due, w.writes, w.open = map[cluster.Name]bool{}, map[cluster.Name]*write{}, map[cluster.Name][]*write{}
	w.last = map[cluster.Name]ipam.Decision{}
	w.unmet = map[cluster.Name]bool{}
	w.ledger.SetCluster(w.picture)
	w.twin.picture = w.picture
	services := w.services()
	w.ledger.Adopt(rapid.Permutation(services).Draw(w.t, "order of the list"))
	for _, s := range services {
		w.twin.adopt(s)
		w.due[s.Name] = true
		w.unmet[s.Name] = len(s.Request) > 0 || s.RequestPool != "" // perhaps
	}
}

// adopt takes a status over.
func (t *twin) adopt(s *cluster.Service) {
	t.services[s.Name] = s
	hold := &twinHold{uid: s.UID, possible: map[netip.Addr]bool{}}
	for i, address := range s.Recorded.Addresses {
		hold.possible[address] = true
		if s.Ours && slices.Contains(s.Families, cluster.FamilyOf(address)) {
			hold.stored = append(hold.stored, given{address, s.Recorded.Pools[i]})
		}
	}
	hold.wanted = hold.stored
	t.holds[s.Name] = hold
}

// services are all Services, by name.
func (w *world) services() []*cluster.Service {
	var list []*cluster.Service
	for _, name := range w.names() {
		list = append(list, w.live[name].service)
	}
	return list
}

func (w *world) names() []cluster.Name {
	return slices.SortedFunc(maps.Keys(w.live), cluster.Name.Compare)
}

// pick draws one of the Services; false if there is none.
func (w *world) pick() (cluster.Name, bool) {
	names := w.names()
	if len(names) == 0 {
		return cluster.Name{}, false
	}
	return rapid.SampledFrom(names).Draw(w.t, "service"), true
}

func (w *world) tick() int { w.clock++; return w.clock }

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
	w.forget(name)
	w.wake(w.ledger.Release(name))
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
	delete(w.twin.holds, name)
	delete(w.twin.services, name)
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

// decideOldest decides about the oldest Service that is due and not busy.
func (w *world) decideOldest() bool {
	var oldest *cluster.Service
	for name := range w.due {
		if o := w.live[name]; o != nil && w.writes[name] == nil && (oldest == nil || age(o.service, oldest) < 0) {
			oldest = o.service
		}
	}
	if oldest == nil {
		return false
	}
	delete(w.due, oldest.Name)
	w.decide(oldest)
	return true
}

func (w *world) decide(s *cluster.Service) {
	decision := w.ledger.Decide(s)
	if again := w.ledger.Decide(s); !again.Equal(&decision) {
		w.t.Fatalf("deciding twice about %s differs: %+v and %+v", s.Name, decision, again)
	}
	w.compare(s, decision)
	w.keepsPromises(s, decision)
	w.twin.services[s.Name] = s
	w.twin.hold(s, decision)
	w.wake(w.ledger.Hold(s, decision))
	w.last[s.Name] = decision
	w.unmet[s.Name] = w.unmet[s.Name] || decision.Reason.Word == reason.RequestUnmet
	if stored(s, decision) {
		w.settle(s.Name, ipam.Written, &write{spec: w.live[s.Name].spec, decision: decision})
		return
	}
	w.writes[s.Name] = &write{service: s, version: w.live[s.Name].version, spec: w.live[s.Name].spec, decision: decision}
}

// stored is true if the status has the decision already.
func stored(s *cluster.Service, decision ipam.Decision) bool {
	switch decision.Verdict {
	case ipam.Leave:
		return true
	case ipam.Clear:
		return !s.Recorded.ByUs
	default:
		return s.Recorded.ByUs && slices.Equal(s.Recorded.Addresses, decision.Addresses) && slices.Equal(s.Recorded.Pools, decision.Pools)
	}
}

// compare holds a decision against the twin's.
func (w *world) compare(s *cluster.Service, decision ipam.Decision) {
	got := twinAnswer{decision.Verdict, decision.Addresses, decision.Pools, decision.Reason.Word}
	services := maps.Clone(w.twin.services)
	w.twin.services[s.Name] = nil
	if old := services[s.Name]; old != nil {
		w.twin.services[s.Name] = old
	} else {
		delete(w.twin.services, s.Name)
	}
	want := w.twin.decide(s)
	w.twin.services = services
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		w.t.Fatalf("the decision about %+v is not the twin's (-twin +ledger):\n%s", s, diff)
	}
}

// keepsPromises checks what must hold of a decision by itself: at most one address of each family wanted (P13), and none
// moved that nobody asked to move (P5).
func (w *world) keepsPromises(s *cluster.Service, decision ipam.Decision) {
	if decision.Verdict != ipam.Set {
		return
	}
	seen := map[cluster.Family]netip.Addr{}
	for _, address := range decision.Addresses {
		family := cluster.FamilyOf(address)
		if _, twice := seen[family]; twice || !slices.Contains(s.Families, family) {
			w.t.Fatalf("P13: %s is to hold %v, its families are %v", s.Name, decision.Addresses, s.Families)
		}
		seen[family] = address
	}
	hold := w.twin.holds[s.Name]
	if hold == nil || hold.uid != s.UID || w.acted[s.Name] || w.unmet[s.Name] {
		return
	}
	for _, one := range hold.wanted {
		if seen[cluster.FamilyOf(one.address)] != one.address {
			w.t.Fatalf("P5: %s loses %s, and nobody asked for that: %v", s.Name, one.address, decision)
		}
	}
}

func (w *world) settle(name cluster.Name, outcome ipam.Outcome, sent *write) {
	w.twin.settle(name, outcome)
	if outcome == ipam.Written {
		delete(w.open, name)
		w.acted[name] = w.acted[name] && w.live[name].spec != sent.spec
		w.unmet[name] = sent.decision.Reason.Word == reason.RequestUnmet
	}
	w.wake(w.ledger.Settle(name, outcome))
}

// apply is the API server's doing: the status is written if the object is still the one the write was made from.
func (w *world) apply(write *write) bool {
	o := w.live[write.service.Name]
	if o == nil || o.version != write.version {
		return false
	}
	written := *o.service
	written.Recorded = recordOf(o.service, write.decision)
	w.live[write.service.Name] = &object{&written, w.tick(), o.spec}
	return true
}

// answer ends a write that is under way.
func (w *world) answer() bool {
	names := slices.SortedFunc(maps.Keys(w.writes), cluster.Name.Compare)
	if len(names) == 0 {
		return false
	}
	name := rapid.SampledFrom(names).Draw(w.t, "whose write")
	switch rapid.SampledFrom([]string{"written", "written", "refused", "lost before", "lost after"}).Draw(w.t, "outcome") {
	case "written":
		w.finish(name)
	case "refused":
		w.conclude(name, ipam.NotWritten)
	case "lost before": // it may still arrive
		w.conclude(name, ipam.Unknown)
	case "lost after":
		w.apply(w.writes[name])
		w.conclude(name, ipam.Unknown)
	}
	return true
}

// finish has the API server answer a write.
func (w *world) finish(name cluster.Name) {
	if w.apply(w.writes[name]) {
		w.conclude(name, ipam.Written)
	} else {
		w.conclude(name, ipam.NotWritten)
	}
}

// conclude tells the ledger. Where the outcome is unknown the object is looked at: if it is another than the write was
// bound to, the write has happened or never will.
func (w *world) conclude(name cluster.Name, outcome ipam.Outcome) {
	write := w.writes[name]
	delete(w.writes, name)
	w.due[name] = true
	if outcome == ipam.NotWritten && w.live[name].version == write.version {
		w.live[name].version = w.tick() // it was refused because somebody else wrote something that does not matter here
	}
	if outcome != ipam.Unknown {
		w.settle(name, outcome, write)
		return
	}
	w.open[name] = append(w.open[name], write)
	w.settle(name, ipam.Unknown, write)
	if o := w.live[name]; o.version != write.version {
		w.open[name] = w.open[name][:len(w.open[name])-1]
		if slices.Equal(o.service.Recorded.Addresses, write.decision.Addresses) {
			w.settle(name, ipam.Written, write)
		} else {
			w.settle(name, ipam.NotWritten, write)
		}
	}
}

// land lets a write arrive whose outcome is unknown.
func (w *world) land() {
	for _, name := range slices.SortedFunc(maps.Keys(w.open), cluster.Name.Compare) {
		if slices.ContainsFunc(w.open[name], w.apply) {
			w.due[name] = true
			return
		}
	}
	w.t.Skip("nothing on its way")
}

// restart starts another controller. The lease has seen to it that no write of the old one is under way any more.
func (w *world) restart() {
	for _, name := range w.names() {
		if write := w.writes[name]; write != nil && rapid.Bool().Draw(w.t, "arrives") {
			w.apply(write)
		}
		for _, write := range w.open[name] {
			if rapid.Bool().Draw(w.t, "arrives too") {
				w.apply(write)
			}
		}
	}
	w.begin()
}

// settleDown lets everything run until nothing is due, and looks at what must hold then.
func (w *world) settleDown() {
	for limit := 0; ; limit++ {
		if limit > 500 {
			w.t.Fatalf("the controller does not come to rest: due %v", w.due)
		}
		if w.decideOldest() {
			continue
		}
		names := slices.SortedFunc(maps.Keys(w.writes), cluster.Name.Compare)
		if len(names) == 0 {
			break
		}
		w.finish(names[0])
	}
	w.check()
	w.checkRest()
}
