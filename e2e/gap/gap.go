// Package gap measures how long new connections to an address fail, as a client outside the cluster sees it.
package gap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/berthlb/berth/e2e/lab/fabric"
)

const (
	// every is how often a connection is tried; it is also how finely a gap is measured.
	every = 20 * time.Millisecond
	// patience is less than the second after which a lost SYN is sent again (RFC 6298 section 2): an attempt is one SYN,
	// and stands for the moment at which it began.
	patience = 900 * time.Millisecond
)

// Attempt is one try to open a TCP connection.
type Attempt struct {
	Begin, End time.Time
	Err        error // nil if the connection was opened
}

// Record is attempts, in the order they began.
type Record []Attempt

// Gap is a time in which connections failed.
type Gap struct {
	Begin    time.Time // when the first attempt began that failed; zero if none did
	End      time.Time // when the first one after it succeeded; zero if none did
	Failed   int       // attempts between the two
	Relapses int       // attempts that failed although they began after End
}

// Closed tells whether connections failed and then succeeded again.
func (g Gap) Closed() bool { return !g.Begin.IsZero() && !g.End.IsZero() }

// Length is how long a closed gap was.
func (g Gap) Length() time.Duration { return g.End.Sub(g.Begin) }

// After finds the gap that a cause made: it begins with the first failed attempt that began after the cause.
func (r Record) After(cause time.Time) Gap {
	var g Gap
	for _, a := range r {
		switch {
		case a.Begin.Before(cause):
		case a.Err != nil && g.Begin.IsZero():
			g.Begin = a.Begin
		case a.Err == nil && !g.Begin.IsZero() && (g.End.IsZero() || a.End.Before(g.End)):
			g.End = a.End
		}
	}
	r.count(&g)
	return g
}

// count counts the attempts that failed in a gap, and after it.
func (r Record) count(g *Gap) {
	for _, a := range r {
		switch {
		case a.Err == nil || g.Begin.IsZero() || a.Begin.Before(g.Begin):
		case g.End.IsZero() || a.Begin.Before(g.End):
			g.Failed++
		default:
			g.Relapses++
		}
	}
}

// First answers the attempt that was the first to succeed.
func (r Record) First() (first Attempt, ok bool) {
	for _, a := range r {
		if a.Err == nil && (!ok || a.End.Before(first.End)) {
			first, ok = a, true
		}
	}
	return first, ok
}

// enough is how many attempts in a row must have succeeded before something is done to an address.
const enough = 25

// Steady answers an error unless the last attempts, half a second of them, all succeeded.
func (r Record) Steady() error {
	if len(r) < enough {
		return fmt.Errorf("the client has opened %d connections", len(r))
	}
	for _, attempt := range r[len(r)-enough:] {
		if attempt.Err != nil {
			return fmt.Errorf("a connection failed before anything was done: %w", attempt.Err)
		}
	}
	return nil
}

// Rate is the part of the attempts that were due from the first to the last which were made: less than 1 where the
// machine was too busy. A record of less than two has none, and answers 0.
func (r Record) Rate() float64 {
	if len(r) < 2 {
		return 0
	}
	due := r[len(r)-1].Begin.Sub(r[0].Begin)/every + 1
	return float64(len(r)) / float64(due)
}

// Meter tries to open a connection fifty times a second, whether or not earlier attempts have ended. Its methods may
// be called from any goroutine.
type Meter struct {
	space  *fabric.Space
	target string
	stop   func()
	done   chan struct{}

	mu     sync.Mutex // guards record
	record Record
}

// Start begins to try, from a network namespace. The end of ctx ends it without waiting for attempts under way.
func Start(ctx context.Context, space *fabric.Space, target netip.AddrPort) *Meter {
	stop := make(chan struct{})
	m := &Meter{
		space: space, target: target.String(), done: make(chan struct{}),
		stop: sync.OnceFunc(func() { close(stop) }),
	}
	go m.run(ctx, stop)
	return m
}

func (m *Meter) run(ctx context.Context, stop <-chan struct{}) {
	defer close(m.done)
	var attempts sync.WaitGroup
	defer attempts.Wait()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-tick.C:
			attempts.Go(func() { m.try(ctx) })
		}
	}
}

func (m *Meter) try(ctx context.Context) {
	attempt := Try(ctx, m.space, m.target)
	if attempt.Err != nil && ctx.Err() != nil {
		return // ended while it waited: it says nothing about the address
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record = append(m.record, attempt)
}

// Try makes one attempt: one SYN, whose answer is waited for.
func Try(ctx context.Context, space *fabric.Space, target string) Attempt {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	attempt := Attempt{Begin: time.Now()}
	conn, err := space.DialContext(ctx, "tcp", target)
	attempt.End, attempt.Err = time.Now(), err
	if err == nil {
		discard(conn)
	}
	return attempt
}

// discard resets a connection: closed in the usual way, thousands of them would wait for their ports' time to pass.
func discard(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without it the close is only slower
	}
	_ = conn.Close() // nothing was sent that could be lost
}

// Record answers the attempts that have ended so far. One that will fail is known to only after its patience is over.
func (m *Meter) Record() Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	record := slices.Clone(m.record)
	slices.SortFunc(record, func(a, b Attempt) int { return a.Begin.Compare(b.Begin) })
	return record
}

// Stop begins no more attempts, waits for those under way, and answers all. Stopping again answers the same.
func (m *Meter) Stop() Record {
	m.stop()
	<-m.done
	return m.Record()
}
