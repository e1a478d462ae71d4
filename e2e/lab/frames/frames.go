// Package frames decodes, records and sends the frames by which hosts of a segment find each other: ARP (RFC 826) and
// IPv6 neighbour discovery (RFC 4861). It is the lab's own eye on the wire and shares no code with what it watches.
package frames

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Op is what a frame says.
type Op string

// The operations.
const (
	Request       Op = "request" // ARP: who has Target?
	Reply         Op = "reply"   // ARP: Sender is at SenderMAC
	Solicitation  Op = "ns"      // ND: who has Target?
	Advertisement Op = "na"      // ND: Target is at SenderMAC
)

// Frame is one decoded frame.
type Frame struct {
	Time      time.Time
	Outgoing  bool // sent by the recording host itself
	Source    net.HardwareAddr
	Dest      net.HardwareAddr
	Op        Op
	Sender    netip.Addr       // ARP: sender protocol address; ND: source address of the packet
	SenderMAC net.HardwareAddr // ARP: sender hardware address; ND: link-layer option, nil if there is none
	Target    netip.Addr
	Solicited bool // the S flag of an advertisement (RFC 4861 section 4.4)
	Override  bool // its O flag
}

// Gratuitous tells whether the frame announces the sender's own address without having been asked.
func (f Frame) Gratuitous() bool {
	switch f.Op {
	case Request, Reply:
		return f.Sender == f.Target
	case Advertisement:
		return !f.Solicited
	default:
		return false
	}
}

// Subject is the address the frame makes a claim about, or asks for.
func (f Frame) Subject() netip.Addr {
	if f.Op == Reply {
		return f.Sender
	}
	return f.Target
}

// String prints what the frame says, without its time.
func (f Frame) String() string {
	switch f.Op {
	case Request, Solicitation:
		return fmt.Sprintf("%s who-has %s from %s at %s", f.Op, f.Target, f.Sender, f.SenderMAC)
	default:
		return fmt.Sprintf("%s %s is-at %s", f.Op, f.Subject(), f.SenderMAC)
	}
}

const (
	etherLen    = 14
	arpLen      = 28
	etherARP    = 0x0806
	etherIPv6   = 0x86dd
	ipv6Len     = 40
	protoICMPv6 = 58
	typeNS      = 135
	typeNA      = 136
	ndLen       = 24
	hopLimit    = 255
	optSource   = 1
	optTarget   = 2
)

// Decode reads an Ethernet frame; ok is false for a frame that is neither ARP for IPv4 nor a solicitation or
// advertisement, or that is cut off.
func Decode(raw []byte) (f Frame, ok bool) {
	if len(raw) < etherLen {
		return Frame{}, false
	}
	f.Dest, f.Source = clone(raw[0:6]), clone(raw[6:12])
	body := raw[etherLen:]
	switch binary.BigEndian.Uint16(raw[12:14]) {
	case etherARP:
		ok = decodeARP(&f, body)
	case etherIPv6:
		ok = decodeND(&f, body)
	}
	return f, ok
}

func clone(mac []byte) net.HardwareAddr { return append(net.HardwareAddr(nil), mac...) }

func decodeARP(f *Frame, body []byte) bool {
	if len(body) < arpLen || binary.BigEndian.Uint16(body[0:2]) != 1 || binary.BigEndian.Uint16(body[2:4]) != 0x0800 {
		return false
	}
	if body[4] != 6 || body[5] != 4 {
		return false
	}
	switch binary.BigEndian.Uint16(body[6:8]) {
	case 1:
		f.Op = Request
	case 2:
		f.Op = Reply
	default:
		return false
	}
	f.SenderMAC = clone(body[8:14])
	f.Sender = netip.AddrFrom4([4]byte(body[14:18]))
	f.Target = netip.AddrFrom4([4]byte(body[24:28]))
	return true
}

func decodeND(f *Frame, body []byte) bool {
	if len(body) < ipv6Len+ndLen || body[6] != protoICMPv6 || body[7] != hopLimit {
		return false
	}
	f.Sender = netip.AddrFrom16([16]byte(body[8:24]))
	icmp := body[ipv6Len:]
	f.Target = netip.AddrFrom16([16]byte(icmp[8:24]))
	switch icmp[0] {
	case typeNS:
		f.Op, f.SenderMAC = Solicitation, linkLayer(icmp[ndLen:], optSource)
	case typeNA:
		f.Op, f.SenderMAC = Advertisement, linkLayer(icmp[ndLen:], optTarget)
		f.Solicited, f.Override = icmp[4]&0x40 != 0, icmp[4]&0x20 != 0
	default:
		return false
	}
	return true
}

// linkLayer finds the link-layer address among the options (RFC 4861 section 4.6; lengths count eight octets).
func linkLayer(options []byte, kind byte) net.HardwareAddr {
	for len(options) >= 8 {
		length := int(options[1]) * 8
		if length == 0 || length > len(options) {
			return nil
		}
		if options[0] == kind {
			return clone(options[2:8])
		}
		options = options[length:]
	}
	return nil
}
