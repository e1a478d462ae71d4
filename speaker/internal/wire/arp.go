package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/internal/cluster"
)

// ARPSocket receives and sends ARP on one link, as long as that link lives: if it is deleted or gets another address, a
// new socket has to be opened.
//
// Listen belongs to one goroutine; the other methods may be called from any.
type ARPSocket struct{ *socket }

// OpenARP opens a socket on a link. It receives nothing before Watch has named addresses.
func OpenARP(link cluster.Link) (*ARPSocket, error) {
	s, err := openSocket(link, "ARP", unix.ETH_P_ARP)
	if err != nil {
		return nil, err
	}
	return &ARPSocket{s}, nil
}

// Watch has the kernel pass on the frames that ask for or claim one of these addresses, and no others.
func (s *ARPSocket) Watch(addresses []netip.Addr) error { return s.setFilter(addresses, filter) }

// Listen calls heard for each frame about a watched address, until the socket is closed (it then returns nil) or cannot
// receive any more, as when the link goes down. sender is the hardware address that a frame says it is from, source the
// protocol address. target is the address a request asks for; it is not valid if the frame is no request, and only claims
// source. at is when the kernel received it, by the wall clock. refused is told of frames that were of no use: how many,
// and in a word why.
func (s *ARPSocket) Listen(heard func(sender [6]byte, source, target netip.Addr, at time.Time), refused func(why string, frames int)) error {
	return s.listen(func(frame []byte, at time.Time) bool {
		sender, target, ok := parse(frame)
		if ok {
			heard(sender.mac, sender.address, target, at)
		}
		return ok
	}, refused)
}

// parse reads a frame: who it says it is from and, if it is a request, the address it asks for. ok is false for one that is
// not ARP for IPv4 over Ethernet, of which the filter lets none through, and for one from what cannot be a host: an answer
// to a broadcast address would reach everybody.
func parse(frame []byte) (sender party, target netip.Addr, ok bool) {
	var message arp.Packet
	if len(frame) < frameLength || message.UnmarshalBinary(frame[offHardwareType:]) != nil {
		return party{}, netip.Addr{}, false
	}
	if message.HardwareType != 1 || message.ProtocolType != uint16(ethernet.EtherTypeIPv4) ||
		len(message.SenderHardwareAddr) != len(sender.mac) || !message.SenderIP.Is4() {
		return party{}, netip.Addr{}, false
	}
	if message.Operation == arp.OperationRequest {
		target = message.TargetIP
	}
	sender = party{[6]byte(message.SenderHardwareAddr), message.SenderIP}
	return sender, target, isHost(sender.mac)
}

// Reply answers a request that came in on this link: to the asker alone, with this link's hardware address (rule L2).
func (s *ARPSocket) Reply(to [6]byte, toAddress, address netip.Addr) error {
	return s.say(arp.OperationReply, address, party{to, toAddress}, to)
}

// Ask asks the host with that hardware address whether it has an address of its own. Its kernel answers, whatever its
// programs do; the answer is heard if the address is watched. from is an address of this link.
func (s *ARPSocket) Ask(to [6]byte, from, address netip.Addr) error {
	return s.say(arp.OperationRequest, from, party{address: address}, to)
}

// Announce tells everybody on this link that an address is here, twice: as a request (RFC 5227, section 3, "ARP
// Announcement") and then as a reply, for old hosts that take only those (rule L3). The reply's target hardware address
// is our own: Linux ignores one with the broadcast address there if its entry is younger than a second.
func (s *ARPSocket) Announce(address netip.Addr) error {
	everybody := [6]byte(ethernet.Broadcast)
	return errors.Join(
		s.say(arp.OperationRequest, address, party{address: address}, everybody),
		s.say(arp.OperationReply, address, party{s.link.MAC, address}, everybody),
	)
}

// say sends one ARP packet from an address of ours.
func (s *ARPSocket) say(op arp.Operation, from netip.Addr, target party, destination [6]byte) error {
	frame, err := frameOf(op, party{s.link.MAC, from}, target, destination)
	if err == nil {
		err = s.send(frame, destination)
	}
	if err != nil {
		return fmt.Errorf("send ARP for %s on %s: %w", from, s.link.Name, err)
	}
	return nil
}

// party is one of the two hosts an ARP packet tells of.
type party struct {
	mac     [6]byte
	address netip.Addr
}

// frameOf is an Ethernet frame to destination with an ARP packet.
func frameOf(op arp.Operation, sender, target party, destination [6]byte) ([]byte, error) {
	message, err := arp.NewPacket(op, sender.mac[:], sender.address, target.mac[:], target.address)
	if err != nil {
		return nil, fmt.Errorf("make ARP packet: %w", err)
	}
	payload, err := message.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("write ARP packet: %w", err)
	}
	frame := ethernet.Frame{
		Destination: destination[:], Source: sender.mac[:], EtherType: ethernet.EtherTypeARP, Payload: payload,
	}
	bytes, err := frame.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("write Ethernet frame: %w", err)
	}
	return bytes, nil
}
