package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addAddress gives a link an address, usable at once; an address it has already is fine.
func addAddress(links *netlink.Handle, link netlink.Link, prefix netip.Prefix) error {
	addr := &netlink.Addr{IPNet: ipNet(prefix)}
	if prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := links.AddrAdd(link, addr); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add %s to %s: %w", prefix, link.Attrs().Name, err)
	}
	return nil
}

// addRoute adds a route, or puts it in the place of the one to the same prefix.
func addRoute(links *netlink.Handle, to netip.Prefix, via netip.Addr) error {
	route := &netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}
	if err := links.RouteReplace(route); err != nil {
		return fmt.Errorf("route %s via %s: %w", to, via, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
