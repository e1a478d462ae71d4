// Package watch finds a dead node in less than half a second, where memberlist needs one or more (rule E4).
//
// Each node is watched by two others that share a link with it, chosen by hash so that every speaker knows them. It sends
// them heartbeats. A watcher that misses them asks the node's kernel, by ARP or neighbour discovery on every link they
// share, and if that does not answer either, several times and on every link on which it is known to answer otherwise, the
// node is down. A kernel that answers says that the node still forwards: then nothing is hurried, and memberlist decides.
package watch
