// Package poolstatus writes the status of pools, reservations and advertisements: how many addresses a pool has, how many
// are assigned and can still be given, which are skipped or kept from others, and whether each object is used as written.
// It runs on the leader only.
package poolstatus

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/reason"
)

// pace is the least time between two writes of one object. A look at everything takes place at most ten times in that,
// and takes up a tenth of the time, since it keeps the allocator from its work; but none is put off for very long.
const (
	pace     = time.Second
	lookPace = pace / 10
	share    = 10
	latest   = 2 * pace
)

// trust is for how long a status counts as stored that was written and that the cache does not show: it may lag behind.
const trust = 10 * time.Second

// Writer writes statuses: kube.ObjectWriter.
type Writer interface {
	SetPoolStatus(ctx context.Context, pool *v1beta1.IPAddressPool, status v1beta1.IPAddressPoolStatus) error
	SetReservationStatus(ctx context.Context, reservation *v1beta1.AddressReservation, status v1beta1.AddressReservationStatus) error
	SetAdvertisementStatus(ctx context.Context, advertisement *v1beta1.L2Advertisement, status v1beta1.L2AdvertisementStatus) error
}

// Recorder records events: kube.Recorder.
type Recorder interface {
	Event(regarding corev1.ObjectReference, action string, said reason.Reason)
}

// Allocator knows how pools and reservations are used: assign.Assigner. known is false if it does not know the object
// (yet).
type Allocator interface {
	Usage(pool string) (usage ipam.Usage, known bool)
	Reservation(name string) (problem *reason.Reason, known bool)
	// Ended is closed once what it knows changes no more.
	Ended() <-chan struct{}
}

// Options are what a Reporter works with.
type Options struct {
	// Reader reads pools, reservations and advertisements: the informers' cache.
	Reader    client.Reader
	Allocator Allocator
	Writer    Writer
	Events    Recorder
	Metrics   *Metrics
	Log       logr.Logger
	Now       func() time.Time
}

// Reporter writes the statuses. Wake may be called by anybody; the rest is Start's own.
type Reporter struct {
	Options

	wake chan struct{} // of one
	sent map[types.UID]sent
}

// sent is what was written last of an object, and when.
type sent struct {
	status any // without the times of its conditions
	at     time.Time
}

// New makes a Reporter; Start runs it.
func New(options Options) *Reporter {
	return &Reporter{Options: options, wake: make(chan struct{}, 1), sent: map[types.UID]sent{}}
}

// Wake says that something may have changed. It never blocks.
func (r *Reporter) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // raised already
	}
}

// NeedLeaderElection is true: only the process that assigns knows the counts.
func (r *Reporter) NeedLeaderElection() bool { return true }

// Start looks at everything after each wake, and when something that was put off is due. What is still put off when ctx ends
// is written then: the next controller goes by what the statuses say cools down.
func (r *Reporter) Start(ctx context.Context) error {
	due := time.NewTimer(pace)
	due.Stop() // until something is put off
	defer due.Stop()
	var again time.Time
	for {
		select {
		case <-ctx.Done():
			return r.end(ctx, again)
		case <-r.wake:
		case <-due.C:
		}
		begun := r.Now()
		var err error
		again, err = r.report(ctx, pace)
		if err != nil && ctx.Err() == nil {
			r.Log.Info("status not written, trying again", "error", err.Error())
		}
		ended := r.Now()
		if !again.IsZero() {
			due.Reset(again.Sub(ended))
		}
		select {
		case <-ctx.Done():
			return r.end(ctx, again)
		case <-time.After(min(max(lookPace, share*ended.Sub(begun)), latest)):
		}
	}
}

// end writes what is put off, if there may be anything: once the allocator has ended, since the answer to its last write may
// free an address that has to cool down.
func (r *Reporter) end(ctx context.Context, again time.Time) error {
	select {
	case <-r.Allocator.Ended():
	case <-time.After(kube.WriteTimeout):
	}
	select {
	case <-r.wake:
	default:
		if again.IsZero() {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), kube.WriteTimeout)
	defer cancel()
	if _, err := r.report(ctx, 0); err != nil {
		r.Log.Info("status not written at the end", "error", err.Error())
	}
	return nil
}

// report writes each status that is not what it should be, and tells when to look again at what has to wait: the zero time
// if nothing has. rest is how long the last write of an object must be ago. One that cannot be written does not keep the
// others from it; the first error is returned.
func (r *Reporter) report(ctx context.Context, rest time.Duration) (again time.Time, err error) {
	subjects, err := r.subjects(ctx)
	if err != nil {
		return r.Now().Add(pace), err
	}
	kept := make(map[types.UID]sent, len(subjects))
	for _, s := range subjects {
		last := r.sent[s.object.GetUID()]
		due, writeErr := r.settle(ctx, s, &last, rest)
		if !due.IsZero() && (again.IsZero() || due.Before(again)) {
			again = due
		}
		if writeErr != nil && err == nil {
			err = writeErr
		}
		kept[s.object.GetUID()] = last
	}
	r.sent = kept
	return again, err
}

// settle writes the status of one object if it is not what it should be and the last write is long enough ago. due is when
// to look again, if that is needed.
func (r *Reporter) settle(ctx context.Context, s subject, last *sent, rest time.Duration) (due time.Time, err error) {
	now := r.Now()
	if now.Before(last.at.Add(rest)) {
		return last.at.Add(rest), nil
	}
	status, write := s.look()
	if status == nil {
		return time.Time{}, nil
	}
	wanted := bare(status)
	switch {
	case equality.Semantic.DeepEqual(bare(s.stored), wanted):
		return time.Time{}, nil
	case now.Before(last.at.Add(trust)) && equality.Semantic.DeepEqual(last.status, wanted):
		return last.at.Add(trust), nil
	}
	before := s.stored
	if last.status != nil && now.Before(last.at.Add(trust)) { // the cache may not show it yet
		before = last.status
	}
	*last = sent{at: now}
	if err := write(ctx); err != nil {
		return now.Add(pace), err
	}
	last.status = wanted
	r.tell(s, before, status)
	return time.Time{}, nil
}

// tell records an event where an object begins not to be used as written, or for another reason than before (rule O5).
func (r *Reporter) tell(s subject, before, status any) {
	was := meta.FindStatusCondition(conditionsOf(before), v1beta1.ConditionReady)
	is := meta.FindStatusCondition(conditionsOf(status), v1beta1.ConditionReady)
	if is.Status == metav1.ConditionTrue || (was != nil && was.Reason == is.Reason && was.Message == is.Message) {
		return
	}
	r.Events.Event(corev1.ObjectReference{
		APIVersion: v1beta1.GroupVersion().String(), Kind: s.kind, Name: s.object.GetName(), UID: s.object.GetUID(),
	}, "Check", reason.Reason{Word: reason.Word(is.Reason), Message: is.Message})
}
