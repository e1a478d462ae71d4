package wire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Gateways are the next hops of the default routes in the node's main table, sorted: what no Service may be given
// (rule A5). Link-local ones are left out, since no pool can sensibly have them. The kernel is asked for every route, so
// this is for now and then.
func Gateways() ([]netip.Addr, error) {
	var all []netip.Addr
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, err := complete(func() ([]netip.Addr, error) { return gatewaysOf(family) })
		if err != nil {
			return nil, fmt.Errorf("list default routes: %w", err)
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// gatewaysOf are those of the default routes of a family.
func gatewaysOf(family int) ([]netip.Addr, error) {
	var found []netip.Addr
	err := netlink.RouteListFilteredIter(family, &netlink.Route{}, netlink.RT_FILTER_DST, func(route netlink.Route) bool {
		found = appendHop(found, route.Gw, route.Via)
		for _, hop := range route.MultiPath {
			found = appendHop(found, hop.Gw, hop.Via)
		}
		return true
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err //nolint:wrapcheck // the caller says what was asked
	}
	return found, err //nolint:wrapcheck // as it is: complete looks at the error itself
}

// appendHop adds a next hop: of the route's own family, or of the other one (RTA_VIA).
func appendHop(found []netip.Addr, gateway net.IP, via netlink.Destination) []netip.Addr {
	if other, ok := via.(*netlink.Via); ok && gateway == nil {
		gateway = other.Addr
	}
	address, ok := netip.AddrFromSlice(gateway)
	if address = address.Unmap(); !ok || address.IsLinkLocalUnicast() || address.IsUnspecified() {
		return found
	}
	return append(found, address)
}
