package assign

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/reason"
)

// writers is how many statuses are written at the same time.
const writers = 16

// StatusWriter writes the status of Services: kube.ServiceWriter.
type StatusWriter interface {
	SetAllocation(ctx context.Context, object *corev1.Service, allocation kube.Allocation, force bool) kube.Result
	Clear(ctx context.Context, object *corev1.Service) kube.Result
	Forget(namespace, name string)
}

// Recorder records events: kube.Recorder.
type Recorder interface {
	Event(regarding corev1.ObjectReference, action string, said reason.Reason)
	EventOnce(regarding corev1.ObjectReference, action string, said reason.Reason)
}

// PoolReader reads pools from the API server itself: kube.PoolReader.
type PoolReader interface {
	Pools(ctx context.Context) ([]v1beta1.IPAddressPool, error)
}

// Options are what an Assigner works with.
type Options struct {
	Class compile.Options
	// Informers is where Services, pools, reservations, nodes, speakers, namespaces and networks are watched.
	Informers Informers
	// ServiceCIDRs is false where the API server does not serve that kind (before Kubernetes 1.33).
	ServiceCIDRs bool
	// Services is the API server itself, not a cache of it.
	Services kube.ServiceReader
	// Pools is the API server itself too.
	Pools   PoolReader
	Writer  StatusWriter
	Events  Recorder
	Metrics *Metrics
	Log     logr.Logger
	// Changed is called whenever the usage of a pool may have changed. It must not block.
	Changed func()
}

// Assigner gives Services their addresses. The lock guards everything below it; what it hands out is never changed.
type Assigner struct {
	Options

	mu      sync.Mutex
	work    sync.Cond // something is due, or the picture has changed, or the end has come
	ledger  *ipam.Ledger
	picture *picture
	queue   *queue
	known   map[cluster.Name]*known
	floor   string // resourceVersion of the list of all Services: older events are ignored
	alarm   alarm
	pausing map[cluster.Name]pausing
	ended   bool

	over  chan struct{} // closed when Start has returned
	jobs  chan job
	aside sync.WaitGroup // what runs beside the writers
}

// known is the newest that is known of a Service.
type known struct {
	object  *corev1.Service
	service *cluster.Service

	watched  bool         // the watch has shown a Service of this name, and so will show when it goes
	given    []netip.Addr // as last written by this process
	failures int          // of writes, in a row
	rivalry  rivalry
	warned   []string // of which unknown annotations people have been told
}

// job is something for a writer to do.
type job struct {
	name     cluster.Name
	object   *corev1.Service
	decision ipam.Decision
}

// New makes an Assigner; Start runs it.
func New(options Options) *Assigner {
	a := &Assigner{
		Options: options,
		ledger:  ipam.NewLedger(),
		picture: newPicture(),
		queue:   newQueue(),
		known:   map[cluster.Name]*known{},
		pausing: map[cluster.Name]pausing{},
		over:    make(chan struct{}),
		jobs:    make(chan job),
	}
	a.work.L = &a.mu
	return a
}

// NeedLeaderElection is true: only one process may decide (rule O2).
func (a *Assigner) NeedLeaderElection() bool { return true }

// Start runs until ctx ends, and then until the writes under way have ended.
func (a *Assigner) Start(ctx context.Context) error {
	defer close(a.over)
	begun := time.Now()
	adopted := make(chan struct{})
	if err := a.watch(ctx, adopted); err != nil {
		return err
	}
	count, err := a.adopt(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // the end came first
		}
		return err
	}
	close(adopted)
	a.Log.Info("took over", "services", count, "took", time.Since(begun).Round(time.Millisecond).String())
	stop := context.AfterFunc(ctx, a.end)
	defer stop()
	var running sync.WaitGroup
	for range writers {
		running.Go(func() { a.write(ctx) })
	}
	a.besides(func() { a.audit(ctx) })
	a.decide()
	close(a.jobs)
	running.Wait()
	a.aside.Wait()
	return nil
}

// Ended is closed once everything that was written has been noted, and nothing changes any more.
func (a *Assigner) Ended() <-chan struct{} { return a.over }

// besides runs something beside the writers, unless the end has come.
func (a *Assigner) besides(run func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.aside.Go(run)
	}
}

// end lets the decider go.
func (a *Assigner) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.alarm.stop()
	for _, one := range a.pausing {
		one.timer.Stop()
	}
	a.work.Broadcast()
}

