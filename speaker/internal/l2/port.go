package l2

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/berthlb/berth/internal/cluster"
)

const (
	// freshFor is how old a request may be that is answered: an older one waited while this process did not run, and its
	// answer might be another node's by now (rule P1).
	freshFor = 200 * time.Millisecond
	// unconfirmedPause is how soon announcements that wait for a confirmation are tried again.
	unconfirmedPause = 50 * time.Millisecond
)

// Receiver hears ARP or neighbour discovery on one link.
type Receiver interface {
	// Listen calls heard for each frame about a watched address until the receiver is closed, then it returns nil, or until
	// it cannot receive any more. target is not valid if the frame is no request but only claims source. at is by the wall
	// clock. refused is told how many frames were of no use, and in a word why.
	Listen(heard func(sender [6]byte, source, target netip.Addr, at time.Time), refused func(why string, frames int)) error
	// Watch makes these the watched addresses.
	Watch(addresses []netip.Addr) error
	// Close ends Listen.
	Close() error
}

// Sender speaks the same protocol on one link, with that link's hardware address. Its methods do not wait.
type Sender interface {
	// Reply tells the asker alone that the address is here.
	Reply(to [6]byte, toAddress, address netip.Addr) error
	// Announce tells everybody on the link, in all forms there are (rule L3).
	Announce(address netip.Addr) error
}

// Socket is both.
type Socket interface {
	Receiver
	Sender
}

// port is the responder's part for one family on one link: a goroutine that answers and one that announces. The
// responder's own goroutine opens, assigns and closes it.
type port struct {
	place
	on        cluster.Link
	receiver  Receiver
	sender    Sender
	authority *authority
	macs      *atomic.Pointer[map[[6]byte]struct{}] // of all links of this node
	limiter   *rate.Limiter                         // of all that announce on the link
	metrics   *portMetrics
	log       logr.Logger

	named   map[string]bool // why frames were refused, as far as it has been said; the listening goroutine's
	opened  time.Time
	duty    atomic.Pointer[duty]
	changed chan struct{} // holds one: duty is another
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// start runs the port's goroutines. If the link cannot be listened to any more, failed is told, unless the port is closed
// meanwhile.
func (p *port) start(ctx context.Context, failed chan<- failure) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.running.Go(func() {
		err := p.receiver.Listen(p.heard, p.refused)
		if err == nil {
			return
		}
		select {
		case failed <- failure{p, err}:
		case <-ctx.Done():
		}
	})
	p.running.Go(func() { p.announce(ctx) })
}

// close ends the goroutines and waits for them.
func (p *port) close() {
	p.cancel()
	if err := p.receiver.Close(); err != nil {
		p.log.V(1).Info("closing the socket failed", "link", p.link, "family", p.family.String(), "error", err.Error())
	}
	p.running.Wait()
}

// fits is true if the port can serve a link that is now so. Another link-local address is another sender of all that
// neighbour discovery says.
func (p *port) fits(link cluster.Link) bool {
	same := link.Index == p.on.Index && link.MAC == p.on.MAC
	return same && (p.family == cluster.IPv4 || link.LinkLocal == p.on.LinkLocal)
}

// assign gives the port its duty. It returns true if that is another than before.
func (p *port) assign(to duty) (changed bool, err error) {
	before := *p.duty.Load()
	if maps.Equal(before, to) {
		return false, nil
	}
	if !sameAddresses(before, to) {
		// First what is heard, then what is answered: the kernel passes nothing on that we would miss.
		if err := p.receiver.Watch(slices.Collect(maps.Keys(to))); err != nil {
			return true, fmt.Errorf("watch addresses: %w", err)
		}
	}
	p.duty.Store(&to)
	select {
	case p.changed <- struct{}{}:
	default:
	}
	return true, nil
}

// sameAddresses is true if two duties are for the same addresses, whatever the epochs.
func sameAddresses(a, b duty) bool {
	for address := range a {
		if _, has := b[address]; !has {
			return false
		}
	}
	return len(a) == len(b)
}

// heard answers a request, if this node may, and counts a claim.
func (p *port) heard(sender [6]byte, source, target netip.Addr, at time.Time) {
	// Whoever asks for the address he asks from (RFC 5227, section 3) tells us that it is his and wants no answer. That is
	// what a new owner sends, and an answer would tell its neighbours otherwise.
	if _, ours := (*p.duty.Load())[target]; !ours || source == target {
		p.claimed(sender, source)
		return
	}
	if !p.authority.answers(target) {
		return
	}
	p.metrics.requests.Inc()
	if time.Since(at) > freshFor {
		p.metrics.stale.Inc()
		return
	}
	if !p.authority.current() {
		return
	}
	if err := p.sender.Reply(sender, source, target); err != nil {
		p.failed(atReply, err)
		return
	}
	p.metrics.replies.Inc()
}

// refused counts frames that were of no use, and says so the first time for each reason: anybody on the link can send more.
func (p *port) refused(why string, frames int) {
	p.metrics.refused(why).Add(float64(frames))
	if !p.named[why] {
		p.named[why] = true
		p.log.Info("frames on a link are of no use and counted only", "link", p.link, "family", p.family.String(), "reason", why)
	}
}

// claimed takes in a claim of an address of ours that none of our own links has made: by whom it was handed to, or by a
// rival.
func (p *port) claimed(sender [6]byte, address netip.Addr) {
	_, own := (*p.macs.Load())[sender]
	if own {
		return
	}
	p.authority.heard(address)
	if p.authority.owns(address) {
		p.metrics.rivals.Inc()
	}
}

// announce sends gratuitous frames as the schedule says, until ctx ends.
func (p *port) announce(ctx context.Context) {
	schedule := NewSchedule(framesOf(p.family), p.limiter, rand.Float64)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			schedule.Want(p.duty.Load().announced())
		case <-timer.C:
		}
		if pause, waits := p.announceDue(schedule); waits {
			timer.Reset(pause)
		}
	}
}

// announceDue makes the announcements due now, and says how long to wait for the next.
func (p *port) announceDue(schedule *Schedule) (pause time.Duration, waits bool) {
	for {
		if !p.authority.current() {
			_, waits := schedule.Wake(time.Now())
			return unconfirmedPause, waits
		}
		address, ok := schedule.Next(time.Now())
		if !ok {
			break
		}
		if !p.authority.owns(address) {
			continue // lost a moment ago: the responder is about to tell the schedule
		}
		if err := p.sender.Announce(address); err != nil {
			p.failed(atAnnounce, err)
			continue
		}
		p.metrics.gratuitous.Add(float64(framesOf(p.family)))
	}
	now := time.Now()
	at, waits := schedule.Wake(now)
	return at.Sub(now), waits
}

// failed counts an error. One frame that could not be sent is not worth a line: a link that is gone shows itself in
// Listen.
func (p *port) failed(at string, err error) {
	p.metrics.errors[at].Inc()
	p.log.V(1).Info("sending a frame failed", "link", p.link, "family", p.family.String(), "at", at, "error", err.Error())
}
