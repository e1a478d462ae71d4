package lbtest

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthlb/berth/api/v1beta1"
)

// ServiceObject is a Service of type LoadBalancer, "namespace/name", with port tcp/80 and no address yet.
func ServiceObject(name string, edits ...func(*corev1.Service)) *corev1.Service {
	object := &corev1.Service{
		ObjectMeta: namespaced(name),
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			ClusterIPs:            []string{"10.96.0.10"},
			IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:                 []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	for _, edit := range edits {
		edit(object)
	}
	return object
}

// Holding gives a Service the status that Berth writes when it assigns these addresses from the pool PoolName.
func Holding(addresses ...string) func(*corev1.Service) {
	return func(object *corev1.Service) {
		var held, pools []string
		for _, address := range addresses {
			object.Status.LoadBalancer.Ingress = append(object.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address})
			held = append(held, address+" from pool "+PoolName)
			pools = append(pools, PoolName)
		}
		since := metav1.NewTime(created())
		object.Status.Conditions = append(object.Status.Conditions,
			metav1.Condition{
				Type: v1beta1.ConditionAllocated, Status: metav1.ConditionTrue, Reason: "Allocated",
				Message: strings.Join(held, " and "), LastTransitionTime: since,
			},
			metav1.Condition{
				Type: v1beta1.ConditionPool, Status: metav1.ConditionTrue, Reason: "Allocated",
				Message: strings.Join(pools, ","), LastTransitionTime: since,
			})
	}
}

// NodeObject is a Node that has been ready for an hour.
func NodeObject(name string, edits ...func(*corev1.Node)) *corev1.Node {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(created()),
		}}},
	}
	for _, edit := range edits {
		edit(object)
	}
	return object
}

// SliceObject is an EndpointSlice of a Service, "namespace/name", for IPv4.
func SliceObject(name, service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	of := ParseName(service)
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: of.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
	}
}

// Endpoint is an endpoint on a node, "" for none, that says whether it is ready.
func Endpoint(node string, ready bool) discoveryv1.Endpoint {
	endpoint := discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	if node != "" {
		endpoint.NodeName = &node
	}
	return endpoint
}

// Terminating is an endpoint on a node that terminates and still serves.
func Terminating(node string) discoveryv1.Endpoint {
	endpoint, yes := Endpoint(node, false), true
	endpoint.Conditions.Serving, endpoint.Conditions.Terminating = &yes, &yes
	return endpoint
}

// PoolObject is a pool of these addresses.
func PoolObject(name string, addresses ...string) *v1beta1.IPAddressPool {
	object := &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid of " + name), CreationTimestamp: metav1.NewTime(created()),
	}}
	for _, text := range addresses {
		object.Spec.Addresses = append(object.Spec.Addresses, v1beta1.AddressText(text))
	}
	return object
}

// ReservationObject is a reservation of these addresses for a Service, "namespace/name".
func ReservationObject(name, service string, addresses ...string) *v1beta1.AddressReservation {
	of := ParseName(service)
	object := &v1beta1.AddressReservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), CreationTimestamp: metav1.NewTime(created())},
		Spec:       v1beta1.AddressReservationSpec{Service: v1beta1.ServiceReference{Namespace: of.Namespace, Name: of.Name}},
	}
	for _, text := range addresses {
		object.Spec.Addresses = append(object.Spec.Addresses, v1beta1.AddressText(text))
	}
	return object
}

// AdvertisementObject is an L2Advertisement for everything.
func AdvertisementObject(name string, edits ...func(*v1beta1.L2AdvertisementSpec)) *v1beta1.L2Advertisement {
	object := &v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, edit := range edits {
		edit(&object.Spec)
	}
	return object
}

// LabelSelector selects objects with all of these labels, as "key=value".
func LabelSelector(labels ...string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: Labels(labels...)}
}

// namespaced is the metadata of an object made an hour ago.
func namespaced(name string) metav1.ObjectMeta {
	parsed := ParseName(name)
	return metav1.ObjectMeta{
		Namespace: parsed.Namespace, Name: parsed.Name,
		UID: types.UID("uid of " + name), CreationTimestamp: metav1.NewTime(created()),
	}
}

// Addr parses an address; it is for tests that compare.
func Addr(text string) netip.Addr { return netip.MustParseAddr(text) }
