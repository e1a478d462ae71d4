package assign_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/lbtest"
)

// FuzzF46OneAnswerIsTheLast: whatever is written on a Service and stands in its status, the answer to it is written once;
// decided about again, by this controller or by one that knows nothing but the status, it is the same.
func FuzzF46OneAnswerIsTheLast(f *testing.F) {
	f.Add("192.0.2.5", "p1", "", "", "", "", "", "")
	f.Add("192.0.2.5, 2001:db8::5", "p2", "192.0.2.7", "192.0.2.3", "192.0.2.3 from pool p1", "dns", "mail, web", "once")
	f.Add("2001:DB8:0::0005", "", "10.0.0.1", "300.1.1.1 192.0.2.4 192.0.2.5", "", " ", ",", "\n")
	f.Add(",", " p1 ", "::ffff:192.0.2.1", "fe80::1%eth0", "keeps 192.0.2.9 from pool gone; AddressInUse: 192.0.2.1 is held", "a", "*", "")
	f.Add("", "", "", "203.0.113.9", "203.0.113.9 from pool gone", "", "", "away from here")
	f.Fuzz(func(t *testing.T, addresses, pool, loadBalancerIP, status, message, key, namespaces, consent string) {
		api := newAPI()
		object := fuzzed(addresses, pool, loadBalancerIP, status, message)
		for _, edit := range []func(*corev1.Service){
			annotated(v1beta1.AnnotationSharingKey, key), annotated(v1beta1.AnnotationSharingNamespaces, namespaces),
			annotated(v1beta1.AnnotationRenumber, consent),
		} {
			edit(object)
		}
		api.put(object)
		writer := kube.NewServiceWriter(api, func() error { return nil }, time.Now)
		ledger := freshLedger()
		first := answer(t, ledger, api, writer)
		if second := answer(t, ledger, api, writer); !second.Equal(&first) {
			t.Errorf("the same controller says %+v, then %+v", first, second)
		}
		if third := answer(t, freshLedger(), api, writer); third.Verdict != first.Verdict || !sameText(third.Addresses, first.Addresses) {
			t.Errorf("the next controller says %+v after %+v", third, first)
		}
		if writes := api.takeWrites(); len(writes) > 2 { // the second takes out what is no address
			t.Errorf("written more than once: %v", writes)
		}
	})
}

// fuzzed is a Service with these texts on it.
func fuzzed(addresses, pool, loadBalancerIP, status, message string) *corev1.Service {
	return object("a", 1, annotated(v1beta1.AnnotationAddresses, addresses), annotated(v1beta1.AnnotationPool, pool), func(s *corev1.Service) {
		s.Spec.LoadBalancerIP = loadBalancerIP
		prefer := corev1.IPFamilyPolicyPreferDualStack
		s.Spec.IPFamilyPolicy = &prefer
		s.Spec.ClusterIPs = []string{"10.96.0.10", "2001:db8:ffff::10"}
		for text := range strings.FieldsSeq(status) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: text})
		}
		if message != "" {
			s.Status.Conditions = []metav1.Condition{
				{Type: v1beta1.ConditionAllocated, Status: metav1.ConditionTrue, Message: message},
				{Type: v1beta1.ConditionPool, Status: metav1.ConditionTrue, Message: "p1"},
			}
		}
	})
}

// freshLedger is the ledger of a controller that has just begun.
func freshLedger() *ipam.Ledger {
	ledger := ipam.NewLedger()
	ledger.SetCluster(ipam.Cluster{Pools: []*cluster.Pool{
		compile.Pool(lbtest.PoolObject("p1", "192.0.2.0/28", "2001:db8::/124")), compile.Pool(lbtest.PoolObject("p2", "198.51.100.0/30")),
	}})
	return ledger
}

// answer decides about the Service as it stands there, and writes the answer.
func answer(t *testing.T, ledger *ipam.Ledger, api *api, writer *kube.ServiceWriter) ipam.Decision {
	t.Helper()
	object := api.get("shop", "a")
	service := compile.Service(object, compile.Options{Default: true})
	decision := ledger.Decide(service)
	ledger.Hold(service, decision)
	allocation := kube.Allocation{
		Addresses: decision.Addresses, Pools: decision.Pools, KeepList: decision.Verdict == ipam.Foreign,
		Allocated: kube.Condition{True: decision.Complete, Reason: decision.Reason}, Renumbered: decision.Renumbered,
	}
	if decision.Verdict == ipam.Foreign {
		allocation.Addresses = nil
	}
	if result := writer.SetAllocation(t.Context(), object, allocation, true); result.Err != nil {
		t.Fatal(result.Err)
	}
	ledger.Settle(service.Name, ipam.Written)
	return decision
}

func sameText[T interface{ String() string }](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].String() != b[i].String() {
			return false
		}
	}
	return true
}
