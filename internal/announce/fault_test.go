package announce_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// The tests in this file are named after the faults of the field that they keep out.

// verdict is the decision about an address, which must be held.
func verdict(t *testing.T, snapshot *cluster.Snapshot, address string) announce.Verdict {
	t.Helper()
	found, held := announce.Decide(snapshot).Of(netip.MustParseAddr(address))
	if !held {
		t.Fatalf("nobody holds %s", address)
	}
	return found
}

// checkNobody fails unless nobody answers, for that reason.
func checkNobody(t *testing.T, got announce.Verdict, word reason.Word) {
	t.Helper()
	if got.Owner != "" || got.Why == nil || got.Why.Word != word {
		t.Errorf("%s: owner %q, reason %v; want nobody, %s", got.Address, got.Owner, got.Why, word)
	}
}

// checkOwner fails unless that node answers.
func checkOwner(t *testing.T, got announce.Verdict, node string) {
	t.Helper()
	if got.Owner != node || got.Why != nil {
		t.Errorf("%s: owner %q, reason %v; want %s", got.Address, got.Owner, got.Why, node)
	}
}

// many are 200 Services with an address each and a ready endpoint on each of the nodes: enough for every node to own some.
func many(nodes ...string) []any {
	var services []any
	for i := range 200 {
		services = append(services, lbtest.Service(fmt.Sprint("shop/s", i), []string{fmt.Sprint("192.0.2.", i)}, lbtest.Ready(nodes...)))
	}
	return services
}

// owners is who owns each address.
func owners(snapshot *cluster.Snapshot) map[string]string {
	owners := map[string]string{}
	for _, one := range announce.Decide(snapshot).Verdicts() {
		owners[one.Address.String()] = one.Owner
	}
	return owners
}

// TestF54SharedAddressHasOneOwner: two Services share an address and have their pods on different nodes: one node answers.
func TestF54SharedAddressHasOneOwner(t *testing.T) {
	t.Parallel()
	snapshot := lbtest.Snapshot(lbtest.Nodes("n1", "n2", "n3"),
		lbtest.Service("shop/a", []string{"192.0.2.10"}, lbtest.Ready("n1")),
		lbtest.Service("shop/b", []string{"192.0.2.10"}, lbtest.Ready("n2")))
	table := announce.Decide(snapshot)
	var claims []announce.Claim
	for _, node := range []string{"n1", "n2", "n3"} {
		claims = append(claims, table.For(node)...)
	}
	if len(claims) != 1 {
		t.Fatalf("%d claims on one address: %v", len(claims), claims)
	}
	want := []string{"shop/a", "shop/b"}
	if diff := cmp.Diff(want, serviceNames(claims[0].Services)); diff != "" {
		t.Errorf("Services it is announced for: %s", diff)
	}
}

func serviceNames(services []*cluster.Service) []string {
	var names []string
	for _, service := range services {
		names = append(names, service.Name.String())
	}
	return names
}

// TestF56CandidatesAreOfTheServicesOwnAdvertisements: an advertisement for another Service makes no node a candidate.
func TestF56CandidatesAreOfTheServicesOwnAdvertisements(t *testing.T) {
	t.Parallel()
	for last := range 20 { // some of these n2 would win
		address := fmt.Sprint("192.0.2.", last)
		snapshot := lbtest.Snapshot(
			lbtest.Node("n1", nodeLabels("name=n1")), lbtest.Member("n1"), lbtest.Node("n2", nodeLabels("name=n2")), lbtest.Member("n2"),
			lbtest.Advertisement("a1", lbtest.ForServices("app=a"), lbtest.ForNodes("name=n1")),
			lbtest.Advertisement("a2", lbtest.ForServices("app=b"), lbtest.ForNodes("name=n2")),
			lbtest.Service("shop/a", []string{address}, lbtest.Labelled("app=a"), lbtest.Ready("n1", "n2")))
		checkOwner(t, verdict(t, snapshot, address), "n1")
	}
}

