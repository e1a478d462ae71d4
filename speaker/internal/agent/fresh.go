package agent

import (
	"context"
	"sync/atomic"
	"time"
)

// The times of freshness (rule E9).
const (
	askEvery   = 10 * time.Second
	askTimeout = 5 * time.Second
	staleAfter = 30 * time.Second
)

// Freshness tells whether the speaker still hears from the API server. A stale speaker goes on announcing what it has,
// and says that it is stale: fresh nodes rank before it (rule E9). Heard and Stale may be called from any goroutine.
type Freshness struct {
	started time.Time
	heard   atomic.Int64 // since started, in nanoseconds on the monotonic clock
}

// NewFreshness starts as fresh.
func NewFreshness() *Freshness { return &Freshness{started: time.Now()} }

// Heard notes a successful call or a watch event.
func (f *Freshness) Heard() { f.heard.Store(int64(time.Since(f.started))) }

// Stale is true if nothing was heard for 30 s.
func (f *Freshness) Stale() bool {
	return time.Since(f.started)-time.Duration(f.heard.Load()) > staleAfter
}

// Run asks the API server every 10 s until the context ends, and calls changed when Stale has changed.
func (f *Freshness) Run(ctx context.Context, ask func(context.Context) error, changed func()) error {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	stale := f.Stale()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		f.ask(ctx, ask)
		if now := f.Stale(); now != stale {
			stale = now
			changed()
		}
	}
}

func (f *Freshness) ask(ctx context.Context, ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if ask(ctx) == nil {
		f.Heard()
	}
}
