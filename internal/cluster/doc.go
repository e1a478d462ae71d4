// Package cluster is the vocabulary of Berth's core: Services, pools, nodes, advertisements and endpoints as far as they
// matter to it, parsed once, and the immutable Snapshot of them all that decisions are computed from.
//
// Nothing here knows the Kubernetes API, the clock or the network. Every value reachable from a Snapshot is read-only
// after it was made: it is shared between goroutines without a lock, and a change is a new value.
package cluster
