package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/controller/internal/announced"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
)

// feed brings what the informers see to those who report: the store and the reporter of announcements, and the reporter
// of pools. It runs also while this process waits for the Lease, so that the one that gets it has all caches warm.
type feed struct {
	store        *compile.Store
	announced    *announced.Reporter
	pools        func() // a pool, a reservation or an advertisement has changed
	serviceCIDRs bool
}

// watch starts an informer for every kind the controller reads; synced are to be true before anything is reported.
func (f *feed) watch(ctx context.Context, informers cache.Cache) (synced []toolscache.InformerSynced, err error) {
	both := func() { f.announced.Wake(); f.pools() }
	handlers := map[client.Object]toolscache.ResourceEventHandler{
		&corev1.Service{}:   handle(f.announced.Wake, f.store.SetService, func(o *corev1.Service) { f.store.DeleteService(nameOf(o)) }),
		&corev1.Node{}:      handle(f.announced.Wake, f.store.SetNode, func(o *corev1.Node) { f.store.DeleteNode(o.Name) }),
		&corev1.Namespace{}: toolscache.ResourceEventHandlerFuncs{}, // only kept warm: assign has a handler of its own
		&discoveryv1.EndpointSlice{}: handle(f.announced.Wake, f.store.SetSlice,
			func(o *discoveryv1.EndpointSlice) { f.store.DeleteSlice(nameOf(o)) }),
		&v1beta1.IPAddressPool{}:      handle(both, f.store.SetPool, func(o *v1beta1.IPAddressPool) { f.store.DeletePool(o.Name) }),
		&v1beta1.AddressReservation{}: handle(f.pools, func(*v1beta1.AddressReservation) {}, func(*v1beta1.AddressReservation) {}),
		&v1beta1.L2Advertisement{}: handle(both, f.store.SetAdvertisement,
			func(o *v1beta1.L2Advertisement) { f.store.DeleteAdvertisement(o.Name) }),
		&v1beta1.Speaker{}: handle(func() {}, f.announced.SetSpeaker, func(o *v1beta1.Speaker) { f.announced.DeleteSpeaker(o.Name) }),
	}
	if f.serviceCIDRs {
		handlers[&networkingv1.ServiceCIDR{}] = handle(f.announced.Wake, f.store.SetServiceCIDR,
			func(o *networkingv1.ServiceCIDR) { f.store.DeleteServiceCIDR(o.Name) })
	}
	for kind, handler := range handlers {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

// handle makes an event handler from what to do with an object that is there, and with one that is gone.
func handle[T client.Object](wake func(), set, remove func(T)) toolscache.ResourceEventHandler {
	take := func(object any) {
		if typed, ok := object.(T); ok {
			set(typed)
		}
		wake()
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, object any) { take(object) },
		DeleteFunc: func(object any) {
			if last, missed := object.(toolscache.DeletedFinalStateUnknown); missed {
				object = last.Obj
			}
			if typed, ok := object.(T); ok {
				remove(typed)
			}
			wake()
		},
	}
}

func nameOf(object client.Object) cluster.Name {
	return cluster.Name{Namespace: object.GetNamespace(), Name: object.GetName()}
}
