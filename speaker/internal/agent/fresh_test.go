package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthlb/berth/speaker/internal/agent"
)

// TestFreshness is rule E9 for one speaker, through an outage of the API server from 60 s to 160 s.
func TestFreshness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		since := func() time.Duration { return time.Since(start) }
		fresh := agent.NewFreshness()
		var changes []time.Duration
		ask := func(context.Context) error {
			if now := since(); now >= 55*time.Second && now < 155*time.Second {
				return errors.New("gone")
			}
			return nil
		}
		done := make(chan error)
		go func() { done <- fresh.Run(ctx, ask, func() { changes = append(changes, since()) }) }()
		for _, moment := range []struct {
			at            time.Duration
			stale, unsure bool
		}{
			{at: 1 * time.Second, unsure: true}, // others may have started earlier, and be stale
			{at: 25 * time.Second},
			{at: 61 * time.Second},               // the first question that failed
			{at: 65 * time.Second, unsure: true}, // last heard at 50 s
			{at: 79 * time.Second, unsure: true},
			{at: 82 * time.Second, stale: true, unsure: true},
			{at: 159 * time.Second, stale: true, unsure: true},
			{at: 162 * time.Second, unsure: true}, // heard at 160 s
			{at: 178 * time.Second, unsure: true},
			{at: 182 * time.Second},
		} {
			time.Sleep(moment.at - since()) // in fake time
			synctest.Wait()
			if fresh.Stale() != moment.stale || fresh.Unsure() != moment.unsure {
				t.Errorf("at %s: stale %t, unsure %t", since(), fresh.Stale(), fresh.Unsure())
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(changes) != 5 {
			t.Errorf("changed was called at %v, want 5 times", changes)
		}
	})
}

// TestAllAreUnsureBeforeOneIsStale: whatever moments in their rounds the speakers are at when the API server goes and when
// it comes back, none is sure while another is stale.
func TestAllAreUnsureBeforeOneIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		ask := func(ctx context.Context) error {
			if now := time.Since(start); now < 60*time.Second || now >= 133*time.Second {
				return nil
			}
			<-ctx.Done() // no answer comes, not even a refusal
			return ctx.Err()
		}
		var all []*agent.Freshness
		done := make(chan error, 10)
		for range cap(done) {
			fresh := agent.NewFreshness()
			all = append(all, fresh)
			go func() { done <- fresh.Run(ctx, ask, func() {}) }()
			time.Sleep(time.Second) // in fake time
		}
		everStale := false
		for time.Since(start) < 200*time.Second {
			time.Sleep(100 * time.Millisecond) // in fake time
			synctest.Wait()
			stale, sure := count(all)
			everStale = everStale || stale > 0
			if stale > 0 && sure > 0 {
				t.Fatalf("after %s %d are sure while %d are stale", time.Since(start), sure, stale)
			}
		}
		if !everStale {
			t.Error("nobody was stale: the outage was too short to show anything")
		}
		cancel()
		for range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// count says how many are stale, and how many neither stale nor unsure.
func count(all []*agent.Freshness) (stale, sure int) {
	for _, fresh := range all {
		switch {
		case fresh.Stale():
			stale++
		case !fresh.Unsure():
			sure++
		}
	}
	return stale, sure
}
