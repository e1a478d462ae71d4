package wiretest

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// AddRoute adds a route to a prefix by these next hops.
func (n *Namespace) AddRoute(to netip.Prefix, hops ...netip.Addr) {
	n.t.Helper()
	route := &netlink.Route{Dst: &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}}
	for _, hop := range hops {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: hop.AsSlice()})
	}
	n.Do(func() error { return netlink.RouteAdd(route) })
}
