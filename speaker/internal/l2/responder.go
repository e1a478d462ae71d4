package l2

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
)

const (
	// checkEvery is how often the links are compared with what they should do although nobody said that anything changed.
	checkEvery = 30 * time.Second
	// The pause before a link that failed is opened again: the first one, and the longest.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Links are the node's links that can carry announcements.
type Links interface {
	// Current are they now, sorted by name.
	Current() []cluster.Link
	// RouteTo is the index of the link that the node's own packets to an address leave by.
	RouteTo(address netip.Addr) (linkIndex int, ok bool)
}

// Options are what a Responder works with.
type Options struct {
	Links Links
	// Open begins to listen to a link and to speak on it, in one family. What it returns first watches nothing.
	Open    func(link cluster.Link, family cluster.Family) (Socket, error)
	Metrics prometheus.Registerer
	Log     logr.Logger
}

// Responder answers ARP and neighbour discovery for the addresses it is given.
//
// Set, Confirm, LinksChanged and Have may be called from any goroutine and never wait. Everything without atomic belongs
// to the goroutine of Run.
type Responder struct {
	options   Options
	metrics   *metrics
	authority *authority

	claims  atomic.Pointer[[]announce.Claim] // a mailbox of one: the newest wins
	have    atomic.Pointer[[]netip.Addr]     // sorted
	macs    atomic.Pointer[map[[6]byte]struct{}]
	wake    chan struct{} // holds one
	failed  chan failure
	routes  *routes
	ports   map[place]*port
	retries map[place]*backoff
	paces   map[string]*rate.Limiter // of announcements, by link
	mute    map[string]bool          // links of which it was said that IPv6 is not answered there
}

// failure is a port that cannot listen any more.
type failure struct {
	port *port
	err  error
}

// backoff says when a link that failed is tried again.
type backoff struct {
	pause time.Duration
	at    time.Time
	said  string // the error last logged
}

// New gives a responder that owns nothing yet.
func New(options Options) *Responder {
	r := &Responder{
		options:   options,
		authority: newAuthority(),
		wake:      make(chan struct{}, 1),
		failed:    make(chan failure),
		routes:    &routes{ask: options.Links.RouteTo},
		ports:     map[place]*port{},
		retries:   map[place]*backoff{},
		paces:     map[string]*rate.Limiter{},
		mute:      map[string]bool{},
	}
	r.claims.Store(&[]announce.Claim{})
	r.have.Store(&[]netip.Addr{})
	r.macs.Store(&map[[6]byte]struct{}{})
	r.metrics = newMetrics(options.Metrics, func() float64 { return float64(len(r.Have())) })
	return r
}

// Set makes these the claims of this node. When it returns, no frame for an address that is not among them will be
// sent any more, pending announcements included; the new ones are answered for a moment later. It keeps the list.
func (r *Responder) Set(claims []announce.Claim) {
	r.authority.own(claims)
	r.claims.Store(&claims)
	r.LinksChanged()
}

// Confirm says that the claims last set are still right. The responder is silent unless it was called within the last
// second (rule P1).
func (r *Responder) Confirm() { r.authority.confirm() }

// LinksChanged says that Links.Current may give another list.
func (r *Responder) LinksChanged() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Have are the addresses answered for at this moment, sorted.
func (r *Responder) Have() []netip.Addr {
	if !r.authority.current() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*r.have.Load()), func(address netip.Addr) bool { return !r.authority.owns(address) })
}

// Run answers until ctx ends. Trouble with a link ends it never: the link is opened again, later and later.
func (r *Responder) Run(ctx context.Context) error {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	defer r.closeAll()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			r.apply(ctx)
		case f := <-r.failed:
			f.port.metrics.errors[atReceive].Inc()
			r.retire(f.port, f.err)
			r.apply(ctx)
		case <-retry.C:
			r.apply(ctx)
		case <-check.C:
			r.routes.forget()
			if r.apply(ctx) {
				r.metrics.repairs.Inc()
			}
		}
		if at, waits := r.nextRetry(); waits {
			retry.Reset(time.Until(at))
		}
	}
}

// apply brings the ports in line with links and claims. It returns true if anything had to be done.
func (r *Responder) apply(ctx context.Context) (changed bool) {
	links := r.options.Links.Current()
	duties := assign(*r.claims.Load(), links, r.routes.at(links))
	r.noteMACs(links)
	changed = r.closeOthers(links)
	for _, link := range links {
		for _, family := range families() {
			changed = r.serve(ctx, link, family, duties[place{link.Name, family}]) || changed
		}
	}
	r.noteMute(links)
	r.noteHave()
	return changed
}

