package wire

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in an Ethernet frame that carries ARP for IPv4 (RFC 826, "Packet format"), in bytes.
const (
	offHardwareType   = 14 // and the protocol type in the two bytes behind it
	offAddressLengths = 18 // of hardware and protocol addresses
	offOperation      = 20
	offSenderIP       = 28
	offTargetIP       = 38

	// frameLength is all of such a frame but its padding.
	frameLength = 42
)

// Values expected there.
const (
	ethernetAndIPv4 = 1<<16 | 0x0800
	lengths6And4    = 6<<8 | 4
	operationAsk    = 1
)

// Offsets in an Ethernet frame that carries neighbour discovery (RFC 8200, section 3; RFC 4861, sections 4.3 and 4.4), in
// bytes.
const (
	offEthernetSource = 6
	offEtherType      = 12
	endEthernet       = 14
	offPayloadLength  = 18
	offNextHeader     = 20 // and the hop limit in the byte behind it
	offSource         = 22
	offDestination    = 38
	endIPv6           = 54
	offType           = 54 // and the code in the byte behind it
	endTarget         = 78
	// offTail is where the last 32 bits of an address begin.
	offTail = 12
)

// Values expected there.
const (
	icmpv6FromHere = 58<<8 | 255 // ICMPv6 that no router has passed on (RFC 4861, section 7.1)
	solicitation   = 135 << 8    // with the code 0
	advertisement  = 136 << 8
)

// maxSpans is how many spans of addresses a filter tells apart. Each takes up to six instructions in each of two trees,
// and the kernel takes 4,096 (BPF_MAXINSNS).
const maxSpans = 300

// span is a range of the last 32 bits of addresses, both ends included: all of an IPv4 address. Of IPv6 addresses those
// tell apart what is on one link, as good as always.
type span struct{ from, to uint32 }

// spansOf are the addresses, of one family, as spans, sorted, adjoining ones joined. If there are more than most, the
// closest are joined until there are not: the filter then lets some addresses through that nobody asked for, which costs
// time but is harmless, because whoever receives looks each one up again.
func spansOf(addresses []netip.Addr, most int) []span {
	all := make([]uint32, 0, len(addresses))
	for _, address := range addresses {
		bytes := address.As16()
		all = append(all, binary.BigEndian.Uint32(bytes[offTail:]))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	var spans []span
	for _, a := range all {
		if last := len(spans) - 1; last >= 0 && a-spans[last].to == 1 {
			spans[last].to = a
			continue
		}
		spans = append(spans, span{a, a})
	}
	return coarser(spans, most)
}

// coarser joins the closest spans of a sorted list until there are at most so many.
func coarser(spans []span, most int) []span {
	excess := len(spans) - most
	if excess <= 0 {
		return spans
	}
	gaps := make([]uint32, 0, len(spans)-1)
	for i := 1; i < len(spans); i++ {
		gaps = append(gaps, spans[i].from-spans[i-1].to)
	}
	slices.Sort(gaps)
	widest := gaps[excess-1] // to be bridged: all that are narrower, and as many of this width as it takes
	narrower, _ := slices.BinarySearch(gaps, widest)
	thatWide := excess - narrower
	joined := spans[:1:1]
	for _, s := range spans[1:] {
		last := &joined[len(joined)-1]
		gap := s.from - last.to
		switch {
		case gap < widest:
			last.to = s.to
		case gap == widest && thatWide > 0:
			last.to = s.to
			thatWide--
		default:
			joined = append(joined, s)
		}
	}
	return joined
}

// filter is the program by which the kernel chooses the frames a socket gets: ARP for IPv4 over Ethernet that
//
//	asks for one of the addresses, or
//	claims one, whatever the operation (whoever sends from it says it is his; rule E10, L5),
//
// and that was sent to this host or to all. Everything else costs us nothing. A link in promiscuous mode, or with VLANs
// that no link of ours takes, shows frames for others as well: those the kernel marks PACKET_OTHERHOST.
func filter(spans []span) []bpf.Instruction { return forUs(spans, choose) }

// filterND is the same for neighbour discovery: solicitations that ask for one of the addresses or are sent from one, and
// advertisements of one.
func filterND(spans []span) []bpf.Instruction { return forUs(spans, chooseND) }

// forUs is a program that lets nothing pass that was sent to another host, and leaves the rest to the one for the frame's
// own bytes.
func forUs(spans []span, choose func([]span) []bpf.Instruction) []bpf.Instruction {
	if len(spans) == 0 {
		return []bpf.Instruction{verdict(drop)}
	}
	prelude := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_OTHERHOST, SkipTrue: 1},
		verdict(drop),
	}
	return append(prelude, choose(spans)...)
}

// choose is the part of the filter for ARP that looks at the frame's own bytes.
func choose(spans []span) []bpf.Instruction {
	members := search(spans)
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offHardwareType, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ethernetAndIPv4, SkipTrue: 1},
		verdict(drop),
		bpf.LoadAbsolute{Off: offAddressLengths, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: lengths6And4, SkipTrue: 1},
		verdict(drop),
		bpf.LoadAbsolute{Off: offOperation, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: operationAsk, SkipTrue: 1},
		jump(len(members) + 1),
		bpf.LoadAbsolute{Off: offTargetIP, Size: 4},
	}
	program = append(program, members...)
	program = append(program, bpf.LoadAbsolute{Off: offSenderIP, Size: 4})
	program = append(program, members...)
	return append(program, verdict(drop))
}

// chooseND is the part of the filter for neighbour discovery that looks at the frame's own bytes. What has other headers
// before ICMPv6 is dropped: no host sends that.
func chooseND(spans []span) []bpf.Instruction {
	members := search(spans)
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offNextHeader, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: icmpv6FromHere, SkipTrue: 1},
		verdict(drop),
		bpf.LoadAbsolute{Off: offType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: solicitation, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: advertisement, SkipTrue: 1},
		verdict(drop),
		bpf.LoadAbsolute{Off: endTarget - 4, Size: 4},
	}
	program = append(program, members...)
	program = append(program,
		bpf.LoadAbsolute{Off: offType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: solicitation, SkipTrue: 1},
		verdict(drop),
		bpf.LoadAbsolute{Off: offSource + offTail, Size: 4},
	)
	program = append(program, members...)
	return append(program, verdict(drop))
}

// verdict ends the program: so many bytes of the frame are passed on, none if 0.
func verdict(bytes uint32) bpf.Instruction { return bpf.RetConstant{Val: bytes} }

// The verdicts.
const (
	drop   = 0
	accept = 1 << 16 // more than any frame has
)

// jump passes over so many instructions.
func jump(over int) bpf.Instruction {
	return bpf.Jump{Skip: uint32(over)} //nolint:gosec // a program has 4,096 at most
}

// search accepts if the accumulator lies in one of the spans, and otherwise runs on behind its own end. It is a binary
// tree, because classic BPF has no loops and a walk through all would cost every frame. Its branches are left by Jump:
// a conditional jump reaches 255 instructions only.
func search(spans []span) []bpf.Instruction {
	if len(spans) == 1 {
		return []bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: spans[0].from, SkipFalse: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: spans[0].to, SkipTrue: 1},
			verdict(accept),
		}
	}
	middle := len(spans) / 2
	low, high := search(spans[:middle]), search(spans[middle:])
	program := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: spans[middle].from, SkipFalse: 1},
		jump(len(low) + 1),
	}
	program = append(program, low...)
	program = append(program, jump(len(high)))
	return append(program, high...)
}