func nodeLabels(labels ...string) func(*cluster.Node) {
	return func(node *cluster.Node) { node.Labels = lbtest.Labels(labels...) }
}

// TestF57OnlyLiveReadyConnectedNodesOwn is the matrix of Ready, speaker alive and network unavailable for n1, beside three
// healthy nodes.
func TestF57OnlyLiveReadyConnectedNodesOwn(t *testing.T) {
	t.Parallel()
	for bits := range 8 {
		ready, alive, unavailable := bits&1 > 0, bits&2 > 0, bits&4 > 0
		t.Run(fmt.Sprintf("ready=%v,alive=%v,unavailable=%v", ready, alive, unavailable), func(t *testing.T) {
			t.Parallel()
			parts := []any{
				many("n1", "n2", "n3", "n4"), lbtest.Nodes("n2", "n3", "n4"),
				lbtest.Node("n1", func(node *cluster.Node) { node.Ready, node.NetworkUnavailable = ready, unavailable }),
			}
			if alive {
				parts = append(parts, lbtest.Member("n1"))
			}
			owning := values(owners(lbtest.Snapshot(parts...)))
			if want := ready && alive && !unavailable; slices.Contains(owning, "n1") != want {
				t.Errorf("n1 owns addresses: %v", !want)
			}
			if slices.Contains(owning, "") {
				t.Error("nobody owns some address")
			}
		})
	}
}

// TestF58NodeWithoutNetworkDoesNotOwn: a node that boots is no candidate until its network is set up; then it is.
func TestF58NodeWithoutNetworkDoesNotOwn(t *testing.T) {
	t.Parallel()
	booting := func(unavailable bool) *cluster.Snapshot {
		return lbtest.Snapshot(many("n1", "n2"), lbtest.Nodes("n2"), lbtest.Member("n1"),
			lbtest.Node("n1", func(node *cluster.Node) { node.NetworkUnavailable = unavailable }))
	}
	for address, owner := range owners(booting(true)) {
		if owner != "n2" {
			t.Errorf("%s: owner %q while n1 has no network", address, owner)
		}
	}
	if !slices.Contains(values(owners(booting(false))), "n1") {
		t.Error("n1 owns nothing although its network is set up")
	}
}

func values(owners map[string]string) []string {
	var list []string
	for _, owner := range owners {
		list = append(list, owner)
	}
	return list
}

// TestF60EndpointsOnANodeWithoutSpeaker: they are reached through another node, but not under policy Local.
func TestF60EndpointsOnANodeWithoutSpeaker(t *testing.T) {
	t.Parallel()
	snapshot := lbtest.Snapshot(lbtest.Nodes("n1"), lbtest.Node("w1"),
		lbtest.Service("shop/a", []string{"192.0.2.10"}, lbtest.Ready("w1")),
		lbtest.Service("shop/b", []string{"192.0.2.11"}, lbtest.Ready("w1"), lbtest.Local))
	checkOwner(t, verdict(t, snapshot, "192.0.2.10"), "n1")
	checkNobody(t, verdict(t, snapshot, "192.0.2.11"), reason.NoLocalEndpoints)
}

// TestF61EndpointsThatNameNoNode: they count, but for no node's own.
func TestF61EndpointsThatNameNoNode(t *testing.T) {
	t.Parallel()
	snapshot := lbtest.Snapshot(lbtest.Nodes("n1"),
		lbtest.Service("shop/a", []string{"192.0.2.10"}, lbtest.Ready("")),
		lbtest.Service("shop/b", []string{"192.0.2.11"}, lbtest.Ready(""), lbtest.Local))
	checkOwner(t, verdict(t, snapshot, "192.0.2.10"), "n1")
	checkNobody(t, verdict(t, snapshot, "192.0.2.11"), reason.NoLocalEndpoints)
}

