package agent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/agent"
)

// TestF77SettlingCountsOwnTime: a speaker that finds a settled one says which of the delays in use it has outlived, when it
// has, and is settled after a day (rule E8).
func TestF77SettlingCountsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		settling := agent.NewSettling(func() []time.Duration { return []time.Duration{time.Minute, time.Hour} })
		if settled, outlived := settling.Now(); settled || outlived != 0 {
			t.Errorf("before it has begun: settled %t, outlived %s", settled, outlived)
		}
		settling.Begin(map[string]*cluster.Member{"n2": {Node: "n2", Settled: true}, "n3": {Node: "n3"}}, nil)
		var changes atomic.Int32
		start, done := time.Now(), make(chan error)
		go func() { done <- settling.Run(ctx, func() { changes.Add(1) }) }()
		for _, moment := range []struct {
			at       time.Duration
			settled  bool
			outlived time.Duration
			changes  int32
		}{
			{at: 59 * time.Second},
			{at: 62 * time.Second, outlived: time.Minute, changes: 1},
			{at: 59 * time.Minute, outlived: time.Minute, changes: 1},
			{at: time.Hour + 2*time.Second, outlived: time.Hour, changes: 2},
			{at: 24*time.Hour + 2*time.Second, settled: true, changes: 3},
		} {
			time.Sleep(moment.at - time.Since(start)) // in fake time
			synctest.Wait()
			settled, outlived := settling.Now()
			if settled != moment.settled || outlived != moment.outlived || changes.Load() != moment.changes {
				t.Errorf("at %s: settled %t, outlived %s, %d changes; want %+v", moment.at, settled, outlived, changes.Load(), moment)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestTheFirstIsSettled: where none is settled, as in a cluster that starts, the speaker is from the start.
func TestTheFirstIsSettled(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		others   map[string]*cluster.Member
		returned *cluster.Member
		want     bool
	}{
		"Alone":   {reason: "there is no other", want: true},
		"Start":   {reason: "the others start too", others: map[string]*cluster.Member{"n2": {Node: "n2"}}, want: true},
		"Another": {reason: "one was there before", others: map[string]*cluster.Member{"n2": {Node: "n2", Settled: true}}, want: false},
		"Restarted": {
			reason: "it was settled when it said that it would be back", want: true,
			others: map[string]*cluster.Member{"n2": {Node: "n2", Settled: true}}, returned: &cluster.Member{Node: "n1", Settled: true},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settling := agent.NewSettling(func() []time.Duration { return nil })
			settling.Begin(c.others, c.returned)
			if settled, _ := settling.Now(); settled != c.want {
				t.Errorf("%s: settled %t", c.reason, settled)
			}
		})
	}
}
