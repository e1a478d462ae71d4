package wiretest

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Message is a frame of neighbour discovery as it was on the link. It is read and written here bit by bit, as RFC 4861
// draws it, so that no mistake is shared with the library that the product uses.
type Message struct {
	From, To            [6]byte // Ethernet source and destination
	Source, Destination netip.Addr
	HopLimit            byte
	Type                byte // Solicitation or Advertisement
	Code                byte
	Solicited, Override bool
	Target              netip.Addr
	LinkLayer           [6]byte // of the option that such a message has; unset: none
	At                  time.Time
}

// The types of messages, and the options that tell their link-layer address.
const (
	Solicitation  = 135
	Advertisement = 136

	optionSource = 1
	optionTarget = 2
)

// NDTap sees every frame of neighbour discovery that comes in on a link, and sends others.
type NDTap struct{ *tapOf[Message] }

// NDTap opens a tap on a link. It keeps up to 10,000 frames nobody has asked for yet.
func (n *Namespace) NDTap(link string) *NDTap {
	n.t.Helper()
	return &NDTap{openTap(n, link, unix.ETH_P_IPV6, decodeND)}
}

// AllNodes is the group of everybody, with its Ethernet address.
func AllNodes() (netip.Addr, [6]byte) {
	return netip.IPv6LinkLocalAllNodes(), [6]byte{0x33, 0x33, 0, 0, 0, 1}
}

// SolicitedNode is the group in which an address is asked for, with its Ethernet address.
func SolicitedNode(address netip.Addr) (netip.Addr, [6]byte) {
	last := address.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], last[13:])
	return netip.AddrFrom16(group), [6]byte{0x33, 0x33, 0xff, last[13], last[14], last[15]}
}

// Solicitation is what a host with that address asks to find another.
func (t *NDTap) Solicitation(from, target netip.Addr) Message {
	group, mac := SolicitedNode(target)
	m := Message{
		From: t.mac, To: mac, Source: from, Destination: group, HopLimit: 255, Type: Solicitation, Target: target, LinkLayer: t.mac,
	}
	if from.IsUnspecified() {
		m.LinkLayer = [6]byte{} // as RFC 4861, section 4.3, has it
	}
	return m
}

// Ask sends such a solicitation.
func (t *NDTap) Ask(from, target netip.Addr) {
	t.t.Helper()
	t.Raw(t.Solicitation(from, target).Bytes())
}

// Bytes are the frame.
func (m Message) Bytes() []byte {
	flags := uint32(0)
	if m.Solicited {
		flags |= 1 << 30
	}
	if m.Override {
		flags |= 1 << 29
	}
	body := []byte{m.Type, m.Code, 0, 0}
	body = binary.BigEndian.AppendUint32(body, flags)
	body = append(body, m.Target.AsSlice()...)
	if m.LinkLayer != [6]byte{} {
		option := byte(optionSource)
		if m.Type == Advertisement {
			option = optionTarget
		}
		body = append(append(body, option, 1), m.LinkLayer[:]...)
	}
	binary.BigEndian.PutUint16(body[2:], Checksum(m.Source, m.Destination, body))
	frame := append(append([]byte{}, m.To[:]...), m.From[:]...)
	frame = append(frame, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(body)), 58, m.HopLimit) //nolint:gosec // a message with one option
	frame = append(append(frame, m.Source.AsSlice()...), m.Destination.AsSlice()...)
	return append(frame, body...)
}

// Checksum is that of a message, 0 if the one it has is right (RFC 8200, section 8.1).
func Checksum(from, to netip.Addr, body []byte) uint16 {
	all := append(append([]byte{}, from.AsSlice()...), to.AsSlice()...)
	all = append(all, 0, 0, byte(len(body)>>8), byte(len(body)), 0, 0, 0, 58) //nolint:gosec // a frame is not that long
	all = append(all, body...)
	if len(all)%2 == 1 {
		all = append(all, 0)
	}
	sum := 0
	for i := 0; i < len(all); i += 2 {
		sum += int(binary.BigEndian.Uint16(all[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// decodeND reads a frame; one with a wrong checksum is none.
func decodeND(raw []byte) (m Message, ok bool) {
	const headers, shortest = 54, 78
	if len(raw) < shortest || raw[20] != 58 || raw[54] != Solicitation && raw[54] != Advertisement {
		return Message{}, false
	}
	body := raw[headers : headers+int(binary.BigEndian.Uint16(raw[18:]))]
	m = Message{
		From: [6]byte(raw[6:]), To: [6]byte(raw), HopLimit: raw[21], Type: body[0], Code: body[1],
		Source: netip.AddrFrom16([16]byte(raw[22:])), Destination: netip.AddrFrom16([16]byte(raw[38:])),
		Solicited: body[4]&0x40 != 0, Override: body[4]&0x20 != 0, Target: netip.AddrFrom16([16]byte(body[8:])), At: time.Now(),
	}
	for options := body[24:]; len(options) >= 8 && options[1] != 0; options = options[min(len(options), 8*int(options[1])):] {
		if options[0] == optionSource || options[0] == optionTarget {
			m.LinkLayer = [6]byte(options[2:])
		}
	}
	return m, Checksum(m.Source, m.Destination, body) == 0
}
