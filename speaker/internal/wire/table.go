package wire

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"

	"github.com/vishvananda/netlink"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/internal/cluster"
)

// DefaultExclude matches the links that belong to pods, to the container network or to the node itself. Links are told
// by name and not by type: inside a container the node's own uplink may well be a veth called eth0. Names not listed
// stay: eth*, en*, bond*, team*, br*, VLANs and macvlans.
const DefaultExclude = `^(lo|veth.*|cali.*|cilium.*|lxc.*|flannel.*|cni.*|docker.*|kube-ipvs.*|kube-bridge|nodelocaldns|` +
	`tunl.*|vxlan.*|genev.*|virbr.*|weave.*|antrea.*|ovs.*|dummy.*)$`

// device is what matters here of a link, usable or not.
type device struct {
	name  string
	index int
	mac   net.HardwareAddr
	ether bool
	// up is true if the link is administratively up, has a carrier and speaks ARP.
	up bool
	// enslaved is true if the link is part of a bond, bridge or team, which then speaks in its place (rule L2).
	enslaved bool
}

// deviceOf reads a link as the kernel reports it.
func deviceOf(link netlink.Link) device {
	const needed = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP
	attributes := link.Attrs()
	return device{
		name:     attributes.Name,
		index:    attributes.Index,
		mac:      attributes.HardwareAddr,
		ether:    attributes.EncapType == "ether" && attributes.RawFlags&(unix.IFF_LOOPBACK|unix.IFF_NOARP) == 0,
		up:       attributes.RawFlags&needed == needed,
		enslaved: attributes.MasterIndex != 0,
	}
}

// table is the picture of the node's links: a pure step machine that netlink's events are fed to. It is not safe for
// concurrent use.
type table struct {
	exclude   *regexp.Regexp
	devices   map[int]device                    // by index
	addresses map[int]map[netip.Prefix]struct{} // by index: address and length, not masked
}

func newTable(exclude *regexp.Regexp) *table {
	return &table{exclude: exclude, devices: map[int]device{}, addresses: map[int]map[netip.Prefix]struct{}{}}
}

// setDevice takes in that a link is as given. It returns true if a usable link was touched: one that is usable now or
// was before. That holds even if nothing about it seems to have changed, because the kernel joins a carrier that goes
// and comes within a second into one event (net/core/link_watch.c), and the switch at the other end has forgotten us
// all the same (rule P4).
func (t *table) setDevice(changed device) bool {
	_, before := t.usable(changed.index)
	t.devices[changed.index] = changed
	_, after := t.usable(changed.index)
	return before || after
}

// dropDevice takes in that a link is gone, and returns true if it was usable.
func (t *table) dropDevice(index int) bool {
	_, before := t.usable(index)
	delete(t.devices, index)
	delete(t.addresses, index)
	return before
}

// setAddress takes in that a link has an address, and returns true if that changes a usable link. Events that only
// renew an address's lifetime change nothing.
func (t *table) setAddress(index int, address netip.Prefix) bool {
	set := t.addresses[index]
	if _, has := set[address]; has {
		return false
	}
	if set == nil {
		set = map[netip.Prefix]struct{}{}
		t.addresses[index] = set
	}
	set[address] = struct{}{}
	_, usable := t.usable(index)
	return usable
}

// dropAddress takes in that a link no longer has an address, and returns true if that changes a usable link.
func (t *table) dropAddress(index int, address netip.Prefix) bool {
	if _, has := t.addresses[index][address]; !has {
		return false
	}
	delete(t.addresses[index], address)
	_, usable := t.usable(index)
	return usable
}

// usable returns the link of that index if it can carry announcements.
func (t *table) usable(index int) (cluster.Link, bool) {
	d, has := t.devices[index]
	if !has || !d.up || !d.ether || d.enslaved || t.exclude.MatchString(d.name) {
		return cluster.Link{}, false
	}
	if len(d.mac) != 6 || [6]byte(d.mac) == [6]byte{} {
		return cluster.Link{}, false
	}
	link := cluster.Link{Name: d.name, Index: d.index, MAC: [6]byte(d.mac)}
	for address := range t.addresses[index] {
		note(&link, address)
	}
	slices.SortFunc(link.Addresses, netip.Addr.Compare)
	link.Addresses = slices.Compact(link.Addresses)
	slices.SortFunc(link.Subnets, netip.Prefix.Compare)
	link.Subnets = slices.Compact(link.Subnets)
	return link, true
}

// note has a link have an address. Of several link-local ones it is always the same that it is answered from.
func note(link *cluster.Link, address netip.Prefix) {
	link.Subnets = append(link.Subnets, address.Masked())
	switch a := address.Addr(); {
	case a.Is4():
		link.IPv4 = true
		link.Addresses = append(link.Addresses, a)
	case a.IsLinkLocalUnicast() && (!link.LinkLocal.IsValid() || a.Less(link.LinkLocal)):
		link.LinkLocal = a
	}
}

// links are all usable links, sorted by name.
func (t *table) links() []cluster.Link {
	var all []cluster.Link
	for index := range maps.Keys(t.devices) {
		if link, ok := t.usable(index); ok {
			all = append(all, link)
		}
	}
	slices.SortFunc(all, func(a, b cluster.Link) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Index-b.Index) })
	return all
}

// addressOf reads an address as the kernel reports it. ok is false for one that is not in use: tentative, or found to
// be another host's.
func addressOf(network net.IPNet, flags int) (address netip.Prefix, ok bool) {
	address, ok = netipx.FromStdIPNet(&network)
	return address, ok && flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0
}
