package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// Pool compiles a pool. One that cannot be used has a Problem and no ranges.
func Pool(object *v1beta1.IPAddressPool) *cluster.Pool {
	pool := &cluster.Pool{
		Name:          object.Name,
		UID:           string(object.UID),
		Created:       object.CreationTimestamp.Time,
		Labels:        object.Labels,
		AutoAssign:    object.Spec.AutoAssign == nil || *object.Spec.AutoAssign,
		AvoidBuggyIPs: object.Spec.AvoidBuggyIPs,
		Sharing:       sharing(object.Spec.Sharing),
	}
	if quota := object.Spec.Quota; quota != nil {
		pool.QuotaPerNamespace = quota.PerNamespace
	}
	if delay := object.Spec.ReleaseDelay; delay != nil {
		pool.ReleaseDelay = delay.Duration
	}
	pool.Problem = fill(pool, &object.Spec)
	if pool.Problem != nil {
		pool.Ranges, pool.Excluded = nil, nil
	}
	return pool
}

// sharing reads the mode; the API server refuses what is none.
func sharing(mode v1beta1.SharingMode) cluster.Sharing {
	switch mode {
	case v1beta1.SharingAcrossNamespaces:
		return cluster.AcrossNamespaces
	case v1beta1.SharingNever:
		return cluster.Never
	default:
		return cluster.SameNamespace
	}
}

// Reservation compiles a reservation. One that cannot be used has a Problem and no ranges.
func Reservation(object *v1beta1.AddressReservation) *cluster.Reservation {
	reservation := &cluster.Reservation{
		Name:    object.Name,
		UID:     string(object.UID),
		Created: object.CreationTimestamp.Time,
		Service: cluster.Name{Namespace: object.Spec.Service.Namespace, Name: object.Spec.Service.Name},
	}
	ranges, _, err := ranges(object.Spec.Addresses, nil)
	if err != nil {
		reservation.Problem = reason.New(reason.InvalidRange, "%v", err)
		return reservation
	}
	reservation.Ranges = ranges
	return reservation
}

// fill fills in what can fail, and says what did.
func fill(pool *cluster.Pool, spec *v1beta1.IPAddressPoolSpec) *reason.Reason {
	ranges, excluded, err := ranges(spec.Addresses, spec.Exclude)
	if err != nil {
		return reason.New(reason.InvalidRange, "%v", err)
	}
	pool.Ranges, pool.Excluded = ranges, excluded
	allocation := spec.ServiceAllocation
	if allocation == nil {
		return nil
	}
	pool.Priority = allocation.Priority
	pool.Namespaces = slices.Sorted(slices.Values(allocation.Namespaces))
	var problem *reason.Reason
	pool.NamespaceSelectors, problem = selectors("serviceAllocation.namespaceSelectors", allocation.NamespaceSelectors)
	if problem != nil {
		return problem
	}
	pool.ServiceSelectors, problem = selectors("serviceAllocation.serviceSelectors", allocation.ServiceSelectors)
	return problem
}

// ranges is the exact set of addresses less the excluded ones, and what that takes out, as sorted ranges (rule P17).
func ranges(addresses, exclude []v1beta1.AddressText) (exact, excluded []netipx.IPRange, err error) {
	var set, out netipx.IPSetBuilder
	for i, text := range addresses {
		one, err := Range(string(text))
		if err != nil {
			return nil, nil, fmt.Errorf("spec.addresses[%d]: %w", i, err)
		}
		set.AddRange(one)
	}
	all, err := set.IPSet()
	if err != nil {
		return nil, nil, fmt.Errorf("unite the addresses: %w", err)
	}
	for i, text := range exclude {
		one, err := Range(string(text))
		if err != nil {
			return nil, nil, fmt.Errorf("spec.exclude[%d]: %w", i, err)
		}
		set.RemoveRange(one)
		out.AddRange(one)
	}
	out.Intersect(all)
	both := [2][]netipx.IPRange{}
	for i, builder := range []*netipx.IPSetBuilder{&set, &out} {
		built, err := builder.IPSet()
		if err != nil {
			return nil, nil, fmt.Errorf("unite the addresses: %w", err)
		}
		both[i] = built.Ranges()
	}
	return both[0], both[1], nil
}

// Range reads a CIDR, a range FIRST-LAST or a single address (rule A6). It refuses, with the text in the message, what
// the rules of form of v1beta1.AddressText refuse, and IPv6 ranges that end before they start.
func Range(text string) (netipx.IPRange, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil && !prefix.Addr().Is4In6() {
		if prefix != prefix.Masked() {
			return netipx.IPRange{}, fmt.Errorf(
				"%s has host bits set: write the network address of this prefix, or FIRST-LAST for a part of it", text)
		}
		return netipx.RangeOfPrefix(prefix), nil
	}
	if address, err := parseAddress(text); err == nil {
		return netipx.IPRangeFrom(address, address), nil
	}
	first, last, dash := strings.Cut(text, "-")
	from, fromErr := parseAddress(strings.TrimSpace(first))
	to, toErr := parseAddress(strings.TrimSpace(last))
	switch {
	case !dash || fromErr != nil || toErr != nil:
		return netipx.IPRange{}, fmt.Errorf(
			"%q is not a CIDR (192.0.2.0/24), a range (192.0.2.10-192.0.2.20) or a single address (192.0.2.10)", text)
	case from.Is4() != to.Is4():
		return netipx.IPRange{}, fmt.Errorf("%s mixes IPv4 and IPv6: both ends of a range must be of one family", text)
	case to.Less(from):
		return netipx.IPRange{}, fmt.Errorf("%s ends before it starts: write the lower address first", text)
	}
	return netipx.IPRangeFrom(from, to), nil
}

// parseAddress reads an address without a zone, and not an IPv4 address dressed as IPv6: the API server's isIP, which
// the rules of form use, takes neither.
func parseAddress(text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read address: %w", err)
	}
	if address.Zone() != "" || address.Is4In6() {
		return netip.Addr{}, fmt.Errorf("read address %q: it has a zone or is IPv4 written as IPv6", text)
	}
	return address, nil
}
