package ipam_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
			"create":            func(*rapid.T) { w.create() },
			"create more":       func(*rapid.T) { w.create() },
			"change":            func(*rapid.T) { w.change() },
			"delete":            func(*rapid.T) { w.remove() },
			"make anew":         func(*rapid.T) { w.makeAnew() },
			"edit pools":        func(*rapid.T) { w.editPools() },
			"edit nodes":        func(*rapid.T) { w.editNodes() },
			"edit reservations": func(*rapid.T) { w.editReservations() },
			"time passes":       func(*rapid.T) { w.timePasses() },
			"relabel":           func(*rapid.T) { w.relabel() },
			"decide":            func(*rapid.T) { w.decideOldest() },
			"decide more":       func(*rapid.T) { w.decideOldest() },
			"answer":            func(*rapid.T) { w.answer() },
			"land":              func(*rapid.T) { w.land() },
			"restart":           func(*rapid.T) { w.restart() },
			"stray":             func(*rapid.T) { w.stray() },
			"settle down":       func(*rapid.T) { w.settleDown() },
			"calm":              func(*rapid.T) { w.settleDown() },
			"":                  func(*rapid.T) { w.check() },
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
	now     time.Time
	cools   []ipam.Cooling // as the pools' statuses say
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
	w.now = epoch()
	w.begin()
	return w
}

// begin is a controller's start: from the statuses alone, in a random order.
func (w *world) begin() {
	w.ledger = ipam.NewLedger()
	w.twin = newTwin()
	w.due, w.writes, w.open = map[cluster.Name]bool{}, map[cluster.Name]*write{}, map[cluster.Name][]*write{}
	w.last = map[cluster.Name]ipam.Decision{}
	w.unmet = map[cluster.Name]bool{}
	w.ledger.Tick(w.now)
	w.twin.now = w.now
	w.ledger.SetCluster(w.picture)
	w.twin.picture = w.picture
	w.ledger.AdoptCooling(w.cools)
	for _, one := range w.cools {
		w.twin.cooling[one.Address] = one
	}
	services := w.services()
	w.ledger.Adopt(rapid.Permutation(services).Draw(w.t, "order of the list"))
	slices.SortFunc(services, func(a, b *cluster.Service) int {
		if a == firstOf([]*cluster.Service{a, b}) {
			return -1
		}
		return 1
	})
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
	t.holds[s.Name] = hold
	for i, address := range s.Recorded.Addresses {
		hold.possible[address] = true
		delete(t.cooling, address)
		if s.Ours && slices.Contains(s.Families, cluster.FamilyOf(address)) && t.rival(s, address) == nil {
			hold.stored = append(hold.stored, given{address, s.Recorded.Pools[i]})
		}
	}
	hold.wanted = hold.stored
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
		return s.Recorded.ByUs && slices.Equal(s.Recorded.Addresses, decision.Addresses) && slices.Equal(s.Recorded.Pools, decision.Pools) &&
			s.Recorded.Renumbered == decision.Renumbered
	}
}

// compare holds a decision against the twin's.
func (w *world) compare(s *cluster.Service, decision ipam.Decision) {
	got := twinAnswer{decision.Verdict, decision.Addresses, decision.Pools, decision.Reason.Word, decision.Renumbered}
	want := w.twin.decide(s)
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
	if hold == nil || hold.uid != s.UID || w.acted[s.Name] || w.unmet[s.Name] || s.Renumber != s.Recorded.Renumbered {
		return
	}
	for _, one := range hold.wanted {
		if seen[cluster.FamilyOf(one.address)] != one.address {
			w.t.Fatalf("P5: %s loses %s, and nobody asked for that: %v", s.Name, one.address, decision)
		}
	}
}
