package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// podGateways are the next hops of a pod. No host has them: the pod holds permanent neighbour entries that point to its
// node's end of the link, as several CNI plugins do it.
func podGateways() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")}
}

// Pod is a pod's namespace: a point-to-point link to its node, on which the node routes the pod's addresses.
type Pod struct {
	*Space
	node *Host
	port string
}

// AddPod makes a pod's namespace behind the host. The name must be unique on the host; port names the host's end of
// the link (15 characters at most).
func (h *Host) AddPod(name, port string, addrs ...netip.Addr) (*Pod, error) {
	space, err := NewSpace(h.Name + "-" + name)
	if err != nil {
		return nil, err
	}
	p := &Pod{Space: space, node: h, port: port}
	if err := p.connect(addrs); err != nil {
		return nil, errors.Join(fmt.Errorf("connect pod %s: %w", name, err), p.Close())
	}
	return p, nil
}

func (p *Pod) connect(addrs []netip.Addr) error {
	outside, err := p.node.Links()
	if err != nil {
		return err
	}
	defer outside.Close()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: p.port}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(p.handle)),
	}
	if err := outside.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link %s: %w", p.port, err)
	}
	if err := outside.LinkSetUp(veth); err != nil {
		return err
	}
	near, err := outside.LinkByName(p.port)
	if err != nil {
		return err
	}
	inside, err := p.Links()
	if err != nil {
		return err
	}
	defer inside.Close()
	far, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := inside.LinkSetUp(far); err != nil {
		return err
	}
	for _, addr := range addrs {
		if err := join(outside, near, inside, far, addr); err != nil {
			return err
		}
	}
	return nil
}

// join gives the far end an address, a default route over the near end, and both ends each other's MAC.
func join(outside *netlink.Handle, near netlink.Link, inside *netlink.Handle, far netlink.Link, addr netip.Addr) error {
	if err := addAddress(inside, far, netip.PrefixFrom(addr, addr.BitLen())); err != nil {
		return err
	}
	gateway := podGateways()[0]
	if addr.Is6() {
		gateway = podGateways()[1]
	}
	if err := addNeighbour(inside, far, gateway, near.Attrs().HardwareAddr); err != nil {
		return err
	}
	if err := addNeighbour(outside, near, addr, far.Attrs().HardwareAddr); err != nil {
		return err
	}
	byDefault := &netlink.Route{
		Dst: ipNet(netip.PrefixFrom(unspecified(addr), 0)), Gw: gateway.AsSlice(),
		LinkIndex: far.Attrs().Index, Flags: int(netlink.FLAG_ONLINK),
	}
	if err := inside.RouteAdd(byDefault); err != nil {
		return fmt.Errorf("add the pod's default route: %w", err)
	}
	toPod := &netlink.Route{
		Dst: ipNet(netip.PrefixFrom(addr, addr.BitLen())), LinkIndex: near.Attrs().Index, Scope: netlink.SCOPE_LINK,
	}
	if err := outside.RouteAdd(toPod); err != nil {
		return fmt.Errorf("route %s to the pod: %w", addr, err)
	}
	return nil
}

func addNeighbour(links *netlink.Handle, link netlink.Link, addr netip.Addr, mac net.HardwareAddr) error {
	neighbour := &netlink.Neigh{
		LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
	}
	if err := links.NeighSet(neighbour); err != nil {
		return fmt.Errorf("say that %s is at %s: %w", addr, mac, err)
	}
	return nil
}

// Close removes the pod's link and namespace.
func (p *Pod) Close() error {
	links, err := p.node.Links()
	if err != nil {
		return errors.Join(err, p.Space.Close())
	}
	defer links.Close()
	if link, err := links.LinkByName(p.port); err == nil {
		err = links.LinkDel(link)
		return errors.Join(err, p.Space.Close())
	}
	return p.Space.Close()
}
