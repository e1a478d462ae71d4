package ipam

import (
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// Verdict says what is to become of a Service's status.
type Verdict uint8

const (
	// Leave writes nothing: the Service is not ours, or there are no pools and nothing to correct (rules A1, P12).
	Leave Verdict = iota
	// Clear takes everything of ours out of the status (rule A1).
	Clear
	// Set makes the addresses of the Decision those of the status; none if the Service is pending.
	Set
	// Foreign writes the reason and leaves the addresses, which are not from Berth, as they are (rule A14).
	Foreign
)

// Decision is the answer to a Service.
type Decision struct {
	Verdict Verdict
	// Addresses are those the status is to have, at most one per family, in the order of the Service's families. For
	// Foreign they are those it has.
	Addresses []netip.Addr
	// Pools are the pools of the addresses, one for each; none for Foreign.
	Pools []string
	// Complete is true if the Service holds every address it should: the status of the condition Allocated.
	Complete bool
	// Renumbered is the consent to another address that is used up, to be recorded in the status; empty if there is none
	// (rule A10).
	Renumbered string
	// Reason is the reason and message of the condition Allocated.
	Reason reason.Reason
	// Also are reasons just as true, where more than one thing is missing. Which comes first may change with what
	// others do, and is no reason to write: see Says.
	Also []reason.Reason

	waits []waitKey // each of them, when it can be had, may make for a better answer
}

// Equal is true if the two answers are the same.
func (d *Decision) Equal(other *Decision) bool {
	return d.Verdict == other.Verdict && d.Complete == other.Complete && d.Renumbered == other.Renumbered && d.Reason == other.Reason &&
		slices.Equal(d.Addresses, other.Addresses) && slices.Equal(d.Pools, other.Pools)
}

// Says is true if the reason is one that is true of this answer.
func (d *Decision) Says(why reason.Reason) bool {
	return d.Reason == why || slices.Contains(d.Also, why)
}

// Pending is true if the Service is to have an address and gets none.
func (d *Decision) Pending() bool { return d.Verdict == Set && len(d.Addresses) == 0 }

// held is an address with the name of the pool it came from, which stays when the pool is gone (rule A10).
type held struct {
	address netip.Addr
	pool    string
}

// ofFamily is the first address of a family.
func ofFamily(list []held, family cluster.Family) (held, bool) {
	for _, one := range list {
		if cluster.FamilyOf(one.address) == family {
			return one, true
		}
	}
	return held{}, false
}

// addressesOf are the addresses without their pools.
func addressesOf(list []held) []netip.Addr {
	addresses := make([]netip.Addr, len(list))
	for i, one := range list {
		addresses[i] = one.address
	}
	return addresses
}

// contains is true if the address is in the list.
func contains(list []held, address netip.Addr) bool {
	return slices.ContainsFunc(list, func(h held) bool { return h.address == address })
}
