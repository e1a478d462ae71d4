package frames

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Ask builds the question who has target, as the host with that MAC and source address would send it: an ARP request
// for IPv4, a multicast solicitation for IPv6. Both addresses are of one family.
func Ask(target, source netip.Addr, mac net.HardwareAddr) []byte {
	if target.Is4() {
		return arpRequest(target, source, mac)
	}
	return solicitation(target, source, mac)
}

func ether(dest, source net.HardwareAddr, kind uint16) []byte {
	frame := append(append(make([]byte, 0, 128), dest...), source...)
	return binary.BigEndian.AppendUint16(frame, kind)
}

func arpRequest(target, source netip.Addr, mac net.HardwareAddr) []byte {
	frame := ether(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, etherARP)
	frame = append(frame, 0, 1, 0x08, 0, 6, 4, 0, 1)
	frame = append(append(frame, mac...), source.AsSlice()...)
	frame = append(frame, 0, 0, 0, 0, 0, 0)
	return append(frame, target.AsSlice()...)
}

// solicitation asks at the solicited-node multicast address of the target (RFC 4861 section 4.3; RFC 4291 section
// 2.7.1), carried by Ethernet as RFC 2464 section 7 says.
func solicitation(target, source netip.Addr, mac net.HardwareAddr) []byte {
	t := target.As16()
	group := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: t[13], 14: t[14], 15: t[15]})
	frame := ether(net.HardwareAddr{0x33, 0x33, 0xff, t[13], t[14], t[15]}, mac, etherIPv6)
	const length = ndLen + 8
	frame = append(frame, 0x60, 0, 0, 0, 0, length, protoICMPv6, hopLimit)
	frame = append(append(frame, source.AsSlice()...), group.AsSlice()...)
	icmp := append([]byte{typeNS, 0, 0, 0, 0, 0, 0, 0}, t[:]...)
	icmp = append(append(icmp, optSource, 1), mac...)
	binary.BigEndian.PutUint16(icmp[2:4], checksum(source, group, icmp))
	return append(frame, icmp...)
}

// checksum is that of ICMPv6: over a pseudo header of the addresses, the length and the protocol (RFC 4443 section 2.3).
func checksum(source, dest netip.Addr, icmp []byte) uint16 {
	sum := uint32(len(icmp)) + protoICMPv6 //nolint:gosec // a few dozen bytes
	for _, part := range [][]byte{source.AsSlice(), dest.AsSlice(), icmp} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i : i+2])) // every part has an even length
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
