package compile_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
)

// kept is the twin of a Store: the objects that exist now, by kind and name, and nothing worked out from them.
type kept map[string]metav1.Object

// fresh is a picture taken by a new Store that was fed the objects which exist now, in any order.
func (k kept) fresh(t *rapid.T) *cluster.Snapshot {
	store := compile.NewStore(defaults())
	for _, key := range rapid.Permutation(slices.Sorted(maps.Keys(k))).Draw(t, "order") {
		set(store, k[key])
	}
	return store.Snapshot(cluster.Facts{}, lbtest.Now())
}

func set(store *compile.Store, object metav1.Object) {
	switch object := object.(type) {
	case *corev1.Service:
		store.SetService(object)
	case *discoveryv1.EndpointSlice:
		store.SetSlice(object)
	case *corev1.Node:
		store.SetNode(object)
	case *v1beta1.IPAddressPool:
		store.SetPool(object)
	case *v1beta1.L2Advertisement:
		store.SetAdvertisement(object)
	case *networkingv1.ServiceCIDR:
		store.SetServiceCIDR(object)
	}
}

func remove(store *compile.Store, object metav1.Object) {
	name := cluster.Name{Namespace: object.GetNamespace(), Name: object.GetName()}
	switch object.(type) {
	case *corev1.Service:
		store.DeleteService(name)
	case *discoveryv1.EndpointSlice:
		store.DeleteSlice(name)
	case *corev1.Node:
		store.DeleteNode(name.Name)
	case *v1beta1.IPAddressPool:
		store.DeletePool(name.Name)
	case *v1beta1.L2Advertisement:
		store.DeleteAdvertisement(name.Name)
	case *networkingv1.ServiceCIDR:
		store.DeleteServiceCIDR(name.Name)
	}
}

// objects draws an object of any kind: one of few names, so that histories meet again and again.
func objects() *rapid.Generator[metav1.Object] {
	return rapid.OneOf(
		rapid.Custom(drawService), rapid.Custom(drawSlice), rapid.Custom(drawSlice), rapid.Custom(drawNode),
		rapid.Custom(drawPool), rapid.Custom(drawAdvertisement), rapid.Custom(drawServiceCIDR),
	)
}

func name(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name") }

func drawService(t *rapid.T) metav1.Object {
	return lbtest.ServiceObject("shop/"+name(t), func(object *corev1.Service) {
		object.Spec.Type = rapid.SampledFrom([]corev1.ServiceType{
			corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort,
		}).Draw(t, "type")
		object.Labels = map[string]string{"app": name(t)}
		if rapid.Bool().Draw(t, "holds an address") {
			lbtest.Holding(fmt.Sprint("192.0.2.", rapid.IntRange(10, 12).Draw(t, "address")))(object)
		}
	})
}

func drawSlice(t *rapid.T) metav1.Object {
	var endpoints []discoveryv1.Endpoint
	for range rapid.IntRange(0, 3).Draw(t, "endpoints") {
		endpoints = append(endpoints, lbtest.Endpoint(name(t), rapid.Bool().Draw(t, "ready")))
	}
	object := lbtest.SliceObject("slice-"+name(t), "shop/"+name(t), endpoints...)
	object.AddressType = rapid.SampledFrom([]discoveryv1.AddressType{
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN,
	}).Draw(t, "family")
	return object
}

func drawNode(t *rapid.T) metav1.Object {
	return lbtest.NodeObject(name(t), func(object *corev1.Node) { object.Labels = map[string]string{"rack": name(t)} })
}

func drawPool(t *rapid.T) metav1.Object {
	text := rapid.SampledFrom([]string{"192.0.2.0/24", "192.0.2.10", "192.0.2.20-192.0.2.10"}).Draw(t, "addresses")
	return lbtest.PoolObject(name(t), text)
}

func drawAdvertisement(t *rapid.T) metav1.Object {
	return lbtest.AdvertisementObject(name(t), func(spec *v1beta1.L2AdvertisementSpec) {
		operator := rapid.SampledFrom([]metav1.LabelSelectorOperator{metav1.LabelSelectorOpExists, "Near"}).Draw(t, "operator")
		spec.ServiceSelectors = []metav1.LabelSelector{{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: name(t), Operator: operator}},
		}}
	})
}

func drawServiceCIDR(t *rapid.T) metav1.Object {
	cidr := rapid.SampledFrom([]string{"10.96.0.0/16", "10.96.0.0/12", "10.112.0.0/12"}).Draw(t, "cidr")
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name(t)}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
}

// TestStoreEqualsAFreshOne: after each step of any history of changes and deletions the store's picture is that of a new
// store which was fed the objects that exist (rule P18; design: nothing is kept but what was parsed and the slice index).
// And a picture taken before the step is as it was when it was taken.
func TestStoreEqualsAFreshOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		store, twin := compile.NewStore(defaults()), kept{}
		before, beforeAsTaken := store.Snapshot(cluster.Facts{}, lbtest.Now()), twin.fresh(t)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			object := objects().Draw(t, "object")
			key := fmt.Sprintf("%v %s/%s", reflect.TypeOf(object), object.GetNamespace(), object.GetName())
			if rapid.IntRange(0, 3).Draw(t, "delete if 0") == 0 {
				remove(store, object)
				delete(twin, key)
			} else {
				set(store, object)
				twin[key] = object
			}
			now, fresh := store.Snapshot(cluster.Facts{}, lbtest.Now()), twin.fresh(t)
			if diff := cmp.Diff(fresh, now, equal()); diff != "" {
				t.Fatalf("the store differs from a fresh one: %s", diff)
			}
			if diff := cmp.Diff(beforeAsTaken, before, equal()); diff != "" {
				t.Fatalf("a picture changed after it was taken: %s", diff)
			}
			before, beforeAsTaken = now, fresh
		}
	})
}
