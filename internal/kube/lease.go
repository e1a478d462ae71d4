package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrNoLease is why a write is not sent that might end after the lease does.
var ErrNoLease = errors.New("the lease may end before the write does")

// Lease is the lock of the leader election. It notes when it was last renewed, so that a leader that was cut off, or
// whose machine slept, knows that another one may have begun (rule A12, fault F130).
//
// Both clocks count: the monotonic one, since the wall clock may be set back, and the wall clock, since the monotonic
// one stands still while the machine sleeps. The time is taken before a renewal is sent: the API server may have
// stamped it any time after.
type Lease struct {
	resourcelock.Interface
	duration time.Duration
	now      func() time.Time

	mu      sync.Mutex
	renewed time.Time // zero: not held
}

// NewLease wraps a lock whose lease lasts for duration after each renewal.
func NewLease(lock resourcelock.Interface, duration time.Duration, now func() time.Time) *Lease {
	return &Lease{Interface: lock, duration: duration, now: now}
}

// Create makes the lease and takes it.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update renews, takes or releases the lease.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(record, func() error { return l.Interface.Update(ctx, record) })
}

// note sends a record and notes the time if it makes us the holder. A release counts from before it is sent.
func (l *Lease) note(record resourcelock.LeaderElectionRecord, send func() error) error {
	begun := l.now()
	ours := record.HolderIdentity == l.Identity()
	if !ours {
		l.set(time.Time{})
	}
	if err := send(); err != nil {
		return err // as it is: the election looks at the error itself
	}
	if ours {
		l.set(begun)
	}
	return nil
}

func (l *Lease) set(renewed time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = renewed
}

// Permit is nil if a write that begins now ends before the lease does.
func (l *Lease) Permit() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed.IsZero() {
		return ErrNoLease
	}
	now := l.now()
	elapsed := max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0))) // Round(0) strips the monotonic reading
	if elapsed+WriteTimeout > l.duration {
		return fmt.Errorf("renewed %s ago: %w", elapsed.Round(time.Millisecond), ErrNoLease)
	}
	return nil
}
