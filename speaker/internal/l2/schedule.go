package l2

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/google/btree"
	"golang.org/x/time/rate"

	"github.com/berthlb/berth/internal/cluster"
)

const (
	// framesPerSecond is how many gratuitous frames a link sends at most; framesAtOnce of them without a pause (rule L3).
	framesPerSecond = 2000
	framesAtOnce    = 100
	// framesPerTurn is how many frames of allowance are waited for once it is used up, so that the goroutine behind does
	// not wake for each.
	framesPerTurn = 20
	// jitter is by which part, up or down, a repetition may be off its time.
	jitter = 0.2
	// repetitions is how often an address is announced.
	repetitions = 6
)

// framesOf is how many frames announce an address once: of ARP the request form and the reply form, of neighbour discovery
// one.
func framesOf(family cluster.Family) int {
	if family == cluster.IPv4 {
		return 2
	}
	return 1
}

// NewLimiter gives what keeps all announcements on a link below what rule L3 allows.
func NewLimiter() *rate.Limiter { return rate.NewLimiter(framesPerSecond, framesAtOnce) }

// offsets are the times of the announcements of an address, from the first (rule L3).
func offsets() [repetitions]time.Duration {
	return [repetitions]time.Duration{
		0, 100 * time.Millisecond, 500 * time.Millisecond, 1100 * time.Millisecond, 2200 * time.Millisecond, 4 * time.Second,
	}
}

// burst is the announcements of one address.
type burst struct {
	address netip.Addr
	epoch   uint64
	order   uint64    // of arrival: the place in the queue of first announcements
	step    int       // the next announcement; repetitions once all are made
	began   time.Time // when the first one was made
	due     time.Time // when the next one is; the first is due at once
}

// Schedule says when one family on a link announces which address: a pure step machine, with the time as an argument. It is not safe
// for concurrent use.
//
// First announcements go before repetitions: of 1,000 addresses gained at once the first frames of the last one leave
// within a second (rule P4), whatever else is due.
type Schedule struct {
	bursts  map[netip.Addr]*burst // every address wanted, also after its last announcement
	first   *btree.BTreeG[*burst] // that wait for the first announcement, by order
	again   *btree.BTreeG[*burst] // that wait for a repetition, by the time it is due
	arrived uint64
	frames  int // of an announcement
	limiter *rate.Limiter
	random  func() float64 // in [0, 1)
}

// NewSchedule gives an empty schedule for announcements of so many frames. It may share the limiter with others.
func NewSchedule(frames int, limiter *rate.Limiter, random func() float64) *Schedule {
	const degree = 16
	return &Schedule{
		bursts: map[netip.Addr]*burst{},
		first:  btree.NewG(degree, func(a, b *burst) bool { return a.order < b.order }),
		again: btree.NewG(degree, func(a, b *burst) bool {
			return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.order, b.order)) < 0
		}),
		frames:  frames,
		limiter: limiter,
		random:  random,
	}
}

// Want makes these the addresses to announce, each for its epoch. A new address, or one of another epoch than it was
// announced for, begins with the first announcement; one that still waits for its first keeps its place, so that a storm
// of epochs starves nobody. An address that is no longer wanted is dropped at once (rule P1).
func (s *Schedule) Want(wanted map[netip.Addr]uint64) {
	for address, b := range s.bursts {
		if _, still := wanted[address]; !still {
			s.drop(b)
		}
	}
	for address, epoch := range wanted {
		b := s.bursts[address]
		switch {
		case b == nil:
			s.begin(address, epoch)
		case b.step == 0:
			b.epoch = epoch
		case b.epoch != epoch:
			s.drop(b)
			s.begin(address, epoch)
		}
	}
}

// begin queues an address for its first announcement.
func (s *Schedule) begin(address netip.Addr, epoch uint64) {
	s.arrived++
	b := &burst{address: address, epoch: epoch, order: s.arrived}
	s.bursts[address] = b
	s.first.ReplaceOrInsert(b)
}

// drop forgets an address.
func (s *Schedule) drop(b *burst) {
	s.first.Delete(b)
	s.again.Delete(b)
	delete(s.bursts, b.address)
}

// Next gives the next address to be announced now; ok is false if there is none. The caller announces it, or not, before
// it asks again.
func (s *Schedule) Next(now time.Time) (address netip.Addr, ok bool) {
	b, waits := s.front()
	if !waits || b.due.After(now) || !s.limiter.AllowN(now, s.frames) {
		return netip.Addr{}, false
	}
	s.advance(b, now)
	return b.address, true
}

// front is the burst whose turn is next: the first announcement that has waited longest, else the earliest repetition.
func (s *Schedule) front() (b *burst, waits bool) {
	if b, waits = s.first.Min(); waits {
		return b, true
	}
	return s.again.Min()
}

// advance moves a burst on to its next announcement.
func (s *Schedule) advance(b *burst, now time.Time) {
	s.first.Delete(b)
	s.again.Delete(b)
	if b.step == 0 {
		b.began = now
	}
	b.step++
	if b.step == repetitions {
		return // it stays in bursts: announced for this epoch
	}
	offset := float64(offsets()[b.step])
	b.due = b.began.Add(time.Duration(offset * (1 - jitter + 2*jitter*s.random())))
	s.again.ReplaceOrInsert(b)
}

// Wake is when Next should be asked again; ok is false if nothing waits.
func (s *Schedule) Wake(now time.Time) (at time.Time, ok bool) {
	b, waits := s.front()
	if !waits {
		return time.Time{}, false
	}
	at = now
	if b.due.After(now) {
		at = b.due
	}
	if s.limiter.TokensAt(at) >= float64(s.frames) {
		return at, true
	}
	missing := framesPerTurn - s.limiter.TokensAt(at)
	return at.Add(time.Duration(missing / framesPerSecond * float64(time.Second))), true
}
