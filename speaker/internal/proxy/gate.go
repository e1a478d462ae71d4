package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

const (
	// askEvery is how often kube-proxy is asked while somebody waits.
	askEvery = 50 * time.Millisecond
	// asksAtOnce is how many questions are asked beside each other.
	asksAtOnce = 8
	// openUnasked is when an item opens if nobody can be asked about it.
	openUnasked = 1500 * time.Millisecond
	// openAnyway is when an item opens whatever kube-proxy says.
	openAnyway = 3 * time.Second
)

// Item is one announcement that may have to wait.
type Item struct {
	Key             string // names it; the first sight of a key starts its clock
	Family          cluster.Family
	Local           bool   // externalTrafficPolicy Local
	HealthCheckPort uint16 // the Service's healthCheckNodePort; 0 if it has none
	Exempt          bool   // does not wait: fail-over, or announced before on this boot
}

// wait is an item of which the gate keeps count.
type wait struct {
	item  Item
	first time.Time // when it was first seen
	open  bool
	// asked is true if somebody has answered about it, whatever the answer.
	asked bool
}

// Gate holds items back until kube-proxy is ready for them. Update and Open may be called from any goroutine, and do not
// wait.
type Gate struct {
	options Options
	kick    chan struct{} // holds one: an item waits

	mu     sync.Mutex // guards waits, what is in it, and rounds
	waits  map[string]*wait
	rounds map[cluster.Family]*rounds
}

// NewGate gives a gate that knows no items.
func NewGate(options Options) *Gate {
	return &Gate{
		options: options.complete(), kick: make(chan struct{}, 1), waits: map[string]*wait{},
		rounds: map[cluster.Family]*rounds{cluster.IPv4: {}, cluster.IPv6: {}},
	}
}

// Update makes these the items. A key that is not among them is forgotten; if it comes again, its clock starts anew.
func (g *Gate) Update(items []Item) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	waits := make(map[string]*wait, len(items))
	closed := false
	for _, item := range items {
		w := g.waits[item.Key]
		if w == nil {
			w = &wait{first: now}
		}
		w.item = item
		w.open = w.open || item.Exempt
		closed = closed || !w.open
		waits[item.Key] = w
	}
	g.waits = waits
	if closed {
		select {
		case g.kick <- struct{}{}:
		default:
		}
	}
}

// Open is true if the item of that key need not wait any more.
func (g *Gate) Open(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.waits[key]
	return w != nil && w.open
}

// Run asks while anything waits, until ctx ends. wake is called when an item has opened; it must not block.
func (g *Gate) Run(ctx context.Context, wake func()) error {
	defer g.options.Client.CloseIdleConnections()
	var asking sync.WaitGroup
	defer asking.Wait()
	heard, free := make(chan answers, 1), true
	begin := func() {
		if free {
			free = false
			asking.Go(func() { heard <- g.ask(ctx, g.waiting()) })
		}
	}
	ticker, ticks := time.NewTicker(askEvery), true
	defer ticker.Stop()
	for {
		if ticks && len(g.waiting()) == 0 {
			ticker.Stop()
			ticks = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.kick:
			// While it ticks it is left alone: items that come faster than it ticks would hold it back for ever.
			if !ticks {
				ticker.Reset(askEvery)
				ticks = true
				begin()
			}
		case <-ticker.C:
			begin()
			if g.openLate(time.Now()) {
				wake()
			}
		case a := <-heard:
			free = true
			if g.take(a) {
				wake()
			}
		}
	}
}

// question is an item that waits, as it is asked about.
type question struct {
	Item
	asked bool // somebody has answered about it before
}

// waiting are the items that are not open.
func (g *Gate) waiting() []question {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []question
	for _, w := range g.waits {
		if !w.open {
			list = append(list, question{Item: w.item, asked: w.asked})
		}
	}
	return list
}

// openLate opens what has waited for long enough without kube-proxy's word. It returns true if something opened.
func (g *Gate) openLate(now time.Time) (opened bool) {
	return g.openIf(func(w *wait) bool {
		waited := now.Sub(w.first)
		return waited >= openAnyway || waited >= openUnasked && !w.asked
	})
}

// take opens what kube-proxy has said it is ready for. It returns true if something opened.
func (g *Gate) take(a answers) (opened bool) {
	if a.proxy {
		g.mu.Lock()
		for family, of := range g.rounds {
			of.add(a.syncs[family])
		}
		g.mu.Unlock()
	}
	return g.openIf(func(w *wait) bool {
		status, answered := a.health[w.item.Key]
		w.asked = w.asked || answered || a.proxy
		if g.byHealth(w.item) {
			return status == http.StatusOK
		}
		return a.proxy && g.rounds[w.item.Family].include(w.first, a.at)
	})
}

func (g *Gate) openIf(ready func(*wait) bool) (opened bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waits {
		if !w.open && ready(w) {
			w.open, opened = true, true
		}
	}
	return opened
}

// byHealth is true if the item's own health check port tells about it. kube-proxy has one for each family.
func (g *Gate) byHealth(item Item) bool {
	return item.Local && item.HealthCheckPort != 0 && g.options.NodeAddresses[item.Family].IsValid()
}

// answers are what kube-proxy said to one round of questions.
type answers struct {
	at     time.Time // when they were asked
	proxy  bool      // its metrics answered
	syncs  map[cluster.Family]syncs
	health map[string]int // HTTP status by key, of the health check ports that answered
}

// ask asks about what waits. kube-proxy's metrics, which are long, are asked for only where they tell something: what a
// sync has done, and whether there is a kube-proxy behind a port that does not answer.
func (g *Gate) ask(ctx context.Context, list []question) answers {
	a := answers{at: time.Now()}
	bySyncs := func(q question) bool { return !g.byHealth(q.Item) }
	if slices.ContainsFunc(list, bySyncs) {
		g.askMetrics(ctx, &a)
	}
	a.health = g.askPorts(ctx, list)
	inDoubt := func(q question) bool {
		_, answered := a.health[q.Key]
		return g.byHealth(q.Item) && !answered && !q.asked
	}
	if !a.proxy && slices.ContainsFunc(list, inDoubt) {
		g.askMetrics(ctx, &a)
	}
	return a
}

func (g *Gate) askMetrics(ctx context.Context, a *answers) {
	status, err := g.options.get(ctx, g.options.Metrics, func(body io.Reader) { a.syncs = readSyncs(body) })
	a.proxy = err == nil && status == http.StatusOK
}

// askPorts asks the health check ports of items, a few at a time, and answers the HTTP status by key of those that answer.
func (g *Gate) askPorts(ctx context.Context, list []question) map[string]int {
	var (
		mu     sync.Mutex // guards health
		health = map[string]int{}
		asking sync.WaitGroup
		turns  = make(chan struct{}, asksAtOnce)
	)
	for _, item := range list {
		if !g.byHealth(item.Item) {
			continue
		}
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			url := fmt.Sprintf("http://%s/", netip.AddrPortFrom(g.options.NodeAddresses[item.Family], item.HealthCheckPort))
			if status, err := g.options.get(ctx, url, nil); err == nil {
				mu.Lock()
				defer mu.Unlock()
				health[item.Key] = status
			}
		})
	}
	asking.Wait()
	return health
}
