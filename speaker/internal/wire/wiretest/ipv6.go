package wiretest

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// WithoutDAD has links that are made from now on use their IPv6 addresses at once, instead of after a second.
func (n *Namespace) WithoutDAD() {
	n.t.Helper()
	for _, link := range []string{"default", "all"} {
		n.Set("net/ipv6/conf/"+link+"/accept_dad", "0")
		n.Set("net/ipv6/conf/"+link+"/dad_transmits", "0")
	}
}

// Set sets one of the namespace's kernel settings.
func (n *Namespace) Set(setting, value string) {
	n.t.Helper()
	n.Do(func() error { return os.WriteFile(filepath.Join("/proc/sys", setting), []byte(value), 0) })
}

// Groups are the multicast groups that a link is in by sockets or by its own addresses, sorted.
func (n *Namespace) Groups(link string) []netip.Addr {
	n.t.Helper()
	var groups []netip.Addr
	n.Do(func() error {
		file, err := os.Open("/proc/thread-self/net/igmp6")
		if err != nil {
			return fmt.Errorf("read multicast groups: %w", err)
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); { // index, link, group in hex, users, flags, timer
			fields := strings.Fields(lines.Text())
			if len(fields) < 3 || fields[1] != link {
				continue
			}
			var bytes []byte
			if _, err := fmt.Sscanf(fields[2], "%x", &bytes); err != nil || len(bytes) != 16 {
				return fmt.Errorf("read multicast groups: %q: %w", lines.Text(), err)
			}
			groups = append(groups, netip.AddrFrom16([16]byte(bytes)))
		}
		return nil
	})
	slices.SortFunc(groups, netip.Addr.Compare)
	return groups
}

// LinkLocal is a link's IPv6 link-local address; not valid if it has none.
func (n *Namespace) LinkLocal(link string) (address netip.Addr) {
	n.t.Helper()
	n.addresses(link, func(found netip.Addr) {
		if found.IsLinkLocalUnicast() {
			address = found
		}
	})
	return address
}

// Neighbour is the hardware address that the namespace's kernel knows of a host on a link; unset if it knows none.
func (n *Namespace) Neighbour(link string, address netip.Addr) (mac [6]byte) {
	n.t.Helper()
	index := n.Index(link)
	n.Do(func() error {
		list, err := netlink.NeighList(index, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list neighbours: %w", err)
		}
		for i := range list {
			if known, ok := netip.AddrFromSlice(list[i].IP); ok && known.Unmap() == address && len(list[i].HardwareAddr) == len(mac) {
				mac = [6]byte(list[i].HardwareAddr)
			}
		}
		return nil
	})
	return mac
}

// Knock has the namespace's kernel send something to an address, for which it has to find who has it.
func (n *Namespace) Knock(address netip.Addr) {
	n.t.Helper()
	n.Do(func() error {
		const discard = 9
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, discard)))
		if err != nil {
			return fmt.Errorf("knock at %s: %w", address, err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("knock")); err != nil {
			return fmt.Errorf("knock at %s: %w", address, err)
		}
		return nil
	})
}

// IsDuplicate is true if the kernel has found that a link's address is another host's.
func (n *Namespace) IsDuplicate(link string, address netip.Addr) (duplicate bool) {
	n.t.Helper()
	n.change(link, func(l netlink.Link) error {
		list, err := netlink.AddrList(l, netlink.FAMILY_V6)
		if err != nil {
			return fmt.Errorf("list addresses: %w", err)
		}
		for i := range list {
			if a, ok := netip.AddrFromSlice(list[i].IP); ok && a == address {
				duplicate = list[i].Flags&unix.IFA_F_DADFAILED != 0
			}
		}
		return nil
	})
	return duplicate
}
