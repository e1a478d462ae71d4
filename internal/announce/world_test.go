package announce_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
)

// A world is a random cluster in the plainest words. It is written as API objects for the store, and read as it is by the
// twin of Decide (twin_test.go).
type world struct {
	nodes    []worldNode
	services []worldService
	adverts  []worldAdvert
}

type worldNode struct {
	name, rack             string
	object                 bool // the Node exists
	ready                  bool
	readyFor               time.Duration // how long Ready has been what it is
	unavailable            bool          // its network
	leaving                bool
	speaker                bool // alive
	dead                   bool // its speaker was alive
	stale, unsure, proxied bool
	settled                bool
	outlived               time.Duration
	links                  []string // of worldLinks
}

type worldService struct {
	name, app, pool string
	local           bool
	ours, given     bool // of our class; the addresses are from us
	since           time.Duration
	addresses       []string
	endpoints       []worldEndpoint
}

// worldEndpoint is one endpoint, on a node or "", in the state ready, serving or dead.
type worldEndpoint struct{ node, state string }

type worldAdvert struct {
	name             string
	pools            []string
	app, rack        string // "" for every
	links            []string
	prefer           string // a rack
	weight, evenMore int32  // of that rack, by two selectors
	delay            time.Duration
}

// The worlds' addresses, racks and links. Of the links eth0 has no IPv6 and eth2 no IPv4 address; no
// link is in the subnet of the last address of a family.
func worldAddresses() []string {
	return []string{"192.0.2.10", "192.0.2.11", "198.51.100.10", "203.0.113.10", "2001:db8::10", "2001:db8:1::10"}
}
func racks() []string { return []string{"a", "b"} }
func worldLinks() map[string]cluster.Link {
	return map[string]cluster.Link{
		"eth0": lbtest.Link("eth0", "192.0.2.0/24"),
		"eth1": lbtest.Link("eth1", "198.51.100.0/24", "192.0.2.0/25", "2001:db8::/64", "fe80::/64"),
		"eth2": lbtest.Link("eth2", "fe80::/64"),
	}
}

// worlds draws one of up to six nodes and six Services.
func worlds() *rapid.Generator[world] {
	return rapid.Custom(func(t *rapid.T) world {
		var w world
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			w.nodes = append(w.nodes, drawNode(t, fmt.Sprint("n", i)))
		}
		for i := range rapid.IntRange(1, 6).Draw(t, "services") {
			w.services = append(w.services, drawService(t, fmt.Sprint("s", i), w.nodes))
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "advertisements") {
			w.adverts = append(w.adverts, drawAdvert(t, fmt.Sprint("a", i)))
		}
		return w
	})
}

// mostly draws true three times in four, so that worlds are alive; seldom is its opposite.
func mostly(t *rapid.T, what string) bool { return rapid.IntRange(0, 3).Draw(t, what) > 0 }
func seldom(t *rapid.T, what string) bool { return rapid.IntRange(0, 7).Draw(t, what) == 7 }

func drawNode(t *rapid.T, name string) worldNode {
	n := worldNode{
		name: name, rack: rapid.SampledFrom(racks()).Draw(t, "rack"), object: !seldom(t, "no object"),
		ready: mostly(t, "ready"), readyFor: rapid.SampledFrom([]time.Duration{time.Hour, time.Second}).Draw(t, "for"),
		unavailable: seldom(t, "unavailable"), leaving: seldom(t, "leaving"),
		speaker: mostly(t, "speaker"), stale: seldom(t, "stale"), unsure: seldom(t, "unsure"), proxied: !seldom(t, "no proxy"),
		settled: mostly(t, "settled"), outlived: rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "outlived"),
		links: subset(t, "links", []string{"eth0", "eth1", "eth2"}),
	}
	n.dead = !n.speaker && rapid.Bool().Draw(t, "dead")
	return n
}

func drawService(t *rapid.T, name string, nodes []worldNode) worldService {
	s := worldService{
		name: name, app: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "app"), pool: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "pool"),
		local: rapid.Bool().Draw(t, "local"), ours: !seldom(t, "not ours"), given: !seldom(t, "foreign"),
		since:     time.Duration(rapid.IntRange(1, 3).Draw(t, "since")) * time.Minute,
		addresses: subset(t, "addresses", worldAddresses()),
	}
	where := []string{""}
	for _, node := range nodes {
		where = append(where, node.name)
	}
	for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
		s.endpoints = append(s.endpoints, worldEndpoint{
			node:  rapid.SampledFrom(where).Draw(t, "node"),
			state: rapid.SampledFrom([]string{"ready", "ready", "serving", "dead"}).Draw(t, "state"),
		})
	}
	return s
}

func drawAdvert(t *rapid.T, name string) worldAdvert {
	return worldAdvert{
		name: name, pools: subset(t, "pools", []string{"p", "q"}),
		app: rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(t, "app"), rack: rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "rack"),
		links:  rapid.SampledFrom([][]string{nil, nil, {"eth0"}, {"eth1", "eth2"}, {"eth2"}}).Draw(t, "links"),
		prefer: rapid.SampledFrom(racks()).Draw(t, "prefer"),
		weight: rapid.SampledFrom([]int32{0, 0, 5, 10}).Draw(t, "weight"), evenMore: rapid.SampledFrom([]int32{0, 5}).Draw(t, "even more"),
		delay: rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "delay"),
	}
}

