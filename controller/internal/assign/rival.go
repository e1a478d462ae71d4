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
	manager   string      // not "": we have stopped
}

// The measure of a rivalry (rule A11).
const (
	rivalLimit  = 5
	rivalWindow = time.Minute
)

// reversal counts one reversal and is true if it is one too many.
func (r *rivalry) reversal(now time.Time) bool {
	recent := slices.DeleteFunc(slices.Clone(r.reversals), func(t time.Time) bool { return now.Sub(t) > rivalWindow })
	r.reversals = append(recent, now)
	return len(r.reversals) >= rivalLimit
}

// contest looks whether somebody has undone what we wrote, and returns that program's name if we have stopped writing
// the list because of it; "" if we write it. We begin again when the list is ours again, or the Service is to have
// something else.
func (a *Assigner) contest(ctx context.Context, j job) string {
	a.mu.Lock()
	known := a.known[j.name]
	undone := known != nil && len(known.given) > 0 && slices.Equal(known.given, j.decision.Addresses) && !kube.Holds(j.object, known.given)
	if known != nil && !undone && known.rivalry.manager != "" {
		known.rivalry = rivalry{}
	}
	stopped := ""
	if undone {
		stopped = known.rivalry.manager
	}
	a.mu.Unlock()
	if !undone || stopped != "" {
		return stopped
	}
	return a.reversed(j, func() string { return a.managerOf(ctx, j) })
}

// reversed counts a reversal. If it is one too many we stop, and it returns the name of the program; else "".
func (a *Assigner) reversed(j job, manager func() string) string {
	a.mu.Lock()
	known := a.known[j.name]
	stop := known != nil && known.rivalry.reversal(time.Now())
	a.mu.Unlock()
	if !stop {
		return ""
	}
	name := manager()
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.known[j.name]; known != nil {
		known.rivalry.manager = name
	}
	return name
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
