package lab

import (
	"fmt"
	"net"
	"net/netip"
)

// The plan of addresses. All labs use the same: each has a segment of its own.
const (
	apiServer    = "https://172.30.0.2:6443"
	serviceCIDRs = "10.97.0.0/16,fd00:97::/112"
	clusterCIDRs = "10.245.0.0/16,fd00:245::/48"
	// firstNode and firstController are the last part of the address before the first one.
	firstNode       = 10
	firstController = 20
)

func controlAddrs() []netip.Addr { return addrsOf("172.30.0.2", "fd00:30::2") }
func clientAddrs() []netip.Addr  { return addrsOf("172.30.0.100", "fd00:30::100") }

// hostAddrs writes the number in decimal in both families: 172.30.0.11 and fd00:30::11 are one host.
func hostAddrs(number int) []netip.Addr {
	return addrsOf(fmt.Sprintf("172.30.0.%d", number), fmt.Sprintf("fd00:30::%d", number))
}

func nodeAddrs(index int) []netip.Addr { return hostAddrs(firstNode + index) }

// mac answers a locally administered MAC (the second bit of the first octet is set). The number is the last part of the
// host's IPv4 address.
func mac(number int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0xbe, 0, 0, 0, byte(number)} //nolint:gosec // under 256, as a part of an address is
}

func controlMAC() net.HardwareAddr           { return mac(2) }
func clientMAC() net.HardwareAddr            { return mac(100) }
func nodeMAC(index int) net.HardwareAddr     { return mac(firstNode + index) }
func controllerMAC(i int) net.HardwareAddr   { return mac(firstController + i) }
func controllerAddrs(index int) []netip.Addr { return hostAddrs(firstController + index) }
func podRangesOf(index int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.245.%d.0/24", index)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:245:0:%d::/64", index)),
	}
}
