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

	AutoAssign    bool
	AvoidBuggyIPs bool

	Priority           *int32   // nil comes last
	Namespaces         []string // sorted
	NamespaceSelectors []Selector
	ServiceSelectors   []Selector

	// Problem says why the pool is not used; nil if it is (rule P20).
	Problem *reason.Reason
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
