package assign

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/reason"
)

// rivalry is another program's writing a Service's list of addresses against us.
type rivalry struct {
	reversals []time.Time // within the last minute
	open      bool        // the last of them has been counted, and what we write against it has not arrived
	manager   string      // not "": we have stopped
	stopped   time.Time
}

// The measure of a rivalry (rule A11): so many reversals within a window end it. After a while we try again, since
// nobody tells us that the other program has gone.
const (
	rivalLimit  = 5
	rivalWindow = time.Minute
	rivalCalm   = 10 * time.Minute
)

// reversal counts one reversal, once however often we try to write against it, and is true if it is one too many.
func (r *rivalry) reversal(now time.Time) bool {
	if r.open {
		return false
	}
	r.open = true
	r.reversals = slices.DeleteFunc(slices.Clone(r.reversals), func(t time.Time) bool { return now.Sub(t) > rivalWindow })
	r.reversals = append(r.reversals, now)
	return len(r.reversals) >= rivalLimit
}

// contest looks whether somebody has undone what we wrote, and returns that program's name if we have stopped writing
// the list because of it; "" if we write it. We begin again when the list is ours again, or the Service is to have
// something else.
func (a *Assigner) contest(ctx context.Context, j job) string {
	name, over := a.reversal(j)
	if !over {
		return ""
	}
	stopped := name == ""
	if stopped {
		name = a.managerOf(ctx, j)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.known[j.name]; known != nil {
		if stopped {
			known.rivalry.manager, known.rivalry.stopped = name, time.Now()
		}
		a.later(j.name, rivalCalm-time.Since(known.rivalry.stopped))
	}
	return name
}

// reversal counts it if what we wrote is undone. over is true if we stop, or have stopped because of the program that is
// named.
func (a *Assigner) reversal(j job) (manager string, over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.known[j.name]
	if known == nil {
		return "", false
	}
	undone := len(known.given) > 0 && slices.Equal(known.given, j.decision.Addresses) && !kube.Holds(j.object, known.given)
	switch {
	case undone && known.rivalry.manager != "" && time.Since(known.rivalry.stopped) < rivalCalm:
		return known.rivalry.manager, true
	case undone:
		return "", known.rivalry.reversal(time.Now())
	case known.rivalry.manager != "":
		known.rivalry = rivalry{}
	default:
		known.rivalry.open = false
	}
	return "", false
}

// yielded is for how long yet the Service's list is left alone, because a controller before this one has stopped writing it
// because of a rival and nothing has changed since: then that stays so (rule P6). It is 0 or less if it is not.
func yielded(j job) time.Duration {
	stored := allocatedCondition(j.object)
	if stored == nil || stored.Reason != string(reason.RivalWriter) ||
		kube.Holds(j.object, j.decision.Addresses) || !strings.HasPrefix(stored.Message, j.decision.Reason.Message) {
		return 0
	}
	return rivalCalm - time.Since(stored.LastTransitionTime.Time)
}

// managerOf is the program, other than us, that wrote the status last, as the API server has it recorded.
func (a *Assigner) managerOf(ctx context.Context, j job) string {
	name, latest := "another program", time.Time{}
	live, err := a.get(ctx, j.name)
	if err != nil {
		return name
	}
	for i := range live.ManagedFields {
		entry := &live.ManagedFields[i]
		if entry.Manager == kube.FieldManager || entry.Time == nil || entry.Time.Time.Before(latest) {
			continue
		}
		if entry.FieldsV1 != nil && strings.Contains(string(entry.FieldsV1.GetRawBytes()), `"f:loadBalancer"`) {
			name, latest = entry.Manager, entry.Time.Time
		}
	}
	return name
}

// yield is the allocation of a Service whose list another program writes.
func yield(allocation kube.Allocation, rival string) kube.Allocation {
	allocation.KeepList = true
	allocation.Allocated = kube.Condition{Reason: *reason.New(reason.RivalWriter,
		"%s is from Berth, but %q writes the load balancer status of this Service too and has undone it %d times within a minute: stop one of the two",
		allocation.Allocated.Reason.Message, rival, rivalLimit)}
	return allocation
}
