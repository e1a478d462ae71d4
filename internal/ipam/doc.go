// Package ipam decides which addresses a Service gets. It is pure: it reads and writes nothing but its own Ledger.
//
// The Ledger has three parts:
//
//	holdings   who holds which address: what the statuses say, what is on its way to them, and what may have arrived
//	           there without our knowing (a write of unknown outcome holds the old and the new address)
//	indexes    the free addresses of every pool, as intervals, so that the cost does not depend on a pool's size
//	waiting    who waits for what: a Service is looked at again only when something was freed that may help it
//
// A Service goes through it like this:
//
//	Decide ── reads only ──► Decision ──► Hold ──► the shell writes the status ──► Settle(written | not written | unknown)
//
// Each of Hold, Settle and Release returns the Services that what it freed may help, oldest first; the shell decides
// about those next. A change of pools, nodes or CIDRs (SetCluster) rebuilds the indexes and moves nothing; Plan then
// says on paper which Services have another answer than before.
//
// The rules are those of docs/rules: P3, P5, P15 to P18 and A1 to A14. Services that share an address are its holders
// together: no two of those that claim it clash, see rival.
package ipam
