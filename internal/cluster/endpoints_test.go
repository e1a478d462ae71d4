package cluster_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/cluster"
)

// nodes are those of the tests, "" for endpoints that name none.
func nodes() []string { return []string{"", "n1", "n2", "n3"} }

// TestUsableEndpoints compares Usable, UsableOn and UsableNodes with rule P7 read word by word: ready endpoints count; if
// none is ready anywhere, those that serve; none on a node that is down.
func TestUsableEndpoints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var endpoints cluster.Endpoints
		for _, node := range nodes() {
			if rapid.Bool().Draw(t, "has endpoints on "+node) {
				endpoints = append(endpoints, cluster.NodeEndpoints{
					Node: node, Ready: rapid.IntRange(0, 2).Draw(t, "ready"), Serving: rapid.IntRange(0, 2).Draw(t, "serving"),
				})
			}
		}
		dead := rapid.SliceOfDistinct(rapid.SampledFrom(nodes()[1:]), rapid.ID[string]).Draw(t, "down")
		down := func(node string) bool { return slices.Contains(dead, node) }
		want := usableNodes(endpoints, down)
		if diff := cmp.Diff(want, slices.Collect(endpoints.UsableNodes(down))); diff != "" {
			t.Fatalf("UsableNodes: %s", diff)
		}
		if got := endpoints.Usable(down); got != (len(want) > 0) {
			t.Fatalf("Usable is %v, usable nodes are %q", got, want)
		}
		for _, node := range nodes() {
			if got := endpoints.UsableOn(node, down); got != slices.Contains(want, node) {
				t.Fatalf("UsableOn(%q) is %v, usable nodes are %q", node, got, want)
			}
		}
	})
}

// usableNodes is the twin.
func usableNodes(endpoints cluster.Endpoints, down func(string) bool) []string {
	var ready, serving []string
	for _, entry := range endpoints {
		if entry.Ready > 0 && !down(entry.Node) {
			ready = append(ready, entry.Node)
		}
		if entry.Serving > 0 && !down(entry.Node) {
			serving = append(serving, entry.Node)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return serving
}
