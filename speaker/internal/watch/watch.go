package watch

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthlb/berth/internal/cluster"
)

// Options are what a Watch works with.
type Options struct {
	// Node is the name of this speaker's node.
	Node string
	// Members are the speakers that live, this one included.
	Members func() map[string]*cluster.Member
	// Beat sends a heartbeat to some of them.
	Beat func(to []string)
	// Down says to all that one is down.
	Down func(node string)
	// Open opens a socket on a link of this node, for ARP or neighbour discovery.
	Open    func(link cluster.Link, family cluster.Family) (Socket, error)
	Metrics prometheus.Registerer
	Log     logr.Logger
}

// Watch is this speaker's part in the watching: it sends heartbeats to those that watch this node, and watches others.
// Changed and Heard may be called from any goroutine and never block; Run owns the rest.
type Watch struct {
	Options

	changed chan struct{} // of one: the members or the links are others
	found   prometheus.Counter
	watched prometheus.Gauge

	mu   sync.Mutex // guards core
	core *core

	beatTo []string
	links  []cluster.Link
}

// New makes a Watch. Run has to be called then.
func New(options Options) *Watch {
	w := &Watch{
		Options: options, changed: make(chan struct{}, 1), core: newCore(),
		found: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "watch", Name: "down_total",
			Help: "How often this speaker has found a node down that it watches.",
		}),
		watched: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "watch", Name: "nodes", Help: "Nodes that this speaker watches.",
		}),
	}
	options.Metrics.MustRegister(w.found, w.watched)
	return w
}

// Changed says that the members or their links are others.
func (w *Watch) Changed() {
	select {
	case w.changed <- struct{}{}:
	default: // noted already
	}
}

// Heard says that a node's heartbeat came.
func (w *Watch) Heard(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.core.heard(time.Now(), node)
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	p := &prober{
		open: w.openOn, answered: w.answered, ended: w.ended, log: w.Log,
		sockets: map[place]*probing{}, troubled: map[place]string{},
	}
	defer p.close()
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	steps := time.NewTimer(0)
	defer steps.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beats.C:
			changed := w.hasChanged()
			if changed {
				w.reset(p)
			}
			if len(w.beatTo) > 0 {
				w.Beat(w.beatTo)
			}
			if !changed {
				continue
			}
		case <-steps.C:
		}
		steps.Reset(w.step(p))
	}
}

// hasChanged is true if the members or their links are others. It is asked with every heartbeat and not more often: to work
// out who watches whom takes the square of the members.
func (w *Watch) hasChanged() bool {
	select {
	case <-w.changed:
		return true
	default:
		return false
	}
}

// reset takes in the members there are now.
func (w *Watch) reset(p *prober) {
	members := w.Members()
	w.links = nil
	if own := members[w.Node]; own != nil {
		w.links = own.Links
	}
	w.beatTo = Watchers(w.Node, members)
	watch := targets(w.Node, members)
	w.watched.Set(float64(len(watch)))
	p.set(watch)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.core.set(time.Now(), watch)
}

// step does what is due, and says in how long to do that again.
func (w *Watch) step(p *prober) time.Duration {
	w.mu.Lock()
	ask, down, next := w.core.step(time.Now())
	w.mu.Unlock()
	if unasked := p.ask(ask); len(unasked) > 0 {
		w.distrust(func(p *Path) bool { return slices.Contains(unasked, *p) })
	}
	slices.Sort(down)
	for _, node := range down {
		w.found.Inc()
		w.Log.Info("a node is down: neither its speaker nor its kernel answers", "node", node)
		w.Down(node)
	}
	return time.Until(next)
}

func (w *Watch) answered(link int, address netip.Addr, mac [6]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.core.answered(time.Now(), link, address, mac)
}

// ended has a socket that hears no more opened again, with the next heartbeat.
func (w *Watch) ended(at place) {
	w.distrust(func(p *Path) bool { return placeOf(p) == at })
	w.Changed()
}

func (w *Watch) distrust(over func(p *Path) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.core.distrust(time.Now(), over)
}

func (w *Watch) openOn(at place) (Socket, error) {
	found, ok := linkOf(w.links, at.link)
	if !ok {
		return nil, fmt.Errorf("link %d is gone", at.link)
	}
	return w.Open(found, at.family)
}
