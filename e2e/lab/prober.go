package lab

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// probeEvery is how often a prober connects; it is also how finely it measures.
	probeEvery = 20 * time.Millisecond
	// probeTimeout lets a first SYN be lost and sent again after a second: a client that is patient enough counts as
	// answered, at the moment it was.
	probeTimeout = 3 * time.Second
)

// Prober asks a URL over a new connection fifty times a second, whether or not earlier questions were answered.
type Prober struct {
	cancel context.CancelFunc
	done   chan struct{}
	begin  time.Time

	mu      sync.Mutex // guards all below
	sent    int
	failed  int
	answers []time.Time
}

// Probing is what a prober saw.
type Probing struct {
	Sent, Failed int
	Gap          time.Duration // the longest time between two answers
	At           time.Duration // when it began, since the prober began
}

// String prints one line.
func (p Probing) String() string {
	return fmt.Sprintf("gap=%s at=+%s sent=%d failed=%d", p.Gap.Round(time.Millisecond), p.At.Round(time.Millisecond), p.Sent, p.Failed)
}

// Probe begins to ask a URL from the client.
func (c *Client) Probe(ctx context.Context, url string) *Prober {
	ctx, cancel := context.WithCancel(ctx)
	p := &Prober{cancel: cancel, done: make(chan struct{}), begin: time.Now()}
	go func() {
		defer close(p.done)
		var questions sync.WaitGroup
		defer questions.Wait()
		tick := time.NewTicker(probeEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				questions.Go(func() { p.ask(ctx, c, url) })
			}
		}
	}()
	return p
}

func (p *Prober) ask(ctx context.Context, c *Client, url string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := c.Get(ctx, url)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && ctx.Err() == context.Canceled {
		return // stopped while it waited: it says nothing about the URL
	}
	p.sent++
	if err != nil {
		p.failed++
		return
	}
	p.answers = append(p.answers, time.Now())
}

// Stop ends the prober and answers what it saw. A gap that was still open counts up to now.
func (p *Prober) Stop() Probing {
	end := time.Now()
	p.cancel()
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	result := Probing{Sent: p.sent, Failed: p.failed}
	result.Gap, result.At = longestGap(p.begin, end, p.answers)
	return result
}

// longestGap answers the longest time without an answer between begin and end, and how long after begin it began.
func longestGap(begin, end time.Time, answers []time.Time) (gap, at time.Duration) {
	slices.SortFunc(answers, time.Time.Compare)
	last := begin
	for _, answer := range append(slices.Clone(answers), end) {
		if d := answer.Sub(last); d > gap {
			gap, at = d, last.Sub(begin)
		}
		last = answer
	}
	return gap, at
}
