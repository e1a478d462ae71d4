package announce_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/lbtest"
)

// TestTiers is rule E2: who is preferred before the hash decides. Each case is decided for 20 addresses, so that the hash
// would choose each of the nodes.
func TestTiers(t *testing.T) {
	t.Parallel()
	stale := func(member *cluster.Member) { member.Stale = true }
	unsure := func(member *cluster.Member) { member.Unsure = true }
	elsewhere := lbtest.Links(lbtest.Link("eth0", "198.51.100.0/24"))
	rackA := nodeLabels("rack=a")
	unready := readiness(false, time.Hour)
	racks := lbtest.Advertisement("racks", lbtest.Prefer(10, "rack=a"), lbtest.Prefer(5, "rack=a"), lbtest.Prefer(12, "rack=b"))
	delayed := lbtest.Advertisement("delayed", lbtest.Failback(2*time.Minute))
	either := []string{"n1", "n2"}
	cases := map[string]struct {
		reason string
		parts  [][]any
		want   []string // exactly these own some of the addresses
	}{
		"Alike":    {reason: "the hash decides", parts: [][]any{speaking("n1"), speaking("n2")}, want: either},
		"Stale":    {reason: "fresh before stale", parts: [][]any{speaking("n1"), speaking("n2", stale)}, want: []string{"n1"}},
		"AllStale": {reason: "if all are stale nothing changes", parts: [][]any{speaking("n1", stale), speaking("n2", stale)}, want: either},
		"StaleFirst": {
			reason: "the API server has gone, and one notices before the others",
			parts:  [][]any{speaking("n1", unsure), speaking("n2", stale)}, want: either,
		},
		"StaleAmongUnsure": {
			reason: "one is sure that it has not gone",
			parts:  [][]any{speaking("n1", unsure), speaking("n2", stale), speaking("n3")}, want: []string{"n1", "n3"},
		},
		"Unsure":    {reason: "to be unsure is no fault", parts: [][]any{speaking("n1"), speaking("n2", unsure)}, want: either},
		"NotReady":  {reason: "half of them are ready: that counts", parts: [][]any{speaking("n1"), speaking("n2", unready)}, want: []string{"n1"}},
		"Elsewhere": {reason: "a link in the subnet before none", parts: [][]any{speaking("n1"), speaking("n2", elsewhere)}, want: []string{"n1"}},
		"AllElsewhere": {
			reason: "none has a link in the subnet",
			parts:  [][]any{speaking("n1", elsewhere), speaking("n2", elsewhere)}, want: either,
		},
		"MostNotReady": {
			reason: "fewer than half are ready: readiness is ignored",
			parts:  [][]any{speaking("n1"), speaking("n2", unready), speaking("n3", unready)}, want: []string{"n1", "n2", "n3"},
		},
		"NoCandidateUnready": {
			reason: "nodes that are no candidates do not count among the unready",
			parts:  [][]any{speaking("n1"), speaking("n2", unready), {lbtest.Node("n3", unready), lbtest.Node("n4", unready)}}, want: []string{"n1"},
		},
		"JustNotReady": {
			reason: "it has not stood for 10 s",
			parts:  [][]any{speaking("n1"), speaking("n2", readiness(false, 9*time.Second))}, want: either,
		},
		"StoodNotReady": {
			reason: "it has",
			parts:  [][]any{speaking("n1"), speaking("n2", readiness(false, 10*time.Second))}, want: []string{"n1"},
		},
		"JustReadyAgain": {
			reason: "trouble that ends within 10 s moves nothing: neither when it begins nor when it ends",
			parts:  [][]any{speaking("n1"), speaking("n2", readiness(true, time.Second))}, want: either,
		},
		"Preferred":   {reason: "weights add up", parts: [][]any{speaking("n1", nodeLabels("rack=b")), speaking("n2", rackA), {racks}}, want: []string{"n2"}},
		"ReadyFirst":  {reason: "readiness before weight", parts: [][]any{speaking("n1"), speaking("n2", rackA, unready), {racks}}, want: []string{"n1"}},
		"SubnetFirst": {reason: "the subnet before weight", parts: [][]any{speaking("n1"), speaking("n2", rackA, elsewhere), {racks}}, want: []string{"n1"}},
		"Back":        {reason: "settled before back too short", parts: [][]any{speaking("n1"), speaking("n2", back(time.Minute)), {delayed}}, want: []string{"n1"}},
		"Outlived":    {reason: "it has been back for as long as it must", parts: [][]any{speaking("n1"), speaking("n2", back(2*time.Minute)), {delayed}}, want: either},
		"NoDelay":     {reason: "without a delay nobody has to be settled", parts: [][]any{speaking("n1"), speaking("n2", back(0))}, want: either},
		"AllBack":     {reason: "nobody is settled", parts: [][]any{speaking("n1", back(0)), speaking("n2", back(time.Minute)), {delayed}}, want: either},
		"LongestDelay": {
			reason: "of two advertisements the longer delay counts",
			parts:  [][]any{speaking("n1"), speaking("n2", back(2*time.Minute)), {delayed}, {lbtest.Advertisement("longer", lbtest.Failback(3*time.Minute))}}, want: []string{"n1"},
		},
		"DelayElsewhere": {
			reason: "an advertisement that does not select the node has no delay for it",
			parts:  [][]any{speaking("n1"), speaking("n2", back(0)), {lbtest.Advertisement("all")}, {lbtest.Advertisement("rack", lbtest.Failback(time.Minute), lbtest.ForNodes("rack=a"))}}, want: either,
		},
		"PreferredFirst": {
			reason: "weight before settled",
			parts:  [][]any{speaking("n1"), speaking("n2", rackA, back(0)), {racks}, {delayed}}, want: []string{"n2"},
		},
		"FreshFirst": {reason: "freshness before readiness", parts: [][]any{speaking("n1", unready), speaking("n2", stale)}, want: []string{"n1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := slices.Concat(c.parts...)
			for i := range 20 {
				parts = append(parts, lbtest.Service(fmt.Sprint("shop/s", i), []string{fmt.Sprint("192.0.2.", i)}, lbtest.Ready("n1")))
			}
			owns := map[string]int{}
			for _, owner := range owners(lbtest.Snapshot(parts...)) {
				owns[owner]++
			}
			for _, node := range c.want {
				if owns[node] == 0 {
					t.Errorf("%s: %s owns nothing: %v", c.reason, node, owns)
				}
				delete(owns, node)
			}
			if len(owns) > 0 {
				t.Errorf("%s: others own addresses: %v", c.reason, owns)
			}
		})
	}
}

