package assign

import (
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/reason"
)

// write is one writer: it writes answers until there are no more. A write that has begun is finished also when ctx ends:
// it is short, and the lease is released only after it.
func (a *Assigner) write(ctx context.Context) {
	for job := range a.jobs {
		result := a.send(context.WithoutCancel(ctx), job)
		a.Metrics.count(result.Outcome)
		a.conclude(ctx, job, result)
		a.mu.Lock()
		if a.queue.done(job.name) {
			a.wake([]cluster.Name{job.name})
		}
		a.mu.Unlock()
	}
}

// send writes an answer.
func (a *Assigner) send(ctx context.Context, j job) kube.Result {
	switch j.decision.Verdict {
	case ipam.Leave:
		return kube.Result{Outcome: kube.Unchanged}
	case ipam.Clear:
		return a.Writer.Clear(ctx, j.object)
	default:
		return a.sendAllocation(ctx, j)
	}
}

// conclude notes in the ledger what became of a write. Where it was not written, or nobody knows, the API server is
// asked until that is clear: until then the Service is not decided about again.
func (a *Assigner) conclude(ctx context.Context, j job, result kube.Result) {
	switch result.Outcome {
	case kube.Unchanged:
		a.conclusion(j, ipam.Written, nil)
	case kube.Written:
		a.conclusion(j, ipam.Written, result.Object)
		a.announce(j, result.Object)
	case kube.NotWritten:
		a.conclusion(j, ipam.NotWritten, nil)
		a.Log.V(1).Info("status not written, looking again", "service", j.name.String(), "error", result.Err.Error())
		a.ask(ctx, j, false)
	case kube.Unknown:
		a.conclusion(j, ipam.Unknown, nil)
		a.Log.Info("status may not have been written, looking again", "service", j.name.String(), "error", result.Err.Error())
		a.ask(ctx, j, true)
	}
}

// again makes a Service due whose write has failed: at once the first time, then ever later, so that one that can never
// be written keeps nobody busy. The caller holds the lock.
func (a *Assigner) again(name cluster.Name) {
	known := a.known[name]
	if known == nil {
		return
	}
	known.failures++
	if known.failures == 1 {
		a.wake([]cluster.Name{name})
		return
	}
	a.later(name, min(100*time.Millisecond<<min(known.failures, 10), time.Minute))
}

// pausing is a Service that is due later.
type pausing struct {
	until time.Time
	timer *time.Timer
}

// later makes a Service due after a pause. One that is due earlier than that stays so: who still has to wait then says so
// again, and no Service has more than one timer. The caller holds the lock.
func (a *Assigner) later(name cluster.Name, pause time.Duration) {
	until := time.Now().Add(pause)
	if before, pauses := a.pausing[name]; pauses {
		if !until.Before(before.until) {
			return
		}
		before.timer.Stop()
	}
	a.pausing[name] = pausing{until, time.AfterFunc(pause, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.pausing[name].until.Equal(until) {
			delete(a.pausing, name)
		}
		a.wake([]cluster.Name{name})
	})}
}

// conclusion settles a write, and takes the object in as it is now where that is known.
func (a *Assigner) conclusion(j job, outcome ipam.Outcome, now *corev1.Service) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle(j.name, outcome)
	known := a.known[j.name]
	if outcome != ipam.Written || known == nil || known.object.UID != j.object.UID {
		return
	}
	known.given, known.failures, known.rivalry.open = j.decision.Addresses, 0, false
	if now != nil {
		now.ManagedFields = nil
		if a.saw(now) && !sameWish(known.service, a.known[j.name].service) {
			a.wake([]cluster.Name{j.name})
		}
	}
}

// sameWish is true if two states of a Service differ in their status at most. An apply is bound to the state it was made
// from, but not the request that empties a list which another program owns too: its answer may have a user's edit.
func sameWish(a, b *cluster.Service) bool {
	before, after := *a, *b
	before.Recorded, after.Recorded = cluster.Record{}, cluster.Record{}
	return reflect.DeepEqual(before, after)
}

// ask reads the Service from the API server until it answers, and decides about it anew. open is true if the outcome of
// the write is unknown: it is over once the object has another resourceVersion than the write was bound to, since then
// the write has either happened or never will. Before that the same answer is sent again, which settles it too.
func (a *Assigner) ask(ctx context.Context, j job, open bool) {
	a.read(ctx, j.name, func(live *corev1.Service) {
		if open && live != nil && live.ResourceVersion != j.object.ResourceVersion {
			outcome := ipam.NotWritten
			if kube.Holds(live, j.decision.Addresses) {
				outcome = ipam.Written
			}
			a.settle(j.name, outcome)
		}
		a.takeLive(j.name, live)
		a.again(j.name)
	})
}

