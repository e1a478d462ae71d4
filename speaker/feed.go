package main

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
)

// feed brings what the informers see into the store and the directory.
type feed struct {
	store     *compile.Store
	directory *directory
	heard     func() // the API server was heard from
	wake      func() // something changed
	wakeNow   func() // something was lost
}

// watch starts an informer for every kind the speaker reads.
func (f *feed) watch(ctx context.Context, informers cache.Cache) error {
	handlers := map[client.Object]toolscache.ResourceEventHandler{
		&corev1.Service{}: handle(f, f.store.SetService, func(o *corev1.Service) { f.store.DeleteService(nameOf(o)) }),
		&corev1.Node{}: handle(f, func(o *corev1.Node) { f.store.SetNode(o); f.directory.setNode(o) },
			func(o *corev1.Node) { f.store.DeleteNode(o.Name); f.directory.deleteNode(o.Name) }),
		&discoveryv1.EndpointSlice{}: handle(f, f.setSlice, func(o *discoveryv1.EndpointSlice) {
			f.store.DeleteSlice(nameOf(o))
			f.wakeNow()
		}),
		&networkingv1.ServiceCIDR{}: handle(f, f.store.SetServiceCIDR, func(o *networkingv1.ServiceCIDR) { f.store.DeleteServiceCIDR(o.Name) }),
		&v1beta1.IPAddressPool{}:    handle(f, f.store.SetPool, func(o *v1beta1.IPAddressPool) { f.store.DeletePool(o.Name) }),
		&v1beta1.L2Advertisement{}: handle(f, f.store.SetAdvertisement,
			func(o *v1beta1.L2Advertisement) { f.store.DeleteAdvertisement(o.Name) }),
		&v1beta1.Speaker{}: handle(f, f.directory.setSpeaker, func(o *v1beta1.Speaker) { f.directory.deleteSpeaker(o.Name) }),
	}
	for kind, handler := range handlers {
		informer, err := informers.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

// setSlice takes an EndpointSlice in. One without usable endpoints may be the loss of the last: that does not wait.
func (f *feed) setSlice(object *discoveryv1.EndpointSlice) {
	f.store.SetSlice(object)
	if slice := compile.EndpointSlice(object); slice != nil && len(slice.Endpoints) == 0 {
		f.wakeNow()
	}
}

// handle makes an event handler from what to do with an object that is there, and with one that is gone.
func handle[T client.Object](f *feed, set, remove func(T)) toolscache.ResourceEventHandler {
	take := func(object any) {
		if typed, ok := object.(T); ok {
			set(typed)
		}
		f.heard()
		f.wake()
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
			f.heard()
			f.wake()
		},
	}
}

func nameOf(object client.Object) cluster.Name {
	return cluster.Name{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// parseAddresses are those of the texts that are addresses.
func parseAddresses(texts []string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			list = append(list, address.Unmap())
		}
	}
	return list
}