// speaking is a node with a live speaker, both as the edits make them.
func speaking(name string, edits ...any) []any {
	node, member := lbtest.Node(name), lbtest.Member(name)
	for _, edit := range edits {
		switch edit := edit.(type) {
		case func(*cluster.Node):
			edit(node)
		case func(*cluster.Member):
			edit(member)
		}
	}
	return []any{node, member}
}

// back makes a speaker one that has come back, and has outlived that delay.
func back(outlived time.Duration) func(*cluster.Member) {
	return func(member *cluster.Member) { member.Settled, member.Outlived = false, outlived }
}

// readiness makes a node ready, or not, since then.
func readiness(ready bool, since time.Duration) func(*cluster.Node) {
	return func(node *cluster.Node) { node.Ready, node.ReadySince = ready, lbtest.Now().Add(-since) }
}

// TestReadinessIsOfTheCandidates: half of the candidates are ready, so readiness counts, although of all nodes, which for
// want of an endpoint are no candidates of this Local Service, most are not.
func TestReadinessIsOfTheCandidates(t *testing.T) {
	t.Parallel()
	notReady := func(node *cluster.Node) { node.Ready = false }
	var parts []any
	for _, name := range []string{"n2", "n3", "n4", "n5"} {
		parts = append(parts, lbtest.Node(name, notReady), lbtest.Member(name))
	}
	for i := range 20 {
		parts = append(parts, lbtest.Service(fmt.Sprint("shop/s", i), []string{fmt.Sprint("192.0.2.", i)}, lbtest.Local, lbtest.Ready("n1", "n2")))
	}
	for address, owner := range owners(lbtest.Snapshot(lbtest.Nodes("n1"), parts)) {
		if owner != "n1" {
			t.Errorf("%s: owner %q, which is not ready", address, owner)
		}
	}
}