// read reads a Service from the API server until it answers, and takes what it said under the lock; nil if there is none of
// that name. One that is of another type by now is tidied: the watch tells only those who still know it.
func (a *Assigner) read(ctx context.Context, name cluster.Name, take func(live *corev1.Service)) {
	retry(ctx, func() bool {
		live, err := a.get(ctx, name)
		if err != nil && !isGone(err) {
			return false
		}
		if isGone(err) {
			live = nil
		}
		a.mu.Lock()
		take(live)
		a.mu.Unlock()
		if live != nil && live.Spec.Type != corev1.ServiceTypeLoadBalancer && kube.HasRecord(live) {
			a.tidy(ctx, name)
		}
		return true
	})
}

// takeLive takes in what the API server said about a Service; nil if there is none of that name. The caller holds the
// lock.
func (a *Assigner) takeLive(name cluster.Name, live *corev1.Service) {
	known := a.known[name]
	switch {
	case live == nil || live.Spec.Type != corev1.ServiceTypeLoadBalancer:
		if known != nil {
			a.forget(name)
		}
	default:
		live.ManagedFields = nil
		if a.saw(live) {
			a.wake([]cluster.Name{name})
		}
	}
}

// get reads a Service from the API server itself.
func (a *Assigner) get(ctx context.Context, name cluster.Name) (*corev1.Service, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.WriteTimeout)
	defer cancel()
	return a.Services.Get(ctx, name.Namespace, name.Name)
}

func isGone(err error) bool { return err != nil && apierrors.IsNotFound(err) }

// announce tells people what changed: once, in an event and in the log (rule O5).
func (a *Assigner) announce(j job, now *corev1.Service) {
	if j.decision.Verdict == ipam.Clear {
		a.Log.Info("record removed from a Service that is not ours any more", "service", j.name.String())
		return
	}
	said := allocatedCondition(now)
	before := allocatedCondition(j.object)
	moved := !kube.Holds(j.object, j.decision.Addresses)
	if said == nil || (!moved && before != nil && before.Reason == said.Reason && (before.Message == said.Message || said.Reason == string(reason.Allocated))) {
		return
	}
	why := reason.Reason{Word: reason.Word(said.Reason), Message: said.Message}
	a.Log.Info("answer changed", "service", j.name.String(), "reason", said.Reason, "message", said.Message)
	if why.Word == reason.Allocated {
		why.Message = "assigned " + why.Message
	}
	a.Events.Event(reference(now), "Allocate", why)
}

func allocatedCondition(object *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionAllocated)
}

// sendAllocation writes addresses and reason, minding rivals (rule A11).
func (a *Assigner) sendAllocation(ctx context.Context, j job) kube.Result {
	allocation := kube.Allocation{
		Addresses:  j.decision.Addresses,
		Pools:      j.decision.Pools,
		KeepList:   j.decision.Verdict == ipam.Foreign,
		Allocated:  kube.Condition{True: j.decision.Complete, Reason: j.decision.Reason},
		Renumbered: j.decision.Renumbered,
	}
	if stored := storedReason(j); stays(j, stored) {
		allocation.Allocated.Reason = stored
	}
	if j.decision.Verdict == ipam.Foreign {
		allocation.Addresses = nil
		return a.Writer.SetAllocation(ctx, j.object, allocation, false)
	}
	if calm := yielded(j); calm > 0 {
		a.mu.Lock()
		a.later(j.name, calm)
		a.mu.Unlock()
		return kube.Result{Outcome: kube.Unchanged}
	}
	if rival := a.contest(ctx, j); rival != "" {
		return a.Writer.SetAllocation(ctx, j.object, yield(allocation, rival), false)
	}
	result := a.Writer.SetAllocation(ctx, j.object, allocation, false)
	if result.Rival == "" {
		return result
	}
	a.Log.Info("taking the list of addresses over from another program", "service", j.name.String(), "manager", result.Rival)
	return a.Writer.SetAllocation(ctx, j.object, allocation, true)
}

// storedReason is the reason in the Service's condition; the zero value if it has none.
func storedReason(j job) reason.Reason {
	stored := allocatedCondition(j.object)
	if stored == nil {
		return reason.Reason{}
	}
	return reason.Reason{Word: reason.Word(stored.Reason), Message: stored.Message}
}

// stays is true if the stored reason may stay although the decision gives another (rule P6): it is just as true, or it
// tells of a move because of another Service, of which a later start does not know any more.
func stays(j job, stored reason.Reason) bool {
	if j.decision.Says(stored) {
		return true
	}
	moved := stored.Word == reason.MovedDuplicate || stored.Word == reason.SharingBroken
	return moved && j.decision.Reason.Word == reason.Allocated && kube.Holds(j.object, j.decision.Addresses)
}
