package announce_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
)

// The cluster of BenchmarkPlan.
const (
	benchServices       = 10_000
	benchSlices         = 2 * benchServices
	benchNodes          = 100
	benchEndpoints      = 5
	benchAdvertisements = 8
)

// BenchmarkPlan is what a speaker does when one slice has changed: take it in, take a snapshot, decide, read its own
// claims. Half of the Services are Local, a tenth shares its address with another, the nodes are in four subnets.
// Budget: 25 ms and 4 MB allocated.
func BenchmarkPlan(b *testing.B) {
	store := compile.NewStore(compile.Options{Default: true})
	benchObjects(store)
	facts := benchFacts()
	moving := [2]*discoveryv1.EndpointSlice{benchSlice(0, 0), benchSlice(0, 2)}
	store.SetSlice(moving[1])
	claims := announce.Decide(store.Snapshot(facts, lbtest.Now())).For("node-000")
	if len(claims) == 0 {
		b.Fatal("the node owns nothing: the cluster is not what it should be")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		store.SetSlice(moving[i%2])
		table := announce.Decide(store.Snapshot(facts, lbtest.Now()))
		claims = table.For("node-000")
	}
	b.ReportMetric(float64(len(claims)), "claims")
}

func benchObjects(store *compile.Store) {
	store.SetPool(lbtest.PoolObject(lbtest.PoolName, "198.18.0.0/15"))
	address := netip.MustParseAddr("198.18.0.0")
	for i := range benchServices {
		if benchGroup(i) == i {
			address = address.Next()
		}
		store.SetService(lbtest.ServiceObject(benchName(i), lbtest.Holding(address.String()), func(object *corev1.Service) {
			object.Labels = map[string]string{"app": fmt.Sprint("app-", i%100), "tier": fmt.Sprint("tier-", i%4)}
			if i%4 < 2 {
				object.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			}
		}))
	}
	for i := range benchSlices {
		store.SetSlice(benchSlice(i, i))
	}
	for i := range benchNodes {
		store.SetNode(lbtest.NodeObject(benchNode(i), func(object *corev1.Node) {
			object.Labels = map[string]string{"rack": fmt.Sprint("rack-", i%4), "role": "edge"}
			object.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", i)}
			object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", i)}}
		}))
	}
	for i := range benchAdvertisements {
		store.SetAdvertisement(lbtest.AdvertisementObject(fmt.Sprint("advertisement-", i), func(spec *v1beta1.L2AdvertisementSpec) {
			benchSelectors(spec, i)
		}))
	}
}

// benchSelectors gives each advertisement one selector of every kind: four by tier, which together are for every
// Service, and four by app for a few.
func benchSelectors(spec *v1beta1.L2AdvertisementSpec, i int) {
	label := fmt.Sprint("tier=tier-", i%4)
	if i >= 4 {
		label = fmt.Sprint("app=app-", i)
	}
	spec.ServiceSelectors = append(spec.ServiceSelectors, lbtest.LabelSelector(label))
	spec.NodeSelectors = append(spec.NodeSelectors, lbtest.LabelSelector("role=edge"))
	spec.PreferredNodeSelectors = append(spec.PreferredNodeSelectors, v1beta1.PreferredNodeSelector{
		Weight: 10, Preference: lbtest.LabelSelector(fmt.Sprint("rack=rack-", i%4)),
	})
}

// benchSlice is the i-th slice, with the endpoints of the like-th: a Service has two, for its endpoints on random nodes,
// 3 in the one and 2 in the other. Services that share an address have the same pods.
func benchSlice(i, like int) *discoveryv1.EndpointSlice {
	random := rand.New(rand.NewPCG(uint64(benchGroup(like/2)), uint64(like%2)))
	var endpoints []discoveryv1.Endpoint
	for range (benchEndpoints + 1 - i%2) / 2 {
		endpoints = append(endpoints, lbtest.Endpoint(benchNode(random.IntN(benchNodes)), true))
	}
	return lbtest.SliceObject(fmt.Sprint("slice-", i), benchName(i/2), endpoints...)
}

// benchGroup is the first Service on the address of the i-th: every tenth shares that of the one before it.
func benchGroup(i int) int {
	if i%10 == 1 {
		return i - 1
	}
	return i
}

func benchFacts() cluster.Facts {
	facts := cluster.Facts{Self: benchNode(0), Members: map[string]*cluster.Member{}}
	for i := range benchNodes {
		subnet := fmt.Sprintf("198.18.%d.0/18", i%4*64)
		facts.Members[benchNode(i)] = lbtest.Member(benchNode(i), lbtest.Links(
			lbtest.Link("eth0", subnet), lbtest.Link("eth1", "10.0.0.0/8")))
	}
	return facts
}

func benchName(i int) string { return fmt.Sprintf("shop/service-%05d", i) }
func benchNode(i int) string { return fmt.Sprintf("node-%03d", i) }