// decide makes decisions until the end.
func (a *Assigner) decide() {
	for {
		next, ok := a.next()
		if !ok {
			return
		}
		a.jobs <- next
	}
}

// next waits for a Service that is due and decides about it; false at the end.
func (a *Assigner) next() (job, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.ended {
		if picture, changed := a.picture.take(); changed {
			a.tick()
			a.ledger.SetCluster(picture)
			a.wake(a.ledger.Plan())
			a.Changed()
		}
		name, isDue := a.queue.next()
		if !isDue {
			a.setAlarm()
			a.work.Wait()
			continue
		}
		known := a.known[name]
		if known == nil { // gone meanwhile
			a.queue.done(name)
			continue
		}
		a.tick()
		decision := a.ledger.Decide(known.service)
		a.wake(a.ledger.Hold(known.service, decision))
		a.Metrics.Decisions.Inc()
		return job{name: name, object: known.object, decision: decision}, true
	}
	return job{}, false
}

// wake makes Services due. The caller holds the lock.
func (a *Assigner) wake(names []cluster.Name) {
	for _, name := range names {
		if known := a.known[name]; known != nil {
			a.queue.add(name, known.service.Created)
		}
	}
	if len(names) > 0 {
		a.work.Signal()
	}
}

// settle notes what became of a write. The caller holds the lock.
func (a *Assigner) settle(name cluster.Name, outcome ipam.Outcome) {
	a.tick()
	a.wake(a.ledger.Settle(name, outcome))
	a.setAlarm()
	a.Changed()
}

// saw notes a state of a Service, and is true if it is newer than what was known. The caller holds the lock.
func (a *Assigner) saw(object *corev1.Service) bool {
	name := nameOf(object)
	before := a.known[name]
	if before != nil && !kube.Older(before.object.ResourceVersion, object.ResourceVersion) {
		if before.object.ResourceVersion == object.ResourceVersion {
			before.object = object // the informer's: one copy is enough
		}
		return false
	}
	service := compile.Service(object, a.Class)
	if service == nil {
		return false
	}
	now := &known{object: object, service: service}
	if before != nil {
		now.watched = before.watched
	}
	switch {
	case before == nil:
	case before.object.UID == object.UID:
		now.given, now.failures, now.rivalry = before.given, before.failures, before.rivalry
	default: // made anew under the name: what the old one had is free
		a.release(name)
	}
	a.known[name] = now
	a.warn(now, before)
	return true
}

// forget drops a Service that is gone. The caller holds the lock.
func (a *Assigner) forget(name cluster.Name) {
	delete(a.known, name)
	if one, pauses := a.pausing[name]; pauses {
		one.timer.Stop()
		delete(a.pausing, name)
	}
	a.Writer.Forget(name.Namespace, name.Name)
	a.release(name)
	a.Changed()
}

// release frees what a Service has. The caller holds the lock.
func (a *Assigner) release(name cluster.Name) {
	a.tick()
	a.wake(a.ledger.Release(name))
	a.setAlarm()
}

// warn tells people, once, of annotations of ours that mean nothing (rule A13). The caller holds the lock.
func (a *Assigner) warn(now, before *known) {
	const most = 10 // nobody misspells more, and a Service may have thousands
	if before != nil && before.object.UID == now.object.UID {
		now.warned = before.warned
	}
	if !now.service.Ours {
		return
	}
	for _, key := range compile.UnknownAnnotations(now.object) {
		if slices.Contains(now.warned, key) || len(now.warned) == most {
			continue
		}
		now.warned = append(slices.Clip(now.warned), key)
		a.Events.EventOnce(reference(now.object), "Read", *reason.New(reason.UnknownAnnotation,
			"annotation %s means nothing to Berth; known are %s", key, strings.Join(v1beta1.Annotations(), ", ")))
	}
}

// Usage counts a pool's addresses; false if there is no such pool, or nothing has been taken over yet.
func (a *Assigner) Usage(pool string) (ipam.Usage, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.Usage(pool)
}

// Reservation says what is wrong with a reservation, nil if nothing is; false if there is no such reservation, or nothing
// has been taken over yet.
func (a *Assigner) Reservation(name string) (problem *reason.Reason, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.Reservation(name)
}

func nameOf(object *corev1.Service) cluster.Name {
	return cluster.Name{Namespace: object.Namespace, Name: object.Name}
}

// reference names a Service in an event.
func reference(object *corev1.Service) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: "v1", Kind: "Service", Namespace: object.Namespace, Name: object.Name,
		UID: object.UID, ResourceVersion: object.ResourceVersion,
	}
}
