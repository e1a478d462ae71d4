package compile_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// TestAdvertisement reads an advertisement.
func TestAdvertisement(t *testing.T) {
	t.Parallel()
	object := lbtest.AdvertisementObject("edge", func(spec *v1beta1.L2AdvertisementSpec) {
		spec.IPAddressPools = []string{"public", "dmz"}
		spec.IPAddressPoolSelectors = []metav1.LabelSelector{lbtest.LabelSelector("zone=a")}
		spec.ServiceSelectors = []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"blog", "web"}},
			{Key: "internal", Operator: metav1.LabelSelectorOpDoesNotExist},
			{Key: "owner", Operator: metav1.LabelSelectorOpExists},
			{Key: "stage", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"test"}},
		}}}
		spec.NodeSelectors = []metav1.LabelSelector{{}}
		spec.PreferredNodeSelectors = []v1beta1.PreferredNodeSelector{{Weight: 50, Preference: lbtest.LabelSelector("rack=a")}}
		spec.Interfaces = []string{"eth1", "bond0"}
		spec.FailbackDelay = &metav1.Duration{Duration: 5 * time.Minute}
	})
	want := &cluster.Advertisement{
		Name:          "edge",
		Pools:         []string{"dmz", "public"},
		PoolSelectors: []cluster.Selector{lbtest.Selector("zone=a")},
		ServiceSelectors: []cluster.Selector{{
			{Key: "app", Operator: cluster.In, Values: []string{"blog", "web"}},
			{Key: "internal", Operator: cluster.DoesNotExist},
			{Key: "owner", Operator: cluster.Exists},
			{Key: "stage", Operator: cluster.NotIn, Values: []string{"test"}},
		}},
		NodeSelectors: []cluster.Selector{{}},
		Preferred:     []cluster.Preference{{Weight: 50, Nodes: lbtest.Selector("rack=a")}},
		Interfaces:    []string{"bond0", "eth1"},
		FailbackDelay: 5 * time.Minute,
	}
	got, problem := compile.Advertisement(object)
	checkProblem(t, problem, "", "")
	if diff := cmp.Diff(want, got, equal()); diff != "" {
		t.Error(diff)
	}
}

// TestAdvertisementWithABadSelector: it drops out, and the problem names field and index (rule P20).
func TestAdvertisementWithABadSelector(t *testing.T) {
	t.Parallel()
	bad := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}}
	cases := map[string]struct {
		reason string
		edit   func(*v1beta1.L2AdvertisementSpec)
	}{
		"spec.ipAddressPoolSelectors[0]": {reason: "pools", edit: func(spec *v1beta1.L2AdvertisementSpec) {
			spec.IPAddressPoolSelectors = []metav1.LabelSelector{bad}
		}},
		"spec.serviceSelectors[1]": {reason: "Services", edit: func(spec *v1beta1.L2AdvertisementSpec) {
			spec.ServiceSelectors = []metav1.LabelSelector{{}, bad}
		}},
		"spec.nodeSelectors[0]": {reason: "nodes", edit: func(spec *v1beta1.L2AdvertisementSpec) {
			spec.NodeSelectors = []metav1.LabelSelector{bad}
		}},
		"spec.preferredNodeSelectors[0]": {reason: "preferences", edit: func(spec *v1beta1.L2AdvertisementSpec) {
			spec.PreferredNodeSelectors = []v1beta1.PreferredNodeSelector{{Weight: 1, Preference: bad}}
		}},
	}
	for where, c := range cases {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			got, problem := compile.Advertisement(lbtest.AdvertisementObject("edge", c.edit))
			if got != nil {
				t.Errorf("%s: compiled to %+v", c.reason, got)
			}
			checkProblem(t, problem, reason.InvalidSelector, where)
		})
	}
}