// TestE12SharersAndAdvertisements: on a shared address the advertisements of all Services count, each but once; links are
// united over advertisements and intersected over Services.
func TestE12SharersAndAdvertisements(t *testing.T) {
	t.Parallel()
	links := lbtest.Links(lbtest.Link("eth0", "192.0.2.0/24"), lbtest.Link("eth1", "192.0.2.0/24"), lbtest.Link("eth2", "192.0.2.0/24"))
	nodes := []any{
		lbtest.Node("n1", nodeLabels("rack=a")), lbtest.Member("n1", links),
		lbtest.Node("n2", nodeLabels("rack=b")), lbtest.Member("n2", links),
	}
	cases := map[string]struct {
		reason         string
		advertisements []any
		owner, link    string
	}{
		"WeightOnce": {
			reason: "an advertisement for both Services has its weight once: 60 beats 50, not 100",
			advertisements: []any{
				lbtest.Advertisement("both", lbtest.Prefer(50, "rack=a")),
				lbtest.Advertisement("one", lbtest.ForServices("app=a"), lbtest.Prefer(60, "rack=b")),
			},
			owner: "n2", link: "eth0",
		},
		"Intersection": {
			reason: "the link both Services may use",
			advertisements: []any{
				lbtest.Advertisement("a1", lbtest.ForServices("app=a"), lbtest.ForNodes("rack=a"), lbtest.Interfaces("eth0")),
				lbtest.Advertisement("a2", lbtest.ForServices("app=a"), lbtest.ForNodes("rack=a"), lbtest.Interfaces("eth2", "eth1")),
				lbtest.Advertisement("b", lbtest.ForServices("app=b"), lbtest.Interfaces("eth2")),
			},
			owner: "n1", link: "eth2",
		},
		"AllAndSome": {
			reason: "an empty list means all",
			advertisements: []any{
				lbtest.Advertisement("a1", lbtest.ForServices("app=a"), lbtest.ForNodes("rack=b"), lbtest.Interfaces("eth0")),
				lbtest.Advertisement("a2", lbtest.ForServices("app=a"), lbtest.ForNodes("rack=b")),
				lbtest.Advertisement("b", lbtest.ForServices("app=b"), lbtest.Interfaces("eth1")),
			},
			owner: "n2", link: "eth1",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := lbtest.Snapshot(nodes, c.advertisements,
				lbtest.Service("shop/a", []string{"192.0.2.10"}, lbtest.Labelled("app=a"), lbtest.Ready("n1")),
				lbtest.Service("shop/b", []string{"192.0.2.10"}, lbtest.Labelled("app=b"), lbtest.Ready("n1")))
			got := verdict(t, snapshot, "192.0.2.10")
			checkOwner(t, got, c.owner)
			if got.Link != c.link {
				t.Errorf("%s: link %q, want %q", c.reason, got.Link, c.link)
			}
		})
	}
}

// TestForNobody: what nobody answers for is no claim of the node without a name, which the controller has for itself.
func TestForNobody(t *testing.T) {
	t.Parallel()
	snapshot := lbtest.Snapshot(lbtest.Nodes("n1"), lbtest.Service("shop/web", []string{"192.0.2.10"}))
	if claims := announce.Decide(snapshot).For(""); len(claims) > 0 {
		t.Errorf("claims of nobody: %v", claims)
	}
}

// TestAgain: the moment at which a node's trouble begins to count is told, so that nobody sleeps through it.
func TestAgain(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	node := func(ready bool, since time.Duration) *cluster.Node {
		return &cluster.Node{Name: "n1", Ready: ready, ReadySince: now.Add(-since)}
	}
	cases := map[string]struct {
		reason string
		nodes  []*cluster.Node
		want   time.Time
	}{
		"Ready":      {reason: "a node that is ready changes nothing by itself", nodes: []*cluster.Node{node(true, time.Second)}},
		"Stood":      {reason: "what counts already will not begin to", nodes: []*cluster.Node{node(false, 11*time.Second)}},
		"Unready":    {reason: "10 s after it began", nodes: []*cluster.Node{node(false, 4*time.Second)}, want: now.Add(6 * time.Second)},
		"FirstOfTwo": {reason: "the earlier of two", nodes: []*cluster.Node{node(false, 4*time.Second), node(false, 7*time.Second)}, want: now.Add(3 * time.Second)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := announce.Decide(&cluster.Snapshot{Nodes: c.nodes, Now: now}).Again(); !got.Equal(c.want) {
				t.Errorf("%s: got %v, want %v", c.reason, got, c.want)
			}
		})
	}
}
