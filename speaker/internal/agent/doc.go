// Package agent is the speaker's loop: it takes a snapshot of the cluster, decides, hands each announcer its part and
// reports what is true. Everything flows one way; what comes back is a wake without data.
//
//	informers, gossip, links ──wake──► snapshot ──► announce.Decide ──► gate (P21) ──► announcer ──► report
//
// One goroutine, the one in Run, does all of that. Wake and WakeNow may be called from any other.
package agent
