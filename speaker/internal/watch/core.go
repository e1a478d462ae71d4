package watch

import (
	"net/netip"
	"slices"
	"time"
)

// The times of a watch. A node that dies is found down quietFor + misses*askEvery after its last heartbeat.
const (
	beatEvery = 100 * time.Millisecond // between two heartbeats
	quietFor  = 150 * time.Millisecond // without one, the kernel is asked
	askEvery  = 100 * time.Millisecond // between two questions then, which is also how long an answer may take
	misses    = 3                      // so many questions in a row without any answer, and the node is down
	// armEvery is how often the kernel is asked while all is well, so that it is known whether it answers at all; eagerly
	// as long as it has not answered yet. An answer counts for armedFor.
	armEvery  = 20 * time.Second
	armEager  = time.Second
	armedFor  = time.Minute
	eagerFor  = 10 * time.Second
	lateAfter = 50 * time.Millisecond // a step that comes later than this proves nothing about others
)

// Target is a node to watch.
type Target struct {
	Node  string
	Paths []Path
}

// Path is a way to ask a node's kernel: over a link of ours, at an address that the node has on a link of its own.
type Path struct {
	Link    int        // index of our link
	From    netip.Addr // our address on it
	MAC     [6]byte    // of the node's link
	Address netip.Addr // the node's, on that link
}

// core is what a watcher knows about the nodes it watches: a pure step machine.
type core struct {
	watches map[string]*watched
	due     time.Time // when the last step asked to be called again; zero before the first
}

// watched is one node.
type watched struct {
	beat   time.Time // the last heartbeat, or when the watch began
	paths  map[Path]*path
	silent bool // heartbeats are missed, and the kernel is asked in rounds
	round  time.Time
	missed int // rounds in a row in which no link answered that is known to
}

// path is what is known about a way to ask.
type path struct {
	began    time.Time
	asked    time.Time
	answered time.Time // by the right hardware address
}

func (p *path) armed(now time.Time) bool {
	return !p.answered.IsZero() && now.Sub(p.answered) < armedFor
}

func newCore() *core { return &core{watches: map[string]*watched{}} }

// set says which nodes are to be watched from now on. What is known about those that stay is kept.
func (c *core) set(now time.Time, targets []Target) {
	names := make(map[string]bool, len(targets))
	for _, target := range targets {
		names[target.Node] = true
		w := c.watches[target.Node]
		if w == nil {
			w = &watched{beat: now, paths: map[Path]*path{}}
			c.watches[target.Node] = w
		}
		for _, p := range target.Paths {
			if w.paths[p] == nil {
				w.paths[p] = &path{began: now}
			}
		}
		for p := range w.paths {
			if !slices.Contains(target.Paths, p) {
				delete(w.paths, p)
			}
		}
	}
	for name := range c.watches {
		if !names[name] {
			delete(c.watches, name)
		}
	}
}

// distrust takes in that nothing can be asked or heard for the moment over the paths of which that is said: that no answer
// comes over them proves nothing until one has come.
func (c *core) distrust(now time.Time, over func(p *Path) bool) {
	for _, w := range c.watches {
		for p, state := range w.paths {
			if over(&p) {
				*state = path{began: now, asked: state.asked}
			}
		}
	}
}

// heard takes in a heartbeat.
func (c *core) heard(now time.Time, node string) {
	if w := c.watches[node]; w != nil {
		w.beat, w.silent, w.missed = now, false, 0
	}
}

// answered takes in that a kernel answered on a link of ours. From another hardware address it is no answer: somebody may
// answer for a node that is dead.
func (c *core) answered(now time.Time, link int, address netip.Addr, mac [6]byte) {
	for _, w := range c.watches {
		for p, state := range w.paths {
			if p.Link == link && p.Address == address && p.MAC == mac {
				state.answered = now
			}
		}
	}
}

// step says what to do now: whom to ask, and who is down. next is when it wants to be called again at the latest.
func (c *core) step(now time.Time) (ask []Path, down []string, next time.Time) {
	late := !c.due.IsZero() && now.Sub(c.due) > lateAfter
	next = now.Add(armEvery)
	for name, w := range c.watches {
		if late {
			w.beat, w.silent, w.missed = now, false, 0 // this process stood still: what it did not hear proves nothing
		}
		if now.Sub(w.beat) < quietFor {
			ask = append(ask, w.arm(now)...)
		} else {
			asked, dead := w.doubt(now)
			ask = append(ask, asked...)
			if dead {
				down = append(down, name)
			}
		}
		if at := w.next(now); at.Before(next) {
			next = at
		}
	}
	c.due = next
	return ask, down, next
}

// arm asks what has to be asked while all is well.
func (w *watched) arm(now time.Time) []Path {
	var ask []Path
	for p, state := range w.paths {
		if !now.Before(state.armDue(now)) {
			state.asked = now
			ask = append(ask, p)
		}
	}
	return ask
}

func (p *path) armDue(now time.Time) time.Time {
	switch {
	case p.asked.IsZero():
		return now
	case p.answered.Before(p.asked) && now.Sub(p.began) < eagerFor:
		return p.asked.Add(armEager)
	default:
		return p.asked.Add(armEvery)
	}
}

// doubt asks in rounds. dead is true after the last one.
func (w *watched) doubt(now time.Time) (ask []Path, dead bool) {
	switch {
	case !w.silent:
		w.silent, w.missed = true, 0
	case now.Sub(w.round) < askEvery:
		return nil, false
	case w.answeredSince(now):
		w.missed = 0
	default:
		w.missed++
	}
	if w.missed >= misses {
		w.disarm()
		return nil, true
	}
	w.round = now
	for p, state := range w.paths {
		state.asked = now
		ask = append(ask, p)
	}
	return ask, false
}

// answeredSince is true if the last round does not count as missed: some link answered, or none is known to answer.
func (w *watched) answeredSince(now time.Time) bool {
	armed := false
	for _, state := range w.paths {
		if !state.answered.Before(w.round) && !state.answered.IsZero() {
			return true
		}
		armed = armed || state.armed(now)
	}
	return !armed
}

// disarm has every link prove itself anew, so that a watcher which cannot reach the node cannot find it down again and
// again.
func (w *watched) disarm() {
	w.silent, w.missed = false, 0
	for _, state := range w.paths {
		state.answered = time.Time{}
	}
}

// next is when something may be due for a node.
func (w *watched) next(now time.Time) time.Time {
	if w.silent {
		return w.round.Add(askEvery)
	}
	next := w.beat.Add(quietFor)
	if !next.After(now) {
		next = now.Add(askEvery) // found down, and not yet taken off
	}
	for _, state := range w.paths {
		if due := state.armDue(now); due.Before(next) {
			next = due
		}
	}
	return next
}
