package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/internal/cluster"
)

// NDPSocket receives and sends neighbour discovery (RFC 4861) on one link, as long as that link lives and has its
// link-local address, which everything is sent from.
//
// It is a packet socket, not one for ICMPv6: a solicitation sent to the address alone, as routers do to see whether it is
// still reachable, would never come out of the latter, because the kernel does not have the address and would forward it.
//
// Listen belongs to one goroutine, Watch and Close to one; the other methods may be called from any.
type NDPSocket struct {
	*socket
	groups groups
}

// OpenNDP opens a socket on a link that has a link-local address. It receives nothing before Watch has named addresses.
func OpenNDP(link cluster.Link) (*NDPSocket, error) {
	if !link.LinkLocal.IsValid() {
		return nil, fmt.Errorf("open NDP socket on %s: the link has no usable link-local address", link.Name)
	}
	s, err := openSocket(link, "NDP", unix.ETH_P_IPV6)
	if err != nil {
		return nil, err
	}
	return &NDPSocket{socket: s, groups: groups{link: link.Index}}, nil
}

// Watch has the kernel pass on the frames that ask for or claim one of these addresses and, as good as always, no others,
// and be in the solicited-node groups that they are asked for in (rule L4). What is new is joined before it is listened to,
// what is not needed any more is left after that.
func (s *NDPSocket) Watch(addresses []netip.Addr) error {
	wanted := groupsOf(addresses)
	if err := s.groups.join(wanted); err != nil {
		return fmt.Errorf("join solicited-node groups on %s: %w", s.link.Name, err)
	}
	if err := s.setFilter(addresses, filterND); err != nil {
		return err
	}
	s.groups.leaveOthers(wanted)
	return nil
}

// Close ends Listen, and leaves all groups.
func (s *NDPSocket) Close() error {
	s.groups.close()
	return s.socket.Close()
}

// Listen calls heard for each frame about a watched address, until the socket is closed (it then returns nil) or cannot
// receive any more. sender is the hardware address that a frame says it is from, source the protocol address, which is ::
// if somebody asks whether he may have the target. target is the address a solicitation asks for; it is not valid if the
// frame is an advertisement, which claims source. at is when the kernel received it, by the wall clock. refused is told of
// frames that were of no use: how many, and in a word why.
func (s *NDPSocket) Listen(heard func(sender [6]byte, source, target netip.Addr, at time.Time), refused func(why string, frames int)) error {
	return s.listen(func(frame []byte, at time.Time) bool {
		if len(frame) >= endEthernet && [6]byte(frame[offEthernetSource:]) == s.link.MAC {
			return true // our own, which some switch has sent back (RFC 4862, section 5.4.3)
		}
		sender, target, ok := parseND(frame)
		if ok {
			heard(sender.mac, sender.address, target, at)
		}
		return ok
	}, refused)
}

// parseND reads a frame: who it says it is from and, if it is a solicitation, the address it asks for; an advertisement's
// sender is said to have the address it is about. ok is false for one that must be discarded by RFC 4861, sections 7.1.1
// and 7.1.2, for all that is not neighbour discovery, and for one from what cannot be a host.
func parseND(frame []byte) (sender party, target netip.Addr, ok bool) {
	from, to, message, ok := openIPv6(frame)
	if !ok {
		return party{}, netip.Addr{}, false
	}
	decoded, err := ndp.ParseMessage(message)
	if err != nil {
		return party{}, netip.Addr{}, false
	}
	hardware := [6]byte(frame[offEthernetSource:])
	switch m := decoded.(type) {
	case *ndp.NeighborSolicitation:
		hardware, ok = asker(m, from, to, hardware)
		sender, target = party{hardware, from}, m.TargetAddress
	case *ndp.NeighborAdvertisement:
		hardware, ok = claimant(m, from, to, hardware)
		sender = party{hardware, m.TargetAddress}
	default:
		ok = false
	}
	if !ok || !isHost(hardware) {
		return party{}, netip.Addr{}, false
	}
	return sender, target, true
}

// asker is the hardware address that the sender of a solicitation is to be answered at. ok is false for one that must be
// discarded (RFC 4861, section 7.1.1).
func asker(m *ndp.NeighborSolicitation, from, to netip.Addr, sender [6]byte) (hardware [6]byte, ok bool) {
	said, told := linkLayer(m.Options, ndp.Source)
	if from.IsUnspecified() && (told || !isSolicitedNode(to)) {
		return sender, false
	}
	if told {
		sender = said
	}
	return sender, isUnicast(m.TargetAddress)
}

// claimant is the hardware address at which an advertisement says that its target is. ok is false for one that must be
// discarded (section 7.1.2).
func claimant(m *ndp.NeighborAdvertisement, from, to netip.Addr, sender [6]byte) (hardware [6]byte, ok bool) {
	if from.IsUnspecified() || to.IsMulticast() && m.Solicited {
		return sender, false
	}
	if said, told := linkLayer(m.Options, ndp.Target); told {
		sender = said
	}
	return sender, isUnicast(m.TargetAddress)
}

// openIPv6 takes a frame apart that has an ICMPv6 message right behind its IPv6 header, with the hop limit of 255 that
// shows that no router has passed it on, the code 0 and a checksum that is right.
func openIPv6(frame []byte) (from, to netip.Addr, message []byte, ok bool) {
	if len(frame) < endTarget || binary.BigEndian.Uint16(frame[offEtherType:]) != unix.ETH_P_IPV6 || frame[endEthernet]>>4 != 6 {
		return from, to, nil, false
	}
	length := int(binary.BigEndian.Uint16(frame[offPayloadLength:]))
	if length > len(frame)-endIPv6 || binary.BigEndian.Uint16(frame[offNextHeader:]) != icmpv6FromHere {
		return from, to, nil, false
	}
	message = frame[endIPv6 : endIPv6+length]
	from, to = netip.AddrFrom16([16]byte(frame[offSource:])), netip.AddrFrom16([16]byte(frame[offDestination:]))
	if length < endTarget-endIPv6 || message[1] != 0 || checksum(from, to, message) != 0 || from.IsMulticast() {
		return from, to, nil, false
	}
	return from, to, message, true
}

