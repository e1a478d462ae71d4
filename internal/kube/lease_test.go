package kube_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/berthlb/berth/internal/kube"
)

// lock is a lock that a test decides about.
type lock struct {
	resourcelock.Interface // nil: nothing else is used

	err error
}

func (*lock) Identity() string { return "me" }

func (l *lock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return l.err }

func (l *lock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return l.err }

// TestF130WritesEndBeforeTheLease: with a lease of 6 s and writes of 2 s, a write may begin for 4 s after a renewal, on
// whichever clock is further.
func TestF130WritesEndBeforeTheLease(t *testing.T) {
	t.Parallel()
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	for name, c := range map[string]struct {
		reason string
		steps  func(lease *kube.Lease, lock *lock, pass func(time.Duration))
		permit bool
	}{
		"never held": {"nothing before the first renewal", func(*kube.Lease, *lock, func(time.Duration)) {}, false},
		"just taken": {"", func(l *kube.Lease, _ *lock, _ func(time.Duration)) { _ = l.Create(t.Context(), mine) }, true},
		"4 s later": {"it ends with the lease at the latest", func(l *kube.Lease, _ *lock, pass func(time.Duration)) {
			_ = l.Create(t.Context(), mine)
			pass(4 * time.Second)
		}, true},
		"a moment after": {"it might end after the lease", func(l *kube.Lease, _ *lock, pass func(time.Duration)) {
			_ = l.Create(t.Context(), mine)
			pass(4*time.Second + time.Millisecond)
		}, false},
		"renewed": {"", func(l *kube.Lease, _ *lock, pass func(time.Duration)) {
			_ = l.Create(t.Context(), mine)
			pass(4 * time.Second)
			_ = l.Update(t.Context(), mine)
			pass(4 * time.Second)
		}, true},
		"renewal failed": {"the lease counts from the last that was confirmed", func(l *kube.Lease, lock *lock, pass func(time.Duration)) {
			_ = l.Create(t.Context(), mine)
			pass(4 * time.Second)
			lock.err = errors.New("no answer")
			_ = l.Update(t.Context(), mine)
			pass(time.Second)
		}, false},
		"released": {"the next one may begin at once", func(l *kube.Lease, _ *lock, _ func(time.Duration)) {
			_ = l.Create(t.Context(), mine)
			_ = l.Update(t.Context(), resourcelock.LeaderElectionRecord{})
		}, false},
		"release without an answer": {"it may have arrived", func(l *kube.Lease, lock *lock, _ func(time.Duration)) {
			_ = l.Create(t.Context(), mine)
			lock.err = errors.New("no answer")
			_ = l.Update(t.Context(), resourcelock.LeaderElectionRecord{})
		}, false},
	} {
		now := time.Now()
		lock := &lock{}
		lease := kube.NewLease(lock, 6*time.Second, func() time.Time { return now })
		c.steps(lease, lock, func(d time.Duration) { now = now.Add(d) })
		if err := lease.Permit(); (err == nil) != c.permit || (err != nil && !errors.Is(err, kube.ErrNoLease)) {
			t.Errorf("%s: permit %v, want permitted %v: %s", name, err, c.permit, c.reason)
		}
	}
}

// TestBothClocksCount: after a suspend the monotonic clock has stood still, and after a correction the wall clock may
// have been set back.
func TestBothClocksCount(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	for name, later := range map[string]time.Time{
		"the machine slept: only the wall clock went on":                begun.Round(0).Add(10 * time.Second),
		"the wall clock was set back: only the monotonic clock went on": begun.Add(10 * time.Second),
	} {
		now := begun
		lease := kube.NewLease(&lock{}, 6*time.Second, func() time.Time { return now })
		_ = lease.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})
		now = later
		if lease.Permit() == nil {
			t.Errorf("%s, and a write is permitted", name)
		}
	}
}
