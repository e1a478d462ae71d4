package proxy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// twin is kube-proxy as far as its rounds go (pkg/proxy/runner and syncProxyRules in Kubernetes), with times since some
// moment. It is played to its end before it is read.
type twin struct{ rounds []round }

type round struct {
	began, finished, counted time.Duration
	failed                   bool
}

// play has kube-proxy do what the changes ask for, each of which was queued at a time, in order. Rounds take as long as
// took says.
func play(queued []time.Duration, took func() time.Duration, fails func() bool) twin {
	var k twin
	ready := time.Duration(0) // when it has rested
	for i := 0; i < len(queued); {
		began := max(ready, queued[i])
		r := round{began: began, finished: began + took(), failed: fails()}
		r.counted = r.finished + time.Millisecond
		k.rounds = append(k.rounds, r)
		for i < len(queued) && queued[i] <= began {
			i++
		}
		ready = r.counted + time.Second
		if r.failed {
			queued[i-1], i = r.counted, i-1 // it is done again
		}
	}
	return k
}

// read is what its metrics say at a time.
func (k twin) read(queued []time.Duration, now time.Duration) syncs {
	s := syncs{count: 1, spent: 60 * time.Millisecond} // what was before
	s.finished, s.queued = start().Add(-time.Minute), start().Add(-time.Minute)
	for _, at := range queued {
		if at <= now {
			s.queued = start().Add(at)
		}
	}
	for _, r := range k.rounds {
		if r.finished <= now && !r.failed {
			s.finished = start().Add(r.finished)
		}
		if r.counted <= now {
			s.count++
			s.spent += r.counted - r.began
		}
	}
	return s
}

// holds tells whether the rules hold, at a time, what was queued at another.
func (k twin) holds(change, now time.Duration) bool {
	for _, r := range k.rounds {
		if !r.failed && r.began >= change && r.finished <= now {
			return true
		}
	}
	return false
}

// unclear is true if something happens that its metrics do not tell to who begins to read them at a time.
func (k twin) unclear(queued []time.Duration, first time.Duration) bool {
	for _, r := range k.rounds {
		if r.failed && r.counted <= first {
			return true
		}
		for _, at := range queued {
			if at > r.began && at <= r.began+sameMoment {
				return true
			}
		}
	}
	return false
}

func start() time.Time { return time.Unix(1_800_000_000, 0) }

// TestRoundsIncludeOnlyWhatTheyDo: whenever the readings say that kube-proxy's rules hold a change, they do. Two things
// cannot be told from its metrics, and are left out: a change that comes in within a moment after a round began, and a
// round that failed before the first reading.
func TestRoundsIncludeOnlyWhatTheyDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		span := func(label string, low, high int) time.Duration {
			return time.Duration(rapid.IntRange(low, high).Draw(t, label)) * time.Millisecond
		}
		var queued []time.Duration
		at := time.Duration(0)
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			at += span("after", 5, 900)
			queued = append(queued, at)
		}
		change := queued[rapid.IntRange(0, len(queued)-1).Draw(t, "ours")]
		seen := change + span("seen", -int(heardWithin/time.Millisecond), 1500)
		usual := span("usual", 10, 200)
		k := play(append([]time.Duration{}, queued...),
			func() time.Duration { return usual + span("more", 0, 40) },
			func() bool { return rapid.IntRange(0, 9).Draw(t, "fails") == 0 })
		if k.unclear(queued, seen) {
			t.Skip("cannot be told")
		}
		var rs rounds
		opened := time.Duration(-1)
		for now := seen; now < seen+openAnyway && opened < 0; now += span("poll", 45, 70) {
			rs.add(k.read(queued, now))
			if rs.include(start().Add(seen), start().Add(now)) {
				opened = now
			}
		}
		if opened >= 0 && !k.holds(change, opened) {
			t.Fatalf("queued at %s, seen at %s, opened at %s; rounds %+v, read as %+v", change, seen, opened, k.rounds, rs)
		}
	})
}