// TestF66InterfacesLimitLinks: with a list the first of those on it speaks, without one the first of all, and one that
// does not exist speaks for nobody.
func TestF66InterfacesLimitLinks(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		list   []string
		link   string // that speaks; none if nobody answers
	}{
		"NoList":        {reason: "one link speaks, the first by name", link: "eth0"},
		"First":         {reason: "the listed one", list: []string{"eth0"}, link: "eth0"},
		"Second":        {reason: "the listed one", list: []string{"eth1"}, link: "eth1"},
		"Both":          {reason: "one link speaks, the first by name", list: []string{"eth1", "eth0"}, link: "eth0"},
		"OneIsMissing":  {reason: "the other", list: []string{"bond0", "eth1"}, link: "eth1"},
		"NoneExists":    {reason: "a listed interface that does not exist", list: []string{"bond0"}},
		"WithoutSubnet": {reason: "one without an IPv4 address, if it is listed", list: []string{"eth2"}, link: "eth2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := lbtest.Snapshot(lbtest.Node("n1"),
				lbtest.Member("n1", lbtest.Links(lbtest.Link("eth0", "192.0.2.0/24"), lbtest.Link("eth1", "192.0.2.0/24"), lbtest.Link("eth2"))),
				lbtest.Advertisement("limited", lbtest.Interfaces(c.list...)),
				lbtest.Service("shop/web", []string{"192.0.2.10"}, lbtest.Ready("n1")))
			got := verdict(t, snapshot, "192.0.2.10")
			if c.link == "" {
				checkNobody(t, got, reason.NoCandidates)
				return
			}
			checkOwner(t, got, "n1")
			if got.Link != c.link {
				t.Errorf("%s: link %q, want %q", c.reason, got.Link, c.link)
			}
			if claims := announce.Decide(snapshot).For("n1"); !slices.Equal(claims[0].Interfaces, slices.Sorted(slices.Values(c.list))) {
				t.Errorf("%s: the claim is for links %q", c.reason, claims[0].Interfaces)
			}
		})
	}
}

// TestF68LinksWithHalfAStack: IPv4 is for links that have such an address or are listed, IPv6 for those that have a
// link-local one, and a family that no link can carry has a reason that says so.
func TestF68LinksWithHalfAStack(t *testing.T) {
	t.Parallel()
	const four, six, local = "192.0.2.0/24", "2001:db8::/64", "fe80::/64"
	cases := map[string]struct {
		reason       string
		subnets      []string
		list         []string
		want4, want6 bool
	}{
		"IPv4":         {reason: "no link-local address", subnets: []string{four}, want4: true},
		"IPv6":         {reason: "no IPv4 address", subnets: []string{six, local}, want6: true},
		"Both":         {reason: "the order does not matter", subnets: []string{local, four}, want4: true, want6: true},
		"GlobalOnly":   {reason: "a global address is not enough", subnets: []string{six}},
		"ListedIPv6":   {reason: "a listed link answers ARP without an address", subnets: []string{local}, list: []string{"eth0"}, want4: true, want6: true},
		"ListedIPv4":   {reason: "a listed link needs its link-local address", subnets: []string{four}, list: []string{"eth0"}, want4: true},
		"ListedOthers": {reason: "it is not listed", subnets: []string{four, six, local}, list: []string{"eth1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := lbtest.Snapshot(lbtest.Node("n1"), lbtest.Member("n1", lbtest.Links(lbtest.Link("eth0", c.subnets...))),
				lbtest.Advertisement("some", lbtest.Interfaces(c.list...)),
				lbtest.Service("shop/web", []string{"192.0.2.10", "2001:db8::10"}, lbtest.Ready("n1")))
			for address, want := range map[string]bool{"192.0.2.10": c.want4, "2001:db8::10": c.want6} {
				got := verdict(t, snapshot, address)
				if !want {
					checkNobody(t, got, reason.NoCandidates)
					continue
				}
				checkOwner(t, got, "n1")
			}
		})
	}
}

