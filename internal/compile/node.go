package compile

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// shutdownMessage is kubelet's word about a shutdown, from k8s.io/kubernetes/pkg/kubelet/nodeshutdown; with other troubles
// it is one of a list.
const shutdownMessage = "node is shutting down"

// Node compiles a Node.
func Node(object *corev1.Node, options Options) *cluster.Node {
	node := &cluster.Node{Name: object.Name, Labels: object.Labels, Leaving: options.leaving(object)}
	for i := range object.Status.Addresses {
		if address, err := netip.ParseAddr(object.Status.Addresses[i].Address); err == nil {
			node.Addresses = append(node.Addresses, address.Unmap().WithZone(""))
		}
	}
	for _, text := range object.Spec.PodCIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			node.PodCIDRs = append(node.PodCIDRs, prefix.Masked())
		}
	}
	for i := range object.Status.Conditions {
		condition := &object.Status.Conditions[i]
		switch condition.Type {
		case corev1.NodeReady:
			node.Ready = condition.Status == corev1.ConditionTrue
			node.ReadySince = condition.LastTransitionTime.Time
		case corev1.NodeNetworkUnavailable:
			node.NetworkUnavailable = condition.Status == corev1.ConditionTrue
		}
	}
	return node
}

// leaving says why the node is leaving; nil if it is not. Cordoning is no reason (rules E6, E7).
func (o Options) leaving(object *corev1.Node) *reason.Reason {
	if object.DeletionTimestamp != nil {
		return reason.New(reason.NodeLeaving, "the Node object is being deleted")
	}
	if _, excluded := object.Labels[corev1.LabelNodeExcludeBalancers]; excluded && !o.IgnoreExcludeLabel {
		return reason.New(reason.NodeLeaving, "the node has the label %s", corev1.LabelNodeExcludeBalancers)
	}
	for i := range object.Spec.Taints {
		if key := object.Spec.Taints[i].Key; slices.Contains(o.LeaveTaints, key) {
			return reason.New(reason.NodeLeaving, "the node has the taint %s", key)
		}
	}
	for i := range object.Status.Conditions {
		condition := &object.Status.Conditions[i]
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionFalse &&
			strings.Contains(condition.Message, shutdownMessage) {
			return reason.New(reason.NodeLeaving, "the node is shutting down")
		}
	}
	return nil
}

// Namespace compiles a Namespace.
func Namespace(object *corev1.Namespace) *cluster.Namespace {
	return &cluster.Namespace{Name: object.Name, Labels: object.Labels}
}

// Gateways are the default gateways that a speaker reports. What is no address is left out: a pool cannot contain it.
func Gateways(object *v1beta1.Speaker) []netip.Addr {
	var gateways []netip.Addr
	for _, text := range object.Status.Gateways {
		if address, err := netip.ParseAddr(text); err == nil {
			gateways = append(gateways, address.Unmap().WithZone(""))
		}
	}
	return gateways
}
