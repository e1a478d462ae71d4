package compile_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
)

// TestEndpointConditions is rule P7's reading of an endpoint's three conditions, each said, denied or left open.
func TestEndpointConditions(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	cases := map[string]struct {
		reason     string
		conditions discoveryv1.EndpointConditions
		want       cluster.NodeEndpoints
	}{
		"Ready":    {reason: "says so", conditions: discoveryv1.EndpointConditions{Ready: &yes}, want: cluster.NodeEndpoints{Ready: 1}},
		"Silent":   {reason: "ready nil counts as ready", want: cluster.NodeEndpoints{Ready: 1}},
		"NotReady": {reason: "says no", conditions: discoveryv1.EndpointConditions{Ready: &no}},
		"NotReadyServing": {
			reason:     "only who terminates is used for serving",
			conditions: discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &no},
		},
		"Terminating": {
			reason:     "still serves",
			conditions: discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}, want: cluster.NodeEndpoints{Serving: 1},
		},
		"TerminatingSilent": {
			reason:     "serving nil counts as serving",
			conditions: discoveryv1.EndpointConditions{Ready: &no, Terminating: &yes}, want: cluster.NodeEndpoints{Serving: 1},
		},
		"TerminatingStopped": {reason: "serves no more", conditions: discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}},
		"PublishNotReady": {
			reason:     "ready although it terminates, as publishNotReadyAddresses makes it",
			conditions: discoveryv1.EndpointConditions{Ready: &yes, Terminating: &yes}, want: cluster.NodeEndpoints{Ready: 1},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slice := compile.EndpointSlice(lbtest.SliceObject("web-1", "shop/web", discoveryv1.Endpoint{Conditions: c.conditions}))
			var want cluster.Endpoints
			if c.want != (cluster.NodeEndpoints{}) {
				want = cluster.Endpoints{c.want}
			}
			if diff := cmp.Diff(want, slice.Endpoints, equal()); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
		})
	}
}

// TestSlicesOfNoService: they are left out.
func TestSlicesOfNoService(t *testing.T) {
	t.Parallel()
	nameless := lbtest.SliceObject("web-1", "shop/web", lbtest.Endpoint("n1", true))
	nameless.Labels = nil
	hosts := lbtest.SliceObject("web-1", "shop/web", lbtest.Endpoint("n1", true))
	hosts.AddressType = discoveryv1.AddressTypeFQDN
	for _, object := range []*discoveryv1.EndpointSlice{nameless, hosts} {
		if got := compile.EndpointSlice(object); got != nil {
			t.Errorf("compiled to %+v", got)
		}
	}
}

// endpointsOf are the Service's IPv4 endpoints after a store took in these slices, in this order.
func endpointsOf(objects ...*discoveryv1.EndpointSlice) cluster.Endpoints {
	store := compile.NewStore(defaults())
	store.SetService(lbtest.ServiceObject("shop/web"))
	for _, object := range objects {
		store.SetSlice(object)
	}
	return store.Snapshot(cluster.Facts{}, lbtest.Now()).Services[0].Endpoints4
}

// TestF88NotReadyIsNotAnnounced feeds the sequence of slices of a pod that is deleted by force and comes back unready.
func TestF88NotReadyIsNotAnnounced(t *testing.T) {
	t.Parallel()
	store := compile.NewStore(defaults())
	store.SetService(lbtest.ServiceObject("shop/web"))
	nobodyDown := func(string) bool { return false }
	steps := []struct {
		reason    string
		endpoints []discoveryv1.Endpoint
		want      bool
	}{
		{"the pod runs", []discoveryv1.Endpoint{lbtest.Endpoint("n1", true)}, true},
		{"it is gone", nil, false},
		{"its replacement starts", []discoveryv1.Endpoint{lbtest.Endpoint("n1", false)}, false},
		{"and is ready", []discoveryv1.Endpoint{lbtest.Endpoint("n1", true)}, true},
		{"or does not say", []discoveryv1.Endpoint{{NodeName: lbtest.Endpoint("n1", true).NodeName}}, true},
	}
	for _, step := range steps {
		store.SetSlice(lbtest.SliceObject("web-1", "shop/web", step.endpoints...))
		service := store.Snapshot(cluster.Facts{}, lbtest.Now()).Services[0]
		if got := service.Endpoints4.UsableOn("n1", nobodyDown); got != step.want {
			t.Errorf("%s: usable on n1 is %v", step.reason, got)
		}
	}
}

// TestF89EndpointsInSeveralSlices: an address that one slice calls ready on n2 and another not ready on n1 is ready on n2,
// in whatever order they come.
func TestF89EndpointsInSeveralSlices(t *testing.T) {
	t.Parallel()
	there := lbtest.SliceObject("web-1", "shop/web", lbtest.Endpoint("n2", true))
	gone := lbtest.SliceObject("web-2", "shop/web", lbtest.Endpoint("n1", false))
	want := cluster.Endpoints{{Node: "n2", Ready: 1}}
	for _, order := range [][]*discoveryv1.EndpointSlice{{there, gone}, {gone, there}} {
		if diff := cmp.Diff(want, endpointsOf(order...), equal()); diff != "" {
			t.Error(diff)
		}
	}
}

// TestF89ManyEndpoints: the endpoints of a Service are those of all its slices, counted by node one by one, in whatever
// order the slices come: 250 endpoints over five slices.
func TestF89ManyEndpoints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const slices, each = 5, 50
		counted := map[string]*cluster.NodeEndpoints{}
		var objects []*discoveryv1.EndpointSlice
		for i := range slices {
			var endpoints []discoveryv1.Endpoint
			for range each {
				endpoints = append(endpoints, drawCounted(t, counted))
			}
			objects = append(objects, lbtest.SliceObject(fmt.Sprint("web-", i), "shop/web", endpoints...))
		}
		var want cluster.Endpoints
		for _, node := range []string{"", "n1", "n2", "n3", "n4"} {
			if one := counted[node]; one != nil && one.Ready+one.Serving > 0 {
				want = append(want, *one)
			}
		}
		if diff := cmp.Diff(want, endpointsOf(rapid.Permutation(objects).Draw(t, "order")...), equal()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// drawCounted draws an endpoint and counts it.
func drawCounted(t *rapid.T, counted map[string]*cluster.NodeEndpoints) discoveryv1.Endpoint {
	node := rapid.SampledFrom([]string{"", "n1", "n2", "n3", "n4"}).Draw(t, "node")
	if counted[node] == nil {
		counted[node] = &cluster.NodeEndpoints{Node: node}
	}
	switch rapid.IntRange(0, 2).Draw(t, "state") {
	case 0:
		counted[node].Ready++
		return lbtest.Endpoint(node, true)
	case 1:
		counted[node].Serving++
		return lbtest.Terminating(node)
	default:
		return lbtest.Endpoint(node, false)
	}
}
