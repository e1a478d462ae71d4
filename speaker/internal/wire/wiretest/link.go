package wiretest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Pair joins two namespaces by a veth pair, a in one and b in the other, both up.
func Pair(one *Namespace, a string, other *Namespace, b string) {
	one.t.Helper()
	one.Do(func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = a
		veth := &netlink.Veth{LinkAttrs: attributes, PeerName: b, PeerNamespace: netlink.NsFd(int(other.file.Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth %s: %w", a, err)
		}
		return nil
	})
	one.Up(a)
	other.Up(b)
}

// Up sets a link up.
func (n *Namespace) Up(link string) { n.t.Helper(); n.change(link, netlink.LinkSetUp) }

// Down sets a link down. Its other end loses the carrier.
func (n *Namespace) Down(link string) { n.t.Helper(); n.change(link, netlink.LinkSetDown) }

// Delete deletes a link, and so its other end.
func (n *Namespace) Delete(link string) { n.t.Helper(); n.change(link, netlink.LinkDel) }

// SetMAC gives a link another hardware address.
func (n *Namespace) SetMAC(link string, mac [6]byte) {
	n.t.Helper()
	n.change(link, func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, mac[:]) })
}

// AddAddress gives a link an address.
func (n *Namespace) AddAddress(link string, address netip.Prefix) {
	n.t.Helper()
	n.change(link, func(l netlink.Link) error { return netlink.AddrAdd(l, addressOf(address)) })
}

// DropAddress takes an address from a link.
func (n *Namespace) DropAddress(link string, address netip.Prefix) {
	n.t.Helper()
	n.change(link, func(l netlink.Link) error { return netlink.AddrDel(l, addressOf(address)) })
}

// addresses calls with each IPv6 address of a link.
func (n *Namespace) addresses(link string, with func(netip.Addr)) {
	n.t.Helper()
	n.change(link, func(l netlink.Link) error {
		list, err := netlink.AddrList(l, netlink.FAMILY_V6)
		if err != nil {
			return fmt.Errorf("list addresses: %w", err)
		}
		for _, each := range list {
			if address, ok := netip.AddrFromSlice(each.IP); ok {
				with(address)
			}
		}
		return nil
	})
}

// Rename gives a link another name.
func (n *Namespace) Rename(link, name string) {
	n.t.Helper()
	n.change(link, func(l netlink.Link) error { return netlink.LinkSetName(l, name) })
}

// Add makes a link that has to do with others, up. The test is skipped, with a sentence, where the kernel lacks its kind.
func (n *Namespace) Add(kind string, link netlink.Link) {
	n.t.Helper()
	var missing bool
	n.Do(func() error {
		err := netlink.LinkAdd(link)
		missing = errors.Is(err, unix.EOPNOTSUPP)
		if err != nil && !missing {
			return fmt.Errorf("add link %s: %w", link.Attrs().Name, err)
		}
		return nil
	})
	if missing {
		n.t.Skipf("needs a kernel with %s: this one cannot make such links", kind)
	}
	n.Up(link.Attrs().Name)
}

// Index is a link's index.
func (n *Namespace) Index(link string) (index int) {
	n.t.Helper()
	n.change(link, func(l netlink.Link) error {
		index = l.Attrs().Index
		return nil
	})
	return index
}

// Enslave makes a link part of another: a bond, bridge or team.
func (n *Namespace) Enslave(link, master string) {
	n.t.Helper()
	n.change(link, func(l netlink.Link) error { return netlink.LinkSetMasterByIndex(l, n.Index(master)) })
}

// Bridge makes a bridge, up, with those links as ports.
func (n *Namespace) Bridge(name string, ports ...string) {
	n.t.Helper()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	n.Do(func() error { return netlink.LinkAdd(bridge) })
	for _, port := range ports {
		n.change(port, func(l netlink.Link) error { return netlink.LinkSetMaster(l, bridge) })
	}
	n.Up(name)
}

// Free takes a link out of its bridge.
func (n *Namespace) Free(link string) { n.t.Helper(); n.change(link, netlink.LinkSetNoMaster) }

// MAC is a link's hardware address.
func (n *Namespace) MAC(link string) (mac [6]byte) {
	n.t.Helper()
	n.change(link, func(l netlink.Link) error {
		mac = [6]byte(l.Attrs().HardwareAddr)
		return nil
	})
	return mac
}

func (n *Namespace) change(link string, do func(netlink.Link) error) {
	n.t.Helper()
	n.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("find link %s: %w", link, err)
		}
		if err := do(l); err != nil {
			return fmt.Errorf("change link %s: %w", link, err)
		}
		return nil
	})
}

func addressOf(address netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{
		IP: address.Addr().AsSlice(), Mask: net.CIDRMask(address.Bits(), address.Addr().BitLen()),
	}}
}
