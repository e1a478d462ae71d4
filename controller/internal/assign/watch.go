package assign

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/kube"
)

// auditPeriod is how often a look is taken at what the watch has not shown. It is seldom anything.
const auditPeriod = 30 * time.Second

// Informers gives informers by kind: controller-runtime's cache.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error)
}

// watch has every object brought in, and returns when all but the Services are there: those wait until what their
// statuses hold has been adopted, and informers keep for them what comes meanwhile.
func (a *Assigner) watch(ctx context.Context, adopted <-chan struct{}) error {
	handlers := map[client.Object]toolscache.ResourceEventHandler{
		&v1beta1.IPAddressPool{}: into(a, a.picture.setPool, func(name string) { remove(a.picture, a.picture.pools, name) }),
		&v1beta1.AddressReservation{}: into(a, a.picture.setReservation,
			func(name string) { remove(a.picture, a.picture.reservations, name) }),
		&v1beta1.Speaker{}:  into(a, a.picture.setSpeaker, func(name string) { remove(a.picture, a.picture.gateways, name) }),
		&corev1.Node{}:      into(a, a.picture.setNode, func(name string) { remove(a.picture, a.picture.nodes, name) }),
		&corev1.Namespace{}: into(a, a.picture.setNamespace, func(name string) { remove(a.picture, a.picture.namespaces, name) }),
	}
	if a.ServiceCIDRs {
		handlers[&networkingv1.ServiceCIDR{}] = into(a, a.picture.setServiceCIDR, func(name string) { remove(a.picture, a.picture.cidrs, name) })
	}
	var synced []toolscache.InformerSynced
	for kind, handler := range handlers {
		registration, err := a.handle(ctx, kind, handler)
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	if _, err := a.handle(ctx, &corev1.Service{}, a.services(ctx, adopted)); err != nil {
		return err
	}
	toolscache.WaitForCacheSync(ctx.Done(), synced...)
	return nil
}

// handle sends a kind's events to a handler.
func (a *Assigner) handle(
	ctx context.Context, kind client.Object, handler toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := a.Informers.GetInformer(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	return registration, nil
}

// into makes a handler that brings objects into the picture.
func into[T client.Object](a *Assigner, set func(T), drop func(name string)) toolscache.ResourceEventHandler {
	locked := func(change func()) {
		a.mu.Lock()
		defer a.mu.Unlock()
		change()
		if a.picture.changed {
			a.work.Signal()
		}
	}
	take := func(object any) {
		if typed, ok := object.(T); ok {
			locked(func() { set(typed) })
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, object any) { take(object) },
		DeleteFunc: func(object any) {
			if last, missed := object.(toolscache.DeletedFinalStateUnknown); missed {
				object = last.Obj
			}
			if typed, ok := object.(T); ok {
				locked(func() { drop(typed.GetName()) })
			}
		},
	}
}

// services makes the handler of Services.
func (a *Assigner) services(ctx context.Context, adopted <-chan struct{}) toolscache.ResourceEventHandler {
	wait := func() bool {
		select {
		case <-adopted:
			return true
		case <-ctx.Done():
			return false
		}
	}
	take := func(object any) {
		if service, ok := object.(*corev1.Service); ok && wait() {
			a.changed(service)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, object any) { take(object) },
		DeleteFunc: func(object any) {
			if !wait() {
				return
			}
			switch object := object.(type) {
			case *corev1.Service:
				a.deleted(ctx, object)
			case toolscache.DeletedFinalStateUnknown:
				// The deletion itself was missed. How old this is cannot be told: ask.
				if last, ok := object.Obj.(*corev1.Service); ok {
					a.look(ctx, nameOf(last))
				}
			}
		},
	}
}

// changed takes a Service in as it is now, unless something newer is known.
func (a *Assigner) changed(object *corev1.Service) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := nameOf(object)
	newer := !a.beforeFloor(object) && a.saw(object)
	if known := a.known[name]; known != nil {
		known.watched = true
	}
	if newer {
		a.wake([]cluster.Name{name})
	}
}

// audit looks now and then for Services that are known from elsewhere than the watch, and that it has not shown. One that was
// in the list at the start and gone before a watch that had broken off began anew was never in the informer, which therefore
// tells nobody that it has gone (rule P15).
func (a *Assigner) audit(ctx context.Context) {
	ticker := time.NewTicker(auditPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, name := range a.unwatched() {
			a.read(ctx, name, func(live *corev1.Service) { a.takeLive(name, live) })
		}
	}
}

// unwatched are the Services that the watch has not shown.
func (a *Assigner) unwatched() []cluster.Name {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []cluster.Name
	for name, known := range a.known {
		if !known.watched {
			names = append(names, name)
		}
	}
	return names
}

// beforeFloor is true if the list of all Services was newer than this. The caller holds the lock.
func (a *Assigner) beforeFloor(object *corev1.Service) bool {
	return !kube.Older(a.floor, object.ResourceVersion)
}

// deleted forgets a Service that is gone, or is not of type LoadBalancer any more: the watch shows both as a deletion.
// The API server has emptied its list of addresses then, and left our conditions.
func (a *Assigner) deleted(ctx context.Context, object *corev1.Service) {
	if a.drop(object) && kube.HasRecord(object) {
		a.tidy(ctx, nameOf(object))
	}
}

// drop forgets a Service unless something newer than its deletion is known, and is true if it did.
func (a *Assigner) drop(object *corev1.Service) bool {
	name := nameOf(object)
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.known[name]
	if known == nil || a.beforeFloor(object) || !kube.Older(known.object.ResourceVersion, object.ResourceVersion) {
		return false
	}
	a.forget(name)
	return true
}

// tidy takes what is left of ours out of a Service that may be of another type now, in the background.
func (a *Assigner) tidy(ctx context.Context, name cluster.Name) {
	a.besides(func() {
		retry(ctx, func() bool {
			live, err := a.get(ctx, name)
			switch {
			case isGone(err):
				return true
			case err != nil:
				return false
			case live.Spec.Type == corev1.ServiceTypeLoadBalancer:
				return true // back again, and seen as such
			}
			result := a.Writer.Clear(ctx, live)
			a.Metrics.count(result.Outcome)
			return result.Outcome == kube.Unchanged || result.Outcome == kube.Written
		})
	})
}

// look reads a Service from the API server and takes it in as it is.
func (a *Assigner) look(ctx context.Context, name cluster.Name) {
	a.besides(func() {
		a.read(ctx, name, func(live *corev1.Service) { a.takeLive(name, live) })
	})
}

// retry repeats an attempt until it succeeds or ctx ends, ever more slowly up to once in two seconds.
func retry(ctx context.Context, attempt func() bool) {
	for pause := 100 * time.Millisecond; !attempt(); pause = min(2*pause, 2*time.Second) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
