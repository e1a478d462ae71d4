package cluster

import (
	"iter"
	"slices"
	"strings"
)

// NodeEndpoints counts a Service's usable endpoints on one node. Node is empty for endpoints that name none.
type NodeEndpoints struct {
	Node    string
	Ready   int // ready; an endpoint that does not say counts as ready (rule P7)
	Serving int // serving while terminating: used only if none is ready anywhere
}

// Endpoints are all endpoints of a Service, over all its slices, sorted by node.
type Endpoints []NodeEndpoints

// usable returns the number of endpoints of an entry that take traffic, given whether any is ready anywhere.
func (e NodeEndpoints) usable(anyReady bool) int {
	if anyReady {
		return e.Ready
	}
	return e.Serving
}

// Usable is true if any endpoint on any node takes traffic. down names nodes that are known to be dead: their
// endpoints do not count (rule P7).
func (e Endpoints) Usable(down func(node string) bool) bool {
	for _, entry := range e {
		if entry.Ready+entry.Serving > 0 && !down(entry.Node) {
			return true
		}
	}
	return false
}

// UsableNodes are the nodes with an endpoint that takes traffic, sorted, "" among them if there is one that names no
// node: ready ones, or, if none is ready on any node that is not down, those that still serve while they terminate
// (rule P7).
func (e Endpoints) UsableNodes(down func(node string) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		anyReady := e.anyReady(down)
		for _, entry := range e {
			if entry.usable(anyReady) > 0 && !down(entry.Node) && !yield(entry.Node) {
				return
			}
		}
	}
}

// UsableOn is true if an endpoint on that node takes traffic.
func (e Endpoints) UsableOn(node string, down func(node string) bool) bool {
	i, found := slices.BinarySearchFunc(e, node, func(entry NodeEndpoints, node string) int {
		return strings.Compare(entry.Node, node)
	})
	return found && e[i].usable(e.anyReady(down)) > 0 && !down(node)
}

// ServingOn is true if an endpoint on that node serves while it terminates.
func (e Endpoints) ServingOn(node string) bool {
	i, found := slices.BinarySearchFunc(e, node, func(entry NodeEndpoints, node string) int {
		return strings.Compare(entry.Node, node)
	})
	return found && e[i].Serving > 0
}

// anyReady is true if an endpoint is ready on a node that is not down.
func (e Endpoints) anyReady(down func(node string) bool) bool {
	for _, entry := range e {
		if entry.Ready > 0 && !down(entry.Node) {
			return true
		}
	}
	return false
}
