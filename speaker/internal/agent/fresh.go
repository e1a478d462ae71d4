package agent

import (
	"context"
	"sync"
	"time"
)

// The times of freshness (rule E9). When the API server goes, what the speakers last heard of it is up to askEvery old, so
// they turn stale up to so much apart. All of them are unsure before the first is stale (doubtAfter < staleAfter -
// askEvery), and stay so until all others can have heard again (doubtFor > askEvery + askTimeout).
const (
	askEvery   = 10 * time.Second
	askTimeout = 5 * time.Second
	lookEvery  = time.Second
	doubtAfter = 12 * time.Second
	doubtFor   = 20 * time.Second
	staleAfter = 30 * time.Second
)

// Freshness tells whether the speaker still hears from the API server. A stale speaker goes on announcing what it has,
// and says that it is stale: fresh nodes rank before it (rule E9). Its methods may be called from any goroutine.
type Freshness struct {
	mu    sync.Mutex // guards all below
	heard time.Time  // last
	since time.Time  // heard without a pause of doubtAfter
}

// NewFreshness starts as fresh, and unsure.
func NewFreshness() *Freshness {
	now := time.Now()
	return &Freshness{heard: now, since: now}
}

// Heard notes a successful call or a watch event.
func (f *Freshness) Heard() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.heard) > doubtAfter {
		f.since = now
	}
	f.heard = now
}

// Stale is true if nothing was heard for 30 s.
func (f *Freshness) Stale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.heard) > staleAfter
}

// Unsure is true if nothing was heard for 12 s, or something again only since 20 s: others may not have heard yet.
func (f *Freshness) Unsure() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.heard) > doubtAfter || time.Since(f.since) < doubtFor
}

// Run asks the API server every 10 s until the context ends, and calls changed when Stale or Unsure has changed.
func (f *Freshness) Run(ctx context.Context, ask func(context.Context) error, changed func()) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { f.askRegularly(ctx, ask) })
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	stale, unsure := f.Stale(), f.Unsure()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		nowStale, nowUnsure := f.Stale(), f.Unsure()
		if nowStale != stale || nowUnsure != unsure {
			stale, unsure = nowStale, nowUnsure
			changed()
		}
	}
}

func (f *Freshness) askRegularly(ctx context.Context, ask func(context.Context) error) {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.ask(ctx, ask)
	}
}

func (f *Freshness) ask(ctx context.Context, ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if ask(ctx) == nil {
		f.Heard()
	}
}
