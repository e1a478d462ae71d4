package announce

import (
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// Verdict is the decision about one address.
type Verdict struct {
	Address netip.Addr
	// Owner is the node that answers; empty if nobody does.
	Owner string
	// Link is the owner's link that speaks for the address first of all.
	Link string
	// OffSubnet is true if no link that the owner may use is in the address's subnet: then only a route leads to it.
	OffSubnet bool
	// Interfaces are the names of the links that may answer, sorted; none means every link.
	Interfaces []string
	// Services are those the address is announced for, sorted by name; none without an owner.
	Services []*cluster.Service
	// Others are the Services that hold the address and for which it is not announced, sorted by name.
	Others []Other
	// Why says why nobody answers; nil if somebody does.
	Why *reason.Reason
}

// Other is a Service that an address is not announced for, and why.
type Other struct {
	Service *cluster.Service
	Why     *reason.Reason
}

// Table is the decision about every address, sorted by address. It does not change: any goroutine may read it.
type Table struct {
	verdicts []Verdict
	snapshot *cluster.Snapshot
}

// Verdicts are all decisions, sorted by address.
func (t *Table) Verdicts() []Verdict { return t.verdicts }

// Of is the decision about one address; false if no Service of ours holds it.
func (t *Table) Of(address netip.Addr) (Verdict, bool) {
	i, found := slices.BinarySearchFunc(t.verdicts, address, func(v Verdict, a netip.Addr) int { return v.Address.Compare(a) })
	if !found {
		return Verdict{}, false
	}
	return t.verdicts[i], true
}

// For are the claims of one node, sorted by address; none for "", which is no node.
func (t *Table) For(node string) []Claim {
	var claims []Claim
	for i := range t.verdicts {
		verdict := &t.verdicts[i]
		if verdict.Owner != node || node == "" {
			continue
		}
		claims = append(claims, Claim{
			Address:    verdict.Address,
			Interfaces: verdict.Interfaces,
			Epoch:      t.snapshot.Facts.Epoch,
			Services:   verdict.Services,
		})
	}
	return claims
}
