package compile_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// TestNode reads a Node; what is no address or prefix in it is left out.
func TestNode(t *testing.T) {
	t.Parallel()
	object := lbtest.NodeObject("n1", func(object *corev1.Node) {
		object.Labels = map[string]string{"rack": "a"}
		object.Spec.PodCIDRs = []string{"10.244.1.0/24", "no prefix"}
		object.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
			{Type: corev1.NodeExternalIP, Address: "::ffff:203.0.113.1"}, {Type: corev1.NodeInternalIP, Address: "fe80::1%eth0"},
		}
	})
	want := &cluster.Node{
		Name: "n1", Labels: map[string]string{"rack": "a"}, Addresses: addresses("192.0.2.1", "203.0.113.1", "fe80::1"),
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")},
		Ready:    true, ReadySince: lbtest.Now().Add(-time.Hour),
	}
	if diff := cmp.Diff(want, compile.Node(object, compile.Options{}), equal()); diff != "" {
		t.Error(diff)
	}
}

// TestNodeConditions reads Ready and NetworkUnavailable: what is unknown, or absent, is not so (fault F58).
func TestNodeConditions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		kind        corev1.NodeConditionType
		status      corev1.ConditionStatus
		ready       bool
		unavailable bool
	}{
		"Ready":              {reason: "a ready node", kind: corev1.NodeReady, status: corev1.ConditionTrue, ready: true},
		"NotReady":           {reason: "kubelet says so", kind: corev1.NodeReady, status: corev1.ConditionFalse},
		"Unknown":            {reason: "kubelet is not heard", kind: corev1.NodeReady, status: corev1.ConditionUnknown},
		"Silent":             {reason: "no condition at all", kind: corev1.NodeDiskPressure, status: corev1.ConditionTrue},
		"NetworkUnavailable": {reason: "the network is not set up", kind: corev1.NodeNetworkUnavailable, status: corev1.ConditionTrue, unavailable: true},
		"NetworkAvailable":   {reason: "the network is set up", kind: corev1.NodeNetworkUnavailable, status: corev1.ConditionFalse},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := compile.Node(lbtest.NodeObject("n1", func(object *corev1.Node) {
				object.Status.Conditions = []corev1.NodeCondition{{Type: c.kind, Status: c.status}}
			}), compile.Options{})
			if node.Ready != c.ready || node.NetworkUnavailable != c.unavailable {
				t.Errorf("%s: ready %v, network unavailable %v", c.reason, node.Ready, node.NetworkUnavailable)
			}
		})
	}
}

// TestLeaving is rule E6: what makes a node leave, and what does not (fault F124: cordon).
func TestLeaving(t *testing.T) {
	t.Parallel()
	taint := func(key string) func(*corev1.Node) {
		return func(object *corev1.Node) {
			object.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoExecute}}
		}
	}
	notReady := func(message string) func(*corev1.Node) {
		return func(object *corev1.Node) {
			object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: message}}
		}
	}
	cases := map[string]struct {
		reason string
		edit   func(*corev1.Node)
		want   string // in the message; empty if the node stays
	}{
		"Healthy":     {reason: "nothing is the matter", edit: func(*corev1.Node) {}},
		"Cordoned":    {reason: "cordon alone withdraws nothing (E7)", edit: func(object *corev1.Node) { object.Spec.Unschedulable = true }},
		"CordonTaint": {reason: "nor does its taint", edit: taint(corev1.TaintNodeUnschedulable)},
		"NotReady":    {reason: "readiness is for the tiers", edit: notReady("container runtime is down")},
		"Excluded": {reason: "the label, whatever its value", edit: func(object *corev1.Node) {
			object.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: "false"}
		}, want: "label node.kubernetes.io/exclude-from-external-load-balancers"},
		"OutOfOrder": {reason: "a taint by hand", edit: taint("node.kubernetes.io/out-of-service"), want: "taint node.kubernetes.io/out-of-service"},
		"ScaleDown":  {reason: "the autoscaler's taint", edit: taint("ToBeDeletedByClusterAutoscaler"), want: "taint ToBeDeletedByClusterAutoscaler"},
		"ShutDown":   {reason: "kubelet's word", edit: notReady("node is shutting down"), want: "shutting down"},
		"ShutDown2":  {reason: "kubelet's word among others", edit: notReady("[container runtime is down, node is shutting down]"), want: "shutting down"},
		"Deleted": {reason: "the object goes", edit: func(object *corev1.Node) {
			now := metav1.NewTime(lbtest.Now())
			object.DeletionTimestamp = &now
		}, want: "being deleted"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := compile.Options{LeaveTaints: compile.DefaultLeaveTaints()}
			checkProblem(t, compile.Node(lbtest.NodeObject("n1", c.edit), options).Leaving, reason.NodeLeaving, c.want)
		})
	}
}

// TestLeavingAsSet: which taints mean it, and whether the label does, can be said by flags (rule E6).
func TestLeavingAsSet(t *testing.T) {
	t.Parallel()
	options := compile.Options{LeaveTaints: []string{"example.com/retire"}, IgnoreExcludeLabel: true}
	labelled := lbtest.NodeObject("n1", func(object *corev1.Node) {
		object.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
		object.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	})
	checkProblem(t, compile.Node(labelled, options).Leaving, "", "")
	tainted := lbtest.NodeObject("n2", func(object *corev1.Node) {
		object.Spec.Taints = []corev1.Taint{{Key: "example.com/retire", Effect: corev1.TaintEffectNoSchedule}}
	})
	checkProblem(t, compile.Node(tainted, options).Leaving, reason.NodeLeaving, "taint example.com/retire")
}
