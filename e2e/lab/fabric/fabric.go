package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
)

const bridgeName = "br0"

// Fabric is the Ethernet segment of a lab: a bridge in a namespace of its own.
type Fabric struct {
	space  *Space
	prefix string // of the names of the namespaces, so that labs may run side by side
}

// Gateways answers the addresses of the segment's default routers.
func Gateways() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd00:30::1")}
}

// New makes the segment. The prefix starts the name of every namespace made for it.
func New(prefix string) (*Fabric, error) {
	space, err := NewSpace(prefix + "fabric")
	if err != nil {
		return nil, err
	}
	f := &Fabric{space: space, prefix: prefix}
	if err := f.addBridge(); err != nil {
		return nil, errors.Join(fmt.Errorf("make the lab's segment: %w", err), space.Close())
	}
	return f, nil
}

func (f *Fabric) addBridge() error {
	links, err := f.space.Links()
	if err != nil {
		return err
	}
	defer links.Close()
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}, MulticastSnooping: &snooping}
	if err := links.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add the bridge: %w", err)
	}
	for _, addr := range Gateways() {
		if err := addAddress(links, bridge, netip.PrefixFrom(addr, onLinkBits(addr))); err != nil {
			return err
		}
	}
	return links.LinkSetUp(bridge)
}

// onLinkBits is the length of the segment's prefix in the address's family.
func onLinkBits(addr netip.Addr) int {
	if addr.Is4() {
		return 24
	}
	return 64
}

// Host is a namespace with a link named eth0 to the segment.
type Host struct {
	*Space
	MAC    net.HardwareAddr
	Addrs  []netip.Addr
	fabric *Fabric
	port   string // the bridge's end of the link

	mu     sync.Mutex // guards routes
	routes map[netip.Prefix]netip.Addr
}

// AddHost makes a host with the given addresses (one of each family, say) and MAC.
func (f *Fabric) AddHost(name string, mac net.HardwareAddr, addrs ...netip.Addr) (*Host, error) {
	space, err := NewSpace(f.prefix + name)
	if err != nil {
		return nil, err
	}
	h := &Host{Space: space, MAC: mac, Addrs: addrs, fabric: f, port: "p-" + name, routes: map[netip.Prefix]netip.Addr{}}
	if err := h.connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("connect %s to the segment: %w", name, err), h.Close())
	}
	return h, nil
}

func (h *Host) connect() error {
	outside, err := h.fabric.space.Links()
	if err != nil {
		return err
	}
	defer outside.Close()
	bridge, err := outside.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: h.port, MasterIndex: bridge.Attrs().Index},
		PeerName:  "eth0", PeerHardwareAddr: h.MAC, PeerNamespace: netlink.NsFd(int(h.handle)),
	}
	if err := outside.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link %s: %w", h.port, err)
	}
	if err := outside.LinkSetUp(veth); err != nil {
		return err
	}
	inside, err := h.Links()
	if err != nil {
		return err
	}
	defer inside.Close()
	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, addr := range h.Addrs {
		if err := addAddress(inside, eth0, netip.PrefixFrom(addr, onLinkBits(addr))); err != nil {
			return err
		}
	}
	if err := inside.LinkSetUp(eth0); err != nil {
		return err
	}
	return h.addRoutes(inside)
}

func (h *Host) addRoutes(links *netlink.Handle) error {
	for _, gateway := range Gateways() {
		if err := addRoute(links, netip.PrefixFrom(unspecified(gateway), 0), gateway); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for to, via := range h.routes {
		if err := addRoute(links, to, via); err != nil {
			return err
		}
	}
	return nil
}

func unspecified(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// AddRoute sends a prefix to another host of the segment, also after the link has been down.
func (h *Host) AddRoute(to netip.Prefix, via netip.Addr) error {
	links, err := h.Links()
	if err != nil {
		return err
	}
	defer links.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.routes[to] = via
	return addRoute(links, to, via)
}

// SetPort raises or cuts the segment's end of the host's link: cut, the host sees its carrier gone, as if the cable
// had been pulled.
func (h *Host) SetPort(state State) error {
	return setLink(h.fabric.space, h.port, state)
}

// SetLink raises or lowers the host's own end, as an administrator of that host would. Lowering it makes the kernel
// drop the host's IPv6 addresses and all routes over the link; raising it brings them back.
func (h *Host) SetLink(state State) error {
	if err := setLink(h.Space, "eth0", state); err != nil || state == Down {
		return err
	}
	return h.restoreAddresses()
}

// State is whether a link is up.
type State bool

// The states of a link.
const (
	Up   State = true
	Down State = false
)

func setLink(space *Space, name string, state State) error {
	links, err := space.Links()
	if err != nil {
		return err
	}
	defer links.Close()
	link, err := links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s in %s: %w", name, space.Name, err)
	}
	if state == Up {
		return links.LinkSetUp(link)
	}
	return links.LinkSetDown(link)
}

// restoreAddresses does what a network manager does after a link came back.
func (h *Host) restoreAddresses() error {
	links, err := h.Links()
	if err != nil {
		return err
	}
	defer links.Close()
	eth0, err := links.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, addr := range h.Addrs {
		if err := addAddress(links, eth0, netip.PrefixFrom(addr, onLinkBits(addr))); err != nil {
			return err
		}
	}
	return h.addRoutes(links)
}

// Close removes the host's link and namespace.
func (h *Host) Close() error {
	links, err := h.fabric.space.Links()
	if err != nil {
		return err
	}
	defer links.Close()
	if link, err := links.LinkByName(h.port); err == nil {
		err = links.LinkDel(link)
		return errors.Join(err, h.Space.Close())
	}
	return h.Space.Close()
}

// Close removes the segment; its hosts are closed before.
func (f *Fabric) Close() error { return f.space.Close() }
