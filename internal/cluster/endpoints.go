package cluster

import "slices"

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

// UsableOn is true if an endpoint on that node takes traffic: a ready one, or, if none is ready on any node that is not
// down, one that still serves while it terminates (rule P7).
func (e Endpoints) UsableOn(node string, down func(node string) bool) bool {
	i, found := slices.BinarySearchFunc(e, node, func(entry NodeEndpoints, node string) int {
		switch {
		case entry.Node < node:
			return -1
		case entry.Node > node:
			return 1
		default:
			return 0
		}
	})
	return found && !down(node) && e[i].usable(e.anyReady(down)) > 0
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
