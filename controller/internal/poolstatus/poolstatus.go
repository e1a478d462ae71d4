// Package poolstatus writes the status of pools and of advertisements: how many addresses a pool has, how many are
// assigned and can still be given, and whether each object is used as written. It runs on the leader only.
package poolstatus

import (
	"context"
	"fmt"
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
	"github.com/berthlb/berth/internal/reason"
)

// pace is the least time between two writes of one object.
const pace = time.Second

// Writer writes statuses: kube.ObjectWriter.
type Writer interface {
	SetPoolStatus(ctx context.Context, pool *v1beta1.IPAddressPool, status v1beta1.IPAddressPoolStatus) error
	SetAdvertisementStatus(ctx context.Context, advertisement *v1beta1.L2Advertisement, status v1beta1.L2AdvertisementStatus) error
}

// Recorder records events: kube.Recorder.
type Recorder interface {
	Event(regarding corev1.ObjectReference, action string, said reason.Reason)
}

// Options are what a Reporter works with.
type Options struct {
	// Reader reads pools and advertisements: the informers' cache.
	Reader client.Reader
	// Usage counts a pool's addresses; false if the allocator does not know the pool (yet).
	Usage   func(pool string) (ipam.Usage, bool)
	Writer  Writer
	Events  Recorder
	Metrics *Metrics
	Log     logr.Logger
	Now     func() time.Time
}

// Reporter writes the statuses. Wake may be called by anybody; the rest is Start's own.
type Reporter struct {
	Options

	wake           chan struct{} // of one
	pools          map[types.UID]v1beta1.IPAddressPoolStatus
	advertisements map[types.UID]v1beta1.L2AdvertisementStatus
}

// New makes a Reporter; Start runs it.
func New(options Options) *Reporter {
	return &Reporter{
		Options:        options,
		wake:           make(chan struct{}, 1),
		pools:          map[types.UID]v1beta1.IPAddressPoolStatus{},
		advertisements: map[types.UID]v1beta1.L2AdvertisementStatus{},
	}
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

// Start looks at everything after each wake, but not before a second has passed since the last time.
func (r *Reporter) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		if err := r.report(ctx); err != nil && ctx.Err() == nil {
			r.Log.Info("status not written, trying again", "error", err.Error())
			r.Wake()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pace):
		}
	}
}

// report writes each status that is not what it should be. One that cannot be written does not keep the others from it;
// the first error is returned.
func (r *Reporter) report(ctx context.Context) error {
	var pools v1beta1.IPAddressPoolList
	if err := r.Reader.List(ctx, &pools); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	var advertisements v1beta1.L2AdvertisementList
	if err := r.Reader.List(ctx, &advertisements); err != nil {
		return fmt.Errorf("list advertisements: %w", err)
	}
	first := r.reportPools(ctx, pools.Items)
	if err := r.reportAdvertisements(ctx, advertisements.Items, pools.Items); err != nil && first == nil {
		first = err
	}
	return first
}

// reportPools writes the pools' statuses. What was written last counts as stored too: the cache may not have it yet.
func (r *Reporter) reportPools(ctx context.Context, pools []v1beta1.IPAddressPool) error {
	var first error
	sent := map[types.UID]v1beta1.IPAddressPoolStatus{}
	r.Metrics.reset()
	for i := range pools {
		pool := &pools[i]
		usage, known := r.Usage(pool.Name)
		if !known {
			continue
		}
		r.Metrics.set(pool.Name, usage)
		last, had := r.pools[pool.UID]
		wanted := poolStatus(pool, usage, r.Now())
		if equality.Semantic.DeepEqual(pool.Status, wanted) || (had && samePool(last, wanted)) {
			sent[pool.UID] = wanted
			continue
		}
		if err := r.Writer.SetPoolStatus(ctx, pool, wanted); err != nil {
			first = firstOf(first, err)
			continue
		}
		sent[pool.UID] = wanted
		r.tell("IPAddressPool", pool, pool.Status.Conditions, wanted.Conditions)
	}
	r.pools = sent
	return first
}

// reportAdvertisements writes the advertisements' statuses.
func (r *Reporter) reportAdvertisements(ctx context.Context, advertisements []v1beta1.L2Advertisement, pools []v1beta1.IPAddressPool) error {
	var first error
	names := map[string]bool{}
	for i := range pools {
		names[pools[i].Name] = true
	}
	sent := map[types.UID]v1beta1.L2AdvertisementStatus{}
	for i := range advertisements {
		advertisement := &advertisements[i]
		last, had := r.advertisements[advertisement.UID]
		wanted := advertisementStatus(advertisement, names, r.Now())
		if equality.Semantic.DeepEqual(advertisement.Status, wanted) || (had && sameConditions(last.Conditions, wanted.Conditions)) {
			sent[advertisement.UID] = wanted
			continue
		}
		if err := r.Writer.SetAdvertisementStatus(ctx, advertisement, wanted); err != nil {
			first = firstOf(first, err)
			continue
		}
		sent[advertisement.UID] = wanted
		r.tell("L2Advertisement", advertisement, advertisement.Status.Conditions, wanted.Conditions)
	}
	r.advertisements = sent
	return first
}

// tell records an event where an object begins not to be used as written, or for another reason than before (rule O5).
func (r *Reporter) tell(kind string, object client.Object, before, now []metav1.Condition) {
	was, is := meta.FindStatusCondition(before, v1beta1.ConditionReady), meta.FindStatusCondition(now, v1beta1.ConditionReady)
	if is.Status == metav1.ConditionTrue || (was != nil && was.Reason == is.Reason && was.Message == is.Message) {
		return
	}
	r.Events.Event(corev1.ObjectReference{
		APIVersion: v1beta1.GroupVersion().String(), Kind: kind, Name: object.GetName(), UID: object.GetUID(),
	}, "Check", reason.Reason{Word: reason.Word(is.Reason), Message: is.Message})
}

func firstOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
