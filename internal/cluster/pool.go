package cluster

import (
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/berthlb/berth/internal/reason"
)

// Pool is an IPAddressPool.
type Pool struct {
	Name    string
	UID     string
	Created time.Time
	Labels  map[string]string

	// Ranges is the exact set of the pool's addresses less the excluded ones: sorted, without overlaps (rule P17).
	Ranges []netipx.IPRange
	// Excluded is what the pool would have besides but for its exclude: sorted, without overlaps.
	Excluded []netipx.IPRange

	AutoAssign    bool
	AvoidBuggyIPs bool

	Sharing Sharing // which Services may share an address of the pool (rule A7)
	// QuotaPerNamespace is how many addresses of each family the Services of one namespace may hold; 0 is no limit (rule A8).
	QuotaPerNamespace int64
	// ReleaseDelay is how long a freed address is kept from others (rule A9).
	ReleaseDelay time.Duration

	Priority           *int32   // nil comes last
	Namespaces         []string // sorted
	NamespaceSelectors []Selector
	ServiceSelectors   []Selector

	// Problem says why the pool is not used; nil if it is (rule P20).
	Problem *reason.Reason
}

// Sharing says which Services may share an address of a pool (rule A7).
type Sharing uint8

// The modes of sharing. SameNamespace is the default. AcrossNamespaces also needs the consent of the Service that has held
// the address longest.
const (
	SameNamespace Sharing = iota
	AcrossNamespaces
	Never
)

// String is the mode as the pool's field spells it.
func (s Sharing) String() string {
	switch s {
	case AcrossNamespaces:
		return "AcrossNamespaces"
	case Never:
		return "Never"
	default:
		return "SameNamespace"
	}
}

// Reservation is an AddressReservation: its addresses are for one Service alone, whether it exists or not (rule A9).
type Reservation struct {
	Name    string
	UID     string
	Created time.Time
	Ranges  []netipx.IPRange // sorted, without overlaps
	Service Name
	Problem *reason.Reason // says why the reservation is not used; nil if it is
}

// Restricted is true if the pool says by selector which Services may have its addresses. Such pools are tried before
// the others (rule A4).
func (p *Pool) Restricted() bool {
	return len(p.Namespaces)+len(p.NamespaceSelectors)+len(p.ServiceSelectors) > 0
}

// Open is true if a Service of that namespace may have addresses of the pool (rules A3, A4).
func (p *Pool) Open(service *Service, namespaceLabels map[string]string) bool {
	if len(p.Namespaces)+len(p.NamespaceSelectors) > 0 {
		_, named := slices.BinarySearch(p.Namespaces, service.Name.Namespace)
		if !named && !AnyMatches(p.NamespaceSelectors, namespaceLabels) {
			return false
		}
	}
	return len(p.ServiceSelectors) == 0 || AnyMatches(p.ServiceSelectors, service.Labels)
}

// Contains is true if the address is one of the pool's.
func (p *Pool) Contains(address netip.Addr) bool {
	i, found := slices.BinarySearchFunc(p.Ranges, address, func(r netipx.IPRange, a netip.Addr) int {
		if r.To().Less(a) {
			return -1
		}
		if a.Less(r.From()) {
			return 1
		}
		return 0
	})
	return found && p.Ranges[i].Contains(address)
}

// Namespace is a Namespace: its labels decide about pools.
type Namespace struct {
	Name   string
	Labels map[string]string
}
