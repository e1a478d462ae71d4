// Package berth is the root of the repository and holds no code: only the tests of what holds everywhere. arch_test.go
// enforces the five laws and who may import whom; docs_test.go, that links resolve and that the numbers of rules and
// faults which code and tests cite exist.
//
//  1. The core decides, the shell does. Core packages have no clock, network, files, goroutines, logger, Kubernetes types
//     or randomness.
//  2. One picture, one direction. API objects are compiled into an immutable cluster.Snapshot; plans are computed from it;
//     shells realise plans and report what is true. Nothing flows back but a wake signal without data.
//  3. Every decision carries its reason. The same value becomes condition, event, metric label and line for a person.
//  4. One owner per engine. Memberlist is used in gossip alone, raw frames and netlink in wire alone, GoBGP (planned) in
//     bgp alone; only kube writes to the API server.
//  5. Wiring happens in main. There are no package variables but errors and embedded files.
package berth