// TestF76LeavingServiceTakesItsOwnAddressOnly: of two addresses of a deleted Service the shared one stays announced, for
// the other holder, and the other is gone.
func TestF76LeavingServiceTakesItsOwnAddressOnly(t *testing.T) {
	t.Parallel()
	other := lbtest.Service("shop/b", []string{"192.0.2.10"}, lbtest.Ready("n1"))
	node := []any{lbtest.Node("n1"), lbtest.Member("n1", lbtest.Links(lbtest.Link("eth0", "192.0.2.0/24", "fe80::/64")))}
	both := lbtest.Snapshot(node, other, lbtest.Service("shop/a", []string{"192.0.2.10", "2001:db8::10"}, lbtest.Ready("n1")))
	checkOwner(t, verdict(t, both, "192.0.2.10"), "n1")
	checkOwner(t, verdict(t, both, "2001:db8::10"), "n1")

	table := announce.Decide(lbtest.Snapshot(node, other))
	var left []string
	for _, one := range table.Verdicts() {
		left = append(left, one.Address.String())
	}
	if diff := cmp.Diff([]string{"192.0.2.10"}, left); diff != "" {
		t.Errorf("addresses decided about: %s", diff)
	}
	if claims := table.For("n1"); len(claims) != 1 || len(claims[0].Services) != 1 || claims[0].Services[0] != other {
		t.Errorf("claims of n1: %v", claims)
	}
}

// TestF77OnlyAddressesOfAChangedNodeMove: a node that comes takes about its share, one that goes gives away its own, and
// nothing moves between the others.
func TestF77OnlyAddressesOfAChangedNodeMove(t *testing.T) {
	t.Parallel()
	services := many("n1", "n2", "n3", "n4")
	three := owners(lbtest.Snapshot(services, lbtest.Nodes("n1", "n2", "n3")))
	four := owners(lbtest.Snapshot(services, lbtest.Nodes("n1", "n2", "n3", "n4")))
	moved := 0
	for address, before := range three {
		after := four[address]
		if after != before {
			moved++
		}
		if after != before && after != "n4" {
			t.Errorf("%s moved from %s to %s when n4 came", address, before, after)
		}
	}
	if moved < 30 || moved > 70 {
		t.Errorf("%d of 200 addresses moved to one node of four", moved)
	}
	two := owners(lbtest.Snapshot(services, lbtest.Nodes("n1", "n2")))
	for address, before := range three {
		if after := two[address]; before != "n3" && after != before {
			t.Errorf("%s moved from %s to %s when n3 went", address, before, after)
		}
	}
}

// TestF78OwnerDies: another node with a ready endpoint answers; if the only endpoint of a Local Service died, nobody does,
// and the reason says so. A Cluster Service stays announced even then: docs/decisions/0010-down-nodes-endpoints.md.
func TestF78OwnerDies(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		edits  []func(*cluster.Service)
		owner  string
		word   reason.Word // if nobody answers
	}{
		"Cluster":         {reason: "any node answers", edits: []func(*cluster.Service){lbtest.Ready("n1", "n2")}, owner: "n2"},
		"ClusterDeadOnly": {reason: "the node may be alive", edits: []func(*cluster.Service){lbtest.Ready("n1")}, owner: "n2"},
		"Local":           {reason: "the other one with an endpoint", edits: []func(*cluster.Service){lbtest.Local, lbtest.Ready("n1", "n2")}, owner: "n2"},
		"LocalServing": {
			reason: "one that terminates counts, since no other lives",
			edits:  []func(*cluster.Service){lbtest.Local, lbtest.Ready("n1"), lbtest.Serving("n2")}, owner: "n2",
		},
		"LocalDeadOnly": {reason: "nobody could serve it", edits: []func(*cluster.Service){lbtest.Local, lbtest.Ready("n1")}, word: reason.NoLocalEndpoints},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := lbtest.Service("shop/web", []string{"192.0.2.10"}, c.edits...)
			got := verdict(t, lbtest.Snapshot(service, lbtest.Node("n1"), lbtest.Dead("n1"), lbtest.Nodes("n2")), "192.0.2.10")
			if c.owner == "" {
				checkNobody(t, got, c.word)
				return
			}
			checkOwner(t, got, c.owner)
		})
	}
}