// checksum is that of an ICMPv6 message (RFC 4443, section 2.3), which is 0 if the one in it is right.
func checksum(from, to netip.Addr, message []byte) uint16 {
	var sum uint32
	add := func(bytes []byte) {
		for ; len(bytes) > 1; bytes = bytes[2:] {
			sum += uint32(bytes[0])<<8 | uint32(bytes[1])
		}
		if len(bytes) == 1 {
			sum += uint32(bytes[0]) << 8
		}
	}
	f, t := from.As16(), to.As16()
	add(f[:])
	add(t[:])
	add(message)
	sum += uint32(len(message)) + unix.IPPROTO_ICMPV6 //nolint:gosec // a frame is not that long
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// linkLayer is the link-layer address that a message tells; told is false if it tells none.
func linkLayer(options []ndp.Option, direction ndp.Direction) (mac [6]byte, told bool) {
	for _, option := range options {
		if address, ok := option.(*ndp.LinkLayerAddress); ok && address.Direction == direction && len(address.Addr) == len(mac) {
			return [6]byte(address.Addr), true
		}
	}
	return mac, false
}

// isUnicast is true for an IPv6 address that one host can have.
func isUnicast(address netip.Addr) bool {
	return address.Is6() && !address.Is4In6() && !address.IsMulticast() && !address.IsUnspecified()
}

// isSolicitedNode is true for a solicited-node group, ff02::1:ff00:0/104 (RFC 4291, section 2.7.1).
func isSolicitedNode(address netip.Addr) bool {
	bytes := address.As16()
	return [13]byte(bytes[:]) == [13]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff}
}

// Reply answers a solicitation that came in on this link, to the asker alone and marked as solicited. Who asks from :: has
// no address yet and is told by telling everybody, which is not solicited (RFC 4861, section 7.2.4; rule L4).
func (s *NDPSocket) Reply(to [6]byte, toAddress, address netip.Addr) error {
	if toAddress.IsUnspecified() {
		return s.Announce(address)
	}
	return s.advertise(address, true, toAddress, to)
}

// Announce tells everybody on this link that an address is here, and that what they knew before is void (the Override
// flag; rule L3).
func (s *NDPSocket) Announce(address netip.Addr) error {
	everybody := netip.IPv6LinkLocalAllNodes()
	return s.advertise(address, false, everybody, groupMAC(everybody))
}

// Ask asks the host with that hardware address whether it has an address of its own. Its kernel answers, whatever its
// programs do; the answer is heard if the address is watched. from is the link-local address of this link.
func (s *NDPSocket) Ask(to [6]byte, from, address netip.Addr) error {
	frame, err := frameND(&ndp.NeighborSolicitation{
		TargetAddress: address,
		Options:       []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: s.link.MAC[:]}},
	}, party{s.link.MAC, from}, party{to, address})
	if err == nil {
		err = s.send(frame, to)
	}
	if err != nil {
		return fmt.Errorf("ask by NDP for %s on %s: %w", address, s.link.Name, err)
	}
	return nil
}

// advertise sends one advertisement.
func (s *NDPSocket) advertise(address netip.Addr, solicited bool, to netip.Addr, destination [6]byte) error {
	frame, err := frameND(&ndp.NeighborAdvertisement{
		Solicited: solicited, Override: true, TargetAddress: address,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: s.link.MAC[:]}},
	}, party{s.link.MAC, s.link.LinkLocal}, party{destination, to})
	if err == nil {
		err = s.send(frame, destination)
	}
	if err != nil {
		return fmt.Errorf("send NDP for %s on %s: %w", address, s.link.Name, err)
	}
	return nil
}

// frameND is an Ethernet frame from one to another with a message of neighbour discovery.
func frameND(message ndp.Message, from, to party) ([]byte, error) {
	body, err := ndp.MarshalMessageChecksum(message, from.address, to.address)
	if err != nil {
		return nil, fmt.Errorf("write NDP message: %w", err)
	}
	if len(body) > largestFrame {
		return nil, errors.New("write NDP message: it is too long")
	}
	payload := make([]byte, 0, endIPv6-endEthernet+len(body))
	payload = binary.BigEndian.AppendUint32(payload, 6<<28)             // version, no class, no flow label
	payload = binary.BigEndian.AppendUint16(payload, uint16(len(body))) //nolint:gosec // see above
	payload = binary.BigEndian.AppendUint16(payload, icmpv6FromHere)    // next header and hop limit
	payload = append(append(payload, from.address.AsSlice()...), to.address.AsSlice()...)
	frame := ethernet.Frame{
		Destination: to.mac[:], Source: from.mac[:], EtherType: ethernet.EtherTypeIPv6, Payload: append(payload, body...),
	}
	bytes, err := frame.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("write Ethernet frame: %w", err)
	}
	return bytes, nil
}

// groupMAC is the Ethernet address of a multicast group (RFC 2464, section 7).
func groupMAC(group netip.Addr) [6]byte {
	bytes := group.As16()
	return [6]byte{0x33, 0x33, bytes[12], bytes[13], bytes[14], bytes[15]}
}
