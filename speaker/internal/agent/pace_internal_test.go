package agent

import (
	"testing"
	"time"
)

// TestPace covers the loop's pace: one change is quick, many are bounded, losses are not the pace's business.
func TestPace(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason string
		took   time.Duration // of the last run, which ended at start
		wakes  []time.Duration
		again  time.Time // when the decision changes by itself
		want   time.Duration
	}{
		"Quiet":          {reason: "without a wake everything is decided anew every 30 s", want: 30 * time.Second},
		"ByItself":       {reason: "the moment at which a node's trouble counts is not slept through", again: start.Add(7 * time.Second), want: 7 * time.Second},
		"One":            {reason: "50 ms after the wake", took: time.Millisecond, wakes: []time.Duration{time.Second}, want: 1050 * time.Millisecond},
		"Burst":          {reason: "50 ms after the first, not the last wake", took: time.Millisecond, wakes: []time.Duration{time.Second, 1040 * time.Millisecond}, want: 1050 * time.Millisecond},
		"Costly":         {reason: "not before 15 times the last run's duration", took: 40 * time.Millisecond, wakes: []time.Duration{0}, want: 600 * time.Millisecond},
		"VeryCostly":     {reason: "but after a second at the latest", took: time.Minute, wakes: []time.Duration{0}, want: time.Second},
		"ResyncIsSooner": {reason: "a resync that is due does not wait", took: time.Millisecond, wakes: []time.Duration{29990 * time.Millisecond}, want: 30 * time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p pace
			p.ran(start.Add(-c.took), start, c.again)
			for _, wake := range c.wakes {
				p.woken(start.Add(wake))
			}
			if got := p.next().Sub(start); got != c.want {
				t.Errorf("%s: next run after %v, want %v", c.reason, got, c.want)
			}
		})
	}
}
