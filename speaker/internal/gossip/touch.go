package gossip

import (
	"context"
	"sync"
	"time"
)

const (
	// tickEvery is how often the ring looks whether it was paused.
	tickEvery = 100 * time.Millisecond
	// outOfTouchFor is how long a speaker is silent at most after a pause (rule E4).
	outOfTouchFor = 2 * time.Second
)

// touch tells whether this process was paused so long that the others may hold it for dead. The zero value knows of no
// pause and needs a first tick.
type touch struct {
	limit time.Duration // a longer pause is one; 0: none is
	last  time.Time     // the last tick
	until time.Time     // out of touch until then, unless state is exchanged before
}

// tick notes that the process runs. It returns true if it did not for longer than the limit.
func (t *touch) tick(now time.Time) (paused bool) {
	paused = t.late(now)
	t.last = now
	if paused {
		t.until = now.Add(outOfTouchFor)
	}
	return paused
}

// exchanged notes that state was exchanged. It ends being out of touch, if the pause was noticed: an exchange that ends
// in the first moment after a pause may have begun before it. It returns true if it did.
func (t *touch) exchanged(now time.Time) (ended bool) {
	if t.late(now) || !now.Before(t.until) {
		return false
	}
	t.until = time.Time{}
	return true
}

// in is true if the process is in touch. It does not wait for the tick that comes with the end of a pause.
func (t *touch) in(now time.Time) bool { return !t.late(now) && !now.Before(t.until) }

func (t *touch) late(now time.Time) bool { return t.limit > 0 && now.Sub(t.last) > t.limit }

// watchTouch ticks until ctx ends. After a pause it exchanges state with the first member that answers.
func (r *Ring) watchTouch(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	var exchanging sync.WaitGroup // beside the ticks: a member that does not answer is no pause
	defer exchanging.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		r.mu.Lock()
		paused := r.touch.tick(now)
		expired := r.roster.expire()
		r.mu.Unlock()
		if expired {
			r.changed()
		}
		if paused {
			r.log.Info("this process was paused, silent until state is exchanged with another speaker", "atMost", outOfTouchFor.String())
			r.changed()
			exchanging.Go(func() { r.exchange(ctx) })
		}
	}
}

// touched notes that state was exchanged with another speaker.
func (r *Ring) touched() {
	r.mu.Lock()
	r.met = true
	ended := r.touch.exchanged(time.Now())
	if ended {
		r.roster.epoch++ // what is ours may have been elsewhere meanwhile
	}
	r.mu.Unlock()
	if ended {
		r.changed()
	}
}