// closeOthers closes the ports of links that are gone or have become others, and forgets what is known of such links.
func (r *Responder) closeOthers(links []cluster.Link) (closed bool) {
	lives := func(name string, is func(cluster.Link) bool) bool {
		return slices.ContainsFunc(links, func(link cluster.Link) bool { return link.Name == name && is(link) })
	}
	there := func(name string) bool { return lives(name, func(cluster.Link) bool { return true }) }
	for at, p := range r.ports {
		if !lives(at.link, p.fits) {
			p.close()
			delete(r.ports, at)
			closed = true
		}
	}
	maps.DeleteFunc(r.retries, func(at place, _ *backoff) bool { return !there(at.link) })
	maps.DeleteFunc(r.paces, func(link string, _ *rate.Limiter) bool { return !there(link) })
	maps.DeleteFunc(r.mute, func(link string, _ bool) bool { return !there(link) })
	return closed
}

// serve gives a link its duty in a family, and opens a port on it first where there is none.
func (r *Responder) serve(ctx context.Context, link cluster.Link, family cluster.Family, to duty) (changed bool) {
	at := place{link.Name, family}
	p := r.ports[at]
	if p == nil {
		if len(to) == 0 {
			delete(r.retries, at)
			return false
		}
		if b := r.retries[at]; b != nil && time.Now().Before(b.at) {
			return false
		}
		if p = r.open(ctx, link, family); p == nil {
			return true
		}
	}
	changed, err := p.assign(to)
	if err != nil {
		p.metrics.errors[atWatch].Inc()
		r.retire(p, err)
	}
	return changed
}

// open opens a port on a link; nil if that fails.
func (r *Responder) open(ctx context.Context, link cluster.Link, family cluster.Family) *port {
	at := place{link.Name, family}
	metrics := r.metrics.of(at)
	socket, err := r.options.Open(link, family)
	if err != nil {
		metrics.errors[atOpen].Inc()
		r.postpone(at, err)
		return nil
	}
	if r.paces[link.Name] == nil {
		r.paces[link.Name] = NewLimiter()
	}
	p := &port{
		place: at, on: link, receiver: socket, sender: socket,
		authority: r.authority, macs: &r.macs, limiter: r.paces[link.Name], metrics: metrics, log: r.options.Log,
		named: map[string]bool{}, opened: time.Now(), changed: make(chan struct{}, 1),
	}
	p.duty.Store(&duty{})
	r.ports[at] = p
	p.start(ctx, r.failed)
	r.options.Log.Info("answering on a link", "link", link.Name, "index", link.Index, "family", family.String())
	return p
}

// retire closes a port that does not work any more; its link is opened again later.
func (r *Responder) retire(p *port, why error) {
	p.close()
	delete(r.ports, p.place)
	if time.Since(p.opened) > lastRetry {
		delete(r.retries, p.place)
	}
	r.postpone(p.place, why)
}

// postpone has a link that failed opened again after a pause, which doubles. It says so once for each reason.
func (r *Responder) postpone(at place, why error) {
	b := r.retries[at]
	if b == nil {
		b = &backoff{pause: firstRetry / 2}
		r.retries[at] = b
	}
	b.pause = min(2*b.pause, lastRetry)
	b.at = time.Now().Add(b.pause)
	if text := why.Error(); text != b.said {
		b.said = text
		r.options.Log.Info("cannot answer on a link, trying again", "link", at.link, "family", at.family.String(), "error", text)
	}
}

// nextRetry is when the next link is to be tried again; waits is false if none is.
func (r *Responder) nextRetry() (at time.Time, waits bool) {
	for where, b := range r.retries {
		if r.ports[where] == nil && (!waits || b.at.Before(at)) {
			at, waits = b.at, true
		}
	}
	return at, waits
}

// noteMACs keeps the hardware addresses of this node's links.
func (r *Responder) noteMACs(links []cluster.Link) {
	macs := make(map[[6]byte]struct{}, len(links))
	for _, link := range links {
		macs[link.MAC] = struct{}{}
	}
	r.macs.Store(&macs)
}

// noteMute says once of each link that IPv6 is not answered there though it would be asked to, and why; again once that has
// changed and come back.
func (r *Responder) noteMute(links []cluster.Link) {
	for _, link := range links {
		if link.LinkLocal.IsValid() {
			delete(r.mute, link.Name)
			continue
		}
		asked := slices.ContainsFunc(*r.claims.Load(), func(claim announce.Claim) bool {
			return claim.Address.Is6() && (len(claim.Interfaces) == 0 || slices.Contains(claim.Interfaces, link.Name))
		})
		if asked && !r.mute[link.Name] {
			r.mute[link.Name] = true
			r.options.Log.Info("IPv6 is not answered on a link: it has no link-local address that can be used", "link", link.Name)
		}
	}
}

// noteHave keeps the addresses that a port answers for.
func (r *Responder) noteHave() {
	set := map[netip.Addr]struct{}{}
	for _, p := range r.ports {
		for address := range *p.duty.Load() {
			set[address] = struct{}{}
		}
	}
	have := slices.SortedFunc(maps.Keys(set), netip.Addr.Compare)
	r.have.Store(&have)
}

// closeAll ends everything.
func (r *Responder) closeAll() {
	for _, p := range r.ports {
		p.close()
	}
	clear(r.ports)
	r.noteHave()
}