// subset draws some of the words, in their order.
func subset(t *rapid.T, what string, words []string) []string {
	var some []string
	for _, word := range words {
		if rapid.Bool().Draw(t, what+": "+word) {
			some = append(some, word)
		}
	}
	return some
}

// snapshot is the world as a store sees it that is fed its objects in some order.
func (w *world) snapshot(t *rapid.T) *cluster.Snapshot {
	store := compile.NewStore(compile.Options{Default: true})
	var feeds []func()
	for i := range w.nodes {
		if w.nodes[i].object {
			feeds = append(feeds, func() { store.SetNode(w.nodes[i].write()) })
		}
	}
	for i := range w.services {
		feeds = append(feeds, func() { store.SetService(w.services[i].write()) })
		for _, slice := range w.services[i].slices() {
			feeds = append(feeds, func() { store.SetSlice(slice) })
		}
	}
	for i := range w.adverts {
		feeds = append(feeds, func() { store.SetAdvertisement(w.adverts[i].write()) })
	}
	for _, feed := range rapid.Permutation(feeds).Draw(t, "order") {
		feed()
	}
	return store.Snapshot(w.facts(), lbtest.Now())
}

func (w *world) facts() cluster.Facts {
	facts := cluster.Facts{Members: map[string]*cluster.Member{}, Down: map[string]bool{}}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.dead {
			facts.Down[n.name] = true
		}
		if n.speaker {
			member := &cluster.Member{Node: n.name, ProxyReady: n.proxied, Stale: n.stale, Unsure: n.unsure, Settled: n.settled, Outlived: n.outlived}
			for _, link := range n.links {
				member.Links = append(member.Links, worldLinks()[link])
			}
			facts.Members[n.name] = member
		}
	}
	return facts
}

func (n *worldNode) write() *corev1.Node {
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}
	return lbtest.NodeObject(n.name, func(object *corev1.Node) {
		object.Labels = map[string]string{"rack": n.rack}
		if n.leaving {
			object.Labels[corev1.LabelNodeExcludeBalancers] = ""
		}
		object.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeNetworkUnavailable, Status: status[n.unavailable]},
			{Type: corev1.NodeReady, Status: status[n.ready], LastTransitionTime: metav1.NewTime(lbtest.Now().Add(-n.readyFor))},
		}
	})
}

func (s *worldService) write() *corev1.Service {
	return lbtest.ServiceObject("shop/"+s.name, func(object *corev1.Service) {
		object.Labels = map[string]string{"app": s.app}
		if s.local {
			object.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		if !s.ours {
			other := "example.com/other"
			object.Spec.LoadBalancerClass = &other
		}
		lbtest.Holding(s.addresses...)(object)
		allocated, pool := &object.Status.Conditions[0], &object.Status.Conditions[1]
		allocated.LastTransitionTime = metav1.NewTime(lbtest.Now().Add(-s.since))
		pool.Message = strings.Join(slices.Repeat([]string{s.pool}, len(s.addresses)), ",")
		if !s.given {
			allocated.Message = "the status holds addresses that Berth did not give"
		}
	})
}

// slices spreads the endpoints over two slices for each family.
func (s *worldService) slices() []*discoveryv1.EndpointSlice {
	var endpoints [2][]discoveryv1.Endpoint
	for i, endpoint := range s.endpoints {
		written := lbtest.Endpoint(endpoint.node, endpoint.state == "ready")
		if endpoint.state == "serving" {
			written = lbtest.Terminating(endpoint.node)
		}
		endpoints[i%2] = append(endpoints[i%2], written)
	}
	var all []*discoveryv1.EndpointSlice
	for i := range endpoints {
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			slice := lbtest.SliceObject(fmt.Sprint(s.name, "-", i, family), "shop/"+s.name, endpoints[i]...)
			slice.AddressType = family
			all = append(all, slice)
		}
	}
	return all
}

func (a *worldAdvert) write() *v1beta1.L2Advertisement {
	return lbtest.AdvertisementObject(a.name, func(spec *v1beta1.L2AdvertisementSpec) {
		spec.IPAddressPools, spec.Interfaces = a.pools, a.links
		if a.delay > 0 {
			spec.FailbackDelay = &metav1.Duration{Duration: a.delay}
		}
		if a.app != "" {
			spec.ServiceSelectors = []metav1.LabelSelector{lbtest.LabelSelector("app=" + a.app)}
		}
		if a.rack != "" {
			spec.NodeSelectors = []metav1.LabelSelector{lbtest.LabelSelector("rack=" + a.rack)}
		}
		for _, weight := range []int32{a.weight, a.evenMore} {
			if weight > 0 {
				spec.PreferredNodeSelectors = append(spec.PreferredNodeSelectors, v1beta1.PreferredNodeSelector{
					Weight: weight, Preference: lbtest.LabelSelector("rack=" + a.prefer),
				})
			}
		}
	})
}
