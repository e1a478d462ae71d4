package agent

import "time"

// The pace of the loop: quick for one change, bounded in cost for many.
const (
	settle   = 50 * time.Millisecond  // after the first wake, so that a burst of events is one run
	rest     = 15                     // times the last run's duration between runs: at most a sixteenth of a core
	maxRest  = time.Second            // but never longer
	confirms = 250 * time.Millisecond // how often ownership is confirmed while nothing happens (rule P1 allows 1 s)
	resync   = 30 * time.Second       // how often everything is decided anew without a wake (fault F81)
)

// A speaker is to need a tenth of a core at most while a hundred EndpointSlices change in a second (make bench
// BENCH=plan-cpu). The loop may take a part of that only: to hear of the changes, and to collect the garbage of both, comes
// on top.

// pace says when the loop may run next.
type pace struct {
	ended time.Time     // when the last run ended
	took  time.Duration // how long it took
	first time.Time     // the first wake since; zero if there is none
	again time.Time     // when the decision may change by itself; zero if it does not
}

// woken notes a wake.
func (p *pace) woken(now time.Time) {
	if p.first.IsZero() {
		p.first = now
	}
}

// ran notes a run.
func (p *pace) ran(started, ended, again time.Time) {
	p.ended, p.took, p.first, p.again = ended, ended.Sub(started), time.Time{}, again
}

// next is when the loop is to run: settled after the first wake and rested after the last run, at the latest when a
// resync is due.
func (p *pace) next() time.Time {
	due := p.ended.Add(resync)
	if !p.again.IsZero() && p.again.Before(due) {
		due = p.again
	}
	if p.first.IsZero() {
		return due
	}
	at := p.first.Add(settle)
	if rested := p.ended.Add(min(rest*p.took, maxRest)); rested.After(at) {
		at = rested
	}
	if at.After(due) {
		return due
	}
	return at
}