// TestDeadLocalServiceDoesNotSilenceASharer: a Local Service whose endpoints have died with their node does not count, and
// the other Services on the address go on together (rules E1, P2).
func TestDeadLocalServiceDoesNotSilenceASharer(t *testing.T) {
	t.Parallel()
	snapshot := lbtest.Snapshot(lbtest.Node("n1"), lbtest.Dead("n1"), lbtest.Nodes("n2", "n3"),
		lbtest.Service("shop/a", []string{"192.0.2.10"}, lbtest.Ready("n2", "n3")),
		lbtest.Service("shop/b", []string{"192.0.2.10"}, lbtest.Local, lbtest.Ready("n3")),
		lbtest.Service("shop/c", []string{"192.0.2.10"}, lbtest.Local, lbtest.Ready("n1")))
	got := verdict(t, snapshot, "192.0.2.10")
	checkOwner(t, got, "n3")
	if diff := cmp.Diff([]string{"shop/a", "shop/b"}, serviceNames(got.Services)); diff != "" {
		t.Errorf("announced for: %s", diff)
	}
}

// TestF85SharersUnderLocal: an address of two Local Services is announced where both have an endpoint, and no longer by a
// node that has lost one.
func TestF85SharersUnderLocal(t *testing.T) {
	t.Parallel()
	share := func(nodes ...string) *cluster.Snapshot {
		return lbtest.Snapshot(lbtest.Nodes("n1", "n2"),
			lbtest.Service("shop/a", []string{"192.0.2.10"}, lbtest.Local, lbtest.Ready(nodes...)),
			lbtest.Service("shop/b", []string{"192.0.2.10"}, lbtest.Local, lbtest.Ready(nodes...)))
	}
	checkOwner(t, verdict(t, share("n1"), "192.0.2.10"), "n1")
	if got := verdict(t, share("n1", "n2"), "192.0.2.10"); got.Owner == "" {
		t.Error("nobody answers with an endpoint on both nodes")
	}
	checkOwner(t, verdict(t, share("n1"), "192.0.2.10"), "n1")
	checkOwner(t, verdict(t, share("n2"), "192.0.2.10"), "n2")
}

// TestF86NoEndpointsNoAnnouncement: with the last endpoint the address goes, with the first it is back.
func TestF86NoEndpointsNoAnnouncement(t *testing.T) {
	t.Parallel()
	web := func(edits ...func(*cluster.Service)) *cluster.Snapshot {
		return lbtest.Snapshot(lbtest.Nodes("n1", "n2"), lbtest.Service("shop/web", []string{"192.0.2.10"}, edits...))
	}
	checkNobody(t, verdict(t, web(), "192.0.2.10"), reason.NoEndpoints)
	for name, snapshot := range map[string]*cluster.Snapshot{"ready": web(lbtest.Ready("n1")), "still serving": web(lbtest.Serving("n1"))} {
		if got := verdict(t, snapshot, "192.0.2.10"); got.Owner == "" {
			t.Errorf("nobody answers with an endpoint that is %s: %v", name, got.Why)
		}
	}
}

