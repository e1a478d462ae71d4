package announce_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
)

// FuzzTextFromOutside: whatever stands where an address should be in a Node, a ServiceCIDR or a Service, a decision is made,
// and a node's own address has no owner.
func FuzzTextFromOutside(f *testing.F) {
	f.Add("192.0.2.1", "10.244.0.0/24", "10.96.0.0/16", "192.0.2.10")
	f.Add("fe80::1%eth0", "::ffff:10.0.0.0/104", "::/0", "192.0.2.10")
	f.Add("::ffff:192.0.2.10", "0.0.0.0/0", "10.96.0.0/33", "::ffff:192.0.2.10")
	f.Fuzz(func(t *testing.T, ofNode, podCIDR, serviceCIDR, held string) {
		store := compile.NewStore(compile.Options{Default: true})
		store.SetNode(lbtest.NodeObject("n1", func(object *corev1.Node) {
			object.Spec.PodCIDRs = []string{podCIDR}
			object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ofNode}}
		}))
		store.SetServiceCIDR(&networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{serviceCIDR}},
		})
		store.SetService(lbtest.ServiceObject("shop/web", lbtest.Holding(held)))
		store.SetSlice(lbtest.SliceObject("web-1", "shop/web", lbtest.Endpoint("n1", true)))
		store.SetAdvertisement(lbtest.AdvertisementObject("all"))
		facts := cluster.Facts{Members: map[string]*cluster.Member{"n1": lbtest.Member("n1")}}
		for _, one := range announce.Decide(store.Snapshot(facts, lbtest.Now())).Verdicts() {
			if (one.Owner != "") == (one.Why != nil) || (held == ofNode && one.Owner != "") {
				t.Errorf("%s: owner %q, reason %v", one.Address, one.Owner, one.Why)
			}
		}
	})
}
