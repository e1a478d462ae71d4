// Package gossip tells which speakers live, and carries what each says of itself, over memberlist (rules E4, E8). It is
// the only importer of memberlist.
//
//	SetFacts ─► roster ─► broadcast and push/pull ─► memberlist ⇄ other speakers
//	Members  ◄─ roster ◄─ join, leave, messages   ◄─ memberlist
//
// The roster is what is known, and decides whether a message tells anything new: it has no network, goroutine or clock.
// Ring holds it and drives memberlist, and adds what memberlist leaves out: it joins again for as long as a known speaker
// is missing, it says so when this process was paused, and it changes pace with the size of the cluster.
//
// Heartbeats, probes and `down` messages will come as further kinds of message (message.go). A speaker ignores kinds
// that it does not know.
package gossip