// TestF88LocalWaitsForReady: a replacement that is not ready yet makes no node announce; and one that terminates counts
// only while none is ready anywhere.
func TestF88LocalWaitsForReady(t *testing.T) {
	t.Parallel()
	web := func(endpoints ...discoveryv1.Endpoint) *cluster.Snapshot {
		return fromObjects(lbtest.SliceObject("web-1", "shop/web", endpoints...))
	}
	checkNobody(t, verdict(t, web(lbtest.Endpoint("n1", false)), "192.0.2.10"), reason.NoEndpoints)
	checkOwner(t, verdict(t, web(lbtest.Endpoint("n1", false), lbtest.Endpoint("n2", true)), "192.0.2.10"), "n2")
	checkOwner(t, verdict(t, web(lbtest.Terminating("n1"), lbtest.Endpoint("n2", true)), "192.0.2.10"), "n2")
	checkOwner(t, verdict(t, web(lbtest.Terminating("n1"), lbtest.Endpoint("n2", false)), "192.0.2.10"), "n1")
}

// fromObjects is the picture that a store has of a Local Service with these slices, and of two nodes with live speakers.
func fromObjects(objects ...*discoveryv1.EndpointSlice) *cluster.Snapshot {
	store := compile.NewStore(compile.Options{Default: true})
	for _, object := range objects {
		store.SetSlice(object)
	}
	store.SetService(lbtest.ServiceObject("shop/web", lbtest.Holding("192.0.2.10"), func(object *corev1.Service) {
		object.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}))
	store.SetAdvertisement(lbtest.AdvertisementObject("all"))
	facts := cluster.Facts{Members: map[string]*cluster.Member{}}
	for _, node := range []string{"n1", "n2"} {
		store.SetNode(lbtest.NodeObject(node))
		facts.Members[node] = lbtest.Member(node)
	}
	return store.Snapshot(facts, lbtest.Now())
}

// TestF89ReadyInAnySlice: an endpoint that one slice calls ready on n2 and another not ready on n1 makes n2 announce, in
// whatever order the slices come; also if a hundred others stand between.
func TestF89ReadyInAnySlice(t *testing.T) {
	t.Parallel()
	var unready []discoveryv1.Endpoint
	for range 100 {
		unready = append(unready, lbtest.Endpoint("n1", false))
	}
	objects := []*discoveryv1.EndpointSlice{
		lbtest.SliceObject("web-1", "shop/web", unready...),
		lbtest.SliceObject("web-2", "shop/web", append(unready[:50:50], lbtest.Endpoint("n2", true))...),
		lbtest.SliceObject("web-3", "shop/web", unready...),
	}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		checkOwner(t, verdict(t, fromObjects(objects[order[0]], objects[order[1]], objects[order[2]]), "192.0.2.10"), "n2")
	}
}

// TestF124CordonChangesNothing: with every node cordoned the decisions are the same.
func TestF124CordonChangesNothing(t *testing.T) {
	t.Parallel()
	decide := func(cordoned bool) map[string]string {
		store := compile.NewStore(compile.Options{Default: true})
		store.SetAdvertisement(lbtest.AdvertisementObject("all"))
		facts := cluster.Facts{Members: map[string]*cluster.Member{}}
		for _, node := range []string{"n1", "n2", "n3"} {
			facts.Members[node] = lbtest.Member(node)
			store.SetNode(lbtest.NodeObject(node, func(object *corev1.Node) {
				object.Spec.Unschedulable = cordoned
				if cordoned {
					object.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
				}
			}))
		}
		for i := range 100 {
			name := fmt.Sprint("shop/s", i)
			store.SetService(lbtest.ServiceObject(name, lbtest.Holding(fmt.Sprint("192.0.2.", i))))
			store.SetSlice(lbtest.SliceObject(fmt.Sprint("s", i), name, lbtest.Endpoint("n1", true)))
		}
		return owners(store.Snapshot(facts, lbtest.Now()))
	}
	before := decide(false)
	if slices.Contains(values(before), "") || len(before) != 100 {
		t.Fatalf("not every address is announced: %v", before)
	}
	if diff := cmp.Diff(before, decide(true)); diff != "" {
		t.Error(diff)
	}
}
