package agent

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
)

// Announcer makes claims true on the network. Its methods never block.
type Announcer interface {
	// Set replaces all claims.
	Set(claims []announce.Claim)
	// Confirm says that the claims set last still hold. An announcer that has not heard so for a second falls silent.
	Confirm()
	// Have are the addresses announced now, sorted.
	Have() []netip.Addr
}

// Gate holds back what the node is not ready to serve (rule P21). Its methods never block.
type Gate interface {
	// Update says what may be announced; what is not in it any more is forgotten.
	Update(items []Item)
	// Open is true if the item of that key may be announced.
	Open(key string) bool
}

// Item is a Service that this node may come to announce in a family.
type Item struct {
	Key             string
	Family          cluster.Family
	Local           bool
	HealthCheckPort uint16
	// Exempt items need not wait: they have been announced before.
	Exempt bool
}

// State is what the agent reports after each run.
type State struct {
	Facts    cluster.Facts
	Have     []netip.Addr
	Duration time.Duration // of the run
}

// standsFor is how long a Service's condition must have said that it is announced before that is believed. The controller
// says so as soon as it has been decided, while the owner may still wait for its proxy, which it does for 3 s at most; and
// the condition tells whole seconds.
const standsFor = 4 * time.Second

// Options are what an Agent works with.
type Options struct {
	Node      string
	Store     *compile.Store
	Facts     func() cluster.Facts
	Now       func() time.Time // on the API server's clock, as far as it is known
	Ready     func() bool      // false until every cache is synced and gossip has met the others (rule P6)
	Announcer Announcer
	Gate      Gate
	Report    func(State) // must not block
	Log       logr.Logger
}

// Agent is the loop. Make it with New, start it with Run.
type Agent struct {
	Options

	wake     chan struct{} // of one: somebody changed something
	urgent   chan struct{} // of one: somebody lost something
	owned    map[netip.Addr]bool
	handing  handing
	reported State
}

// New makes an agent.
func New(options Options) *Agent {
	return &Agent{
		Options: options,
		wake:    make(chan struct{}, 1),
		urgent:  make(chan struct{}, 1),
		owned:   map[netip.Addr]bool{},
		handing: handing{},
	}
}

// Wake says that something changed: the loop runs within its pace.
func (a *Agent) Wake() { raise(a.wake) }

// WakeNow says that a member died, a link was lost or the last endpoint is gone: the loop runs at once.
func (a *Agent) WakeNow() { raise(a.urgent) }

func raise(flag chan struct{}) {
	select {
	case flag <- struct{}{}:
	default: // raised already
	}
}

// Run runs the loop until the context ends. At its end the announcer has no claims.
func (a *Agent) Run(ctx context.Context) error {
	defer a.Announcer.Set(nil)
	confirmation := time.NewTicker(confirms)
	defer confirmation.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	pace := pace{}
	pace.woken(time.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-confirmation.C:
			a.confirm()
			continue
		case <-a.wake:
			pace.woken(time.Now())
			timer.Reset(time.Until(pace.next()))
			continue
		case <-a.urgent:
		case <-timer.C:
		}
		started := time.Now()
		again := a.run(started)
		pace.ran(started, time.Now(), again)
		timer.Reset(time.Until(pace.next()))
	}
}

// confirm confirms what is claimed, and reports what the announcer has made true since the last run.
func (a *Agent) confirm() {
	if !a.Ready() {
		return
	}
	a.Announcer.Confirm()
	if have := a.Announcer.Have(); !slices.Equal(have, a.reported.Have) {
		a.reported.Have = have
		a.Report(a.reported)
	}
}

// run is one turn of the loop. Before the caches are synced it does nothing (rule P6). again is when it may come to another
// answer although nothing wakes it; zero if never.
func (a *Agent) run(started time.Time) (again time.Time) {
	if !a.Ready() {
		a.Report(State{Facts: a.Facts()})
		return time.Time{}
	}
	snapshot := a.Store.Snapshot(a.Facts(), a.Now())
	table := announce.Decide(snapshot)
	claims := table.For(a.Node)
	a.Gate.Update(a.items(snapshot, claims))
	open := a.gated(claims)
	handed, until := a.handOver(table, snapshot, open, started)
	a.Announcer.Set(slices.Concat(open, handed))
	a.Announcer.Confirm()
	a.note(open)
	a.reported = State{Facts: snapshot.Facts, Have: a.Announcer.Have(), Duration: time.Since(started)}
	a.Report(a.reported)
	return earlier(table.Again(), until)
}

// items are the Services the gate is to watch: those this node owns, and every Local one with an endpoint here. The
// latter wait before they are ever owned, so that a failover does not (rule P21).
func (a *Agent) items(snapshot *cluster.Snapshot, claims []announce.Claim) []Item {
	var items []Item
	for i := range claims {
		family := cluster.FamilyOf(claims[i].Address)
		for _, service := range claims[i].Services {
			if service.Policy == cluster.PolicyCluster {
				since := service.Recorded.Announced
				announced := !since.IsZero() && snapshot.Now.Sub(since) >= standsFor
				items = append(items, Item{Key: key(service, family), Family: family, Exempt: announced})
			}
		}
	}
	down := func(node string) bool { return snapshot.Facts.Down[node] }
	for _, service := range snapshot.Services {
		if !service.Ours || service.Policy != cluster.PolicyLocal {
			continue
		}
		for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
			if service.EndpointsOf(family).UsableOn(a.Node, down) {
				items = append(items, Item{Key: key(service, family), Family: family, Local: true, HealthCheckPort: service.HealthCheckPort})
			}
		}
	}
	return items
}

// key names a Service in a family: kube-proxy has the two apart, so that one may be ready before the other.
func key(service *cluster.Service, family cluster.Family) string {
	return service.Name.String() + "/" + family.String()
}

// gated are the claims all of whose Services may be announced.
func (a *Agent) gated(claims []announce.Claim) []announce.Claim {
	open := make([]announce.Claim, 0, len(claims))
	for i := range claims {
		if a.allOpen(&claims[i]) {
			open = append(open, claims[i])
		}
	}
	return open
}

func (a *Agent) allOpen(claim *announce.Claim) bool {
	for _, service := range claim.Services {
		if !a.Gate.Open(key(service, cluster.FamilyOf(claim.Address))) {
			return false
		}
	}
	return true
}

// note logs what changed hands: once, on change.
func (a *Agent) note(claims []announce.Claim) {
	now := make(map[netip.Addr]bool, len(claims))
	for i := range claims {
		now[claims[i].Address] = true
		if !a.owned[claims[i].Address] {
			a.Log.Info("announcing address", "address", claims[i].Address, "service", claims[i].Services[0].Name.String())
		}
	}
	for address := range a.owned {
		if !now[address] {
			a.Log.Info("no longer announcing address", "address", address)
		}
	}
	a.owned = now
}
