package l2

import (
	"container/heap"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
)

const (
	// framesPerSecond is how many gratuitous frames a link sends at most; framesAtOnce of them without a pause (rule L3).
	framesPerSecond = 2000
	framesAtOnce    = 100
	// framesPerAnnouncement are the request form and the reply form.
	framesPerAnnouncement = 2
	// framesPerTurn is how many frames of allowance are waited for once it is used up, so that the goroutine behind does
	// not wake for each.
	framesPerTurn = 20
	// jitter is by which part, up or down, a repetition may be off its time.
	jitter = 0.2
)

// offsets are the times of the announcements of an address, from the first (rule L3).
func offsets() [6]time.Duration {
	return [6]time.Duration{
		0, 100 * time.Millisecond, 500 * time.Millisecond, 1100 * time.Millisecond, 2200 * time.Millisecond, 4 * time.Second,
	}
}

// burst is the announcements of one address that are still to be made.
type burst struct {
	address netip.Addr
	epoch   uint64
	step    int       // the next announcement, an index into offsets
	began   time.Time // when the first one was made
	due     time.Time // when the next one is; not for the first, which is due at once
	over    bool      // all made, or dropped: it may still lie in a queue
}

// Schedule says when one link announces which address: a pure step machine, with the time as an argument. It is not safe
// for concurrent use.
//
// First announcements go before repetitions: of 1,000 addresses gained at once the first frames of the last one leave
// within a second (rule P4), whatever else is due.
type Schedule struct {
	bursts  map[netip.Addr]*burst
	first   []*burst // in the order they came
	again   dueHeap
	limiter *rate.Limiter
	random  func() float64 // in [0, 1)
}

// NewSchedule gives an empty schedule.
func NewSchedule(random func() float64) *Schedule {
	return &Schedule{
		bursts:  map[netip.Addr]*burst{},
		limiter: rate.NewLimiter(framesPerSecond, framesAtOnce),
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
		if b != nil && (b.epoch == epoch || b.step == 0) {
			b.epoch = epoch
			continue
		}
		if b != nil {
			s.drop(b)
		}
		b = &burst{address: address, epoch: epoch}
		s.bursts[address] = b
		s.first = append(s.first, b)
	}
}

// drop forgets an address. Where it lies in a queue it is skipped later.
func (s *Schedule) drop(b *burst) {
	b.over = true
	delete(s.bursts, b.address)
}

// Next gives the next address to be announced now; ok is false if there is none. The caller announces it, or not, before
// it asks again.
func (s *Schedule) Next(now time.Time) (address netip.Addr, ok bool) {
	s.skip()
	var b *burst
	switch {
	case len(s.first) > 0:
		b = s.first[0]
	case len(s.again) > 0 && !s.again[0].due.After(now):
		b = s.again[0]
	default:
		return netip.Addr{}, false
	}
	if !s.limiter.AllowN(now, framesPerAnnouncement) {
		return netip.Addr{}, false
	}
	s.advance(b, now)
	return b.address, true
}

// advance takes the front of a queue, which is b, out of it, and puts it where its next announcement belongs.
func (s *Schedule) advance(b *burst, now time.Time) {
	if b.step == 0 {
		s.first = s.first[1:]
		b.began = now
	} else {
		heap.Pop(&s.again)
	}
	b.step++
	if b.step == len(offsets()) {
		b.over = true // it stays in bursts: announced for this epoch
		return
	}
	offset := float64(offsets()[b.step])
	b.due = b.began.Add(time.Duration(offset * (1 - jitter + 2*jitter*s.random())))
	heap.Push(&s.again, b)
}

// Wake is when Next should be asked again; ok is false if nothing waits.
func (s *Schedule) Wake(now time.Time) (at time.Time, ok bool) {
	s.skip()
	switch {
	case len(s.first) > 0:
		at = now
	case len(s.again) > 0:
		at = s.again[0].due
	default:
		return time.Time{}, false
	}
	missing := framesPerAnnouncement - s.limiter.TokensAt(now)
	if missing <= 0 {
		return at, true
	}
	missing += framesPerTurn - framesPerAnnouncement
	refilled := now.Add(time.Duration(missing / framesPerSecond * float64(time.Second)))
	if at.Before(refilled) {
		at = refilled
	}
	return at, true
}

// skip takes bursts that are over from the front of the queues.
func (s *Schedule) skip() {
	for len(s.first) > 0 && s.first[0].over {
		s.first = s.first[1:]
	}
	for len(s.again) > 0 && s.again[0].over {
		heap.Pop(&s.again)
	}
}

// dueHeap is a heap (container/heap) of repetitions, the one due first in front.
type dueHeap []*burst

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(b any)        { *h = append(*h, b.(*burst)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	*h = (*h)[:last]
	return b
}
