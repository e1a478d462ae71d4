package agent

import (
	"context"
	"sync"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

// longestFailback is the longest failbackDelay that the API allows. After it every node is settled.
const longestFailback = 24 * time.Hour

// Settling tells how long this speaker has been back, for failbackDelay (rule E8). It counts with the process's own
// monotonic clock, so that no clock that is set can end or prolong a delay. Its methods may be called from any goroutine.
type Settling struct {
	delays func() []time.Duration // those in use

	mu      sync.Mutex // guards all below
	began   time.Time  // zero: not yet
	settled bool       // from the start
}

// NewSettling makes one that has not begun: it is not settled, and has outlived nothing.
func NewSettling(delays func() []time.Duration) *Settling { return &Settling{delays: delays} }

// Begin says that this speaker has met the others, and starts to count. Where none of them is settled it is settled from
// the start: the cluster starts, or it is the first node. returned is what it said of itself before a restart that it had
// announced; nil without one. Then it goes on from there: to restart is not to come back (rule E5).
func (s *Settling) Begin(others map[string]*cluster.Member, returned *cluster.Member) {
	settled := true
	for _, other := range others {
		settled = settled && !other.Settled
	}
	began := time.Now()
	if returned != nil {
		settled, began = settled || returned.Settled, began.Add(-returned.Outlived)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.settled = began, settled
}

// Now is what a node says of itself: that it is settled, or which of the delays in use it has outlived.
func (s *Settling) Now() (settled bool, outlived time.Duration) {
	delays := s.delays()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		return false, 0
	}
	back := time.Since(s.began)
	if s.settled || back >= longestFailback {
		return true, 0
	}
	for _, delay := range delays {
		if delay <= back {
			outlived = max(outlived, delay)
		}
	}
	return false, outlived
}

// Run calls changed when what Now says has changed, until the context ends.
func (s *Settling) Run(ctx context.Context, changed func()) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	settled, outlived := s.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		nowSettled, nowOutlived := s.Now()
		if nowSettled != settled || nowOutlived != outlived {
			settled, outlived = nowSettled, nowOutlived
			changed()
		}
	}
}
