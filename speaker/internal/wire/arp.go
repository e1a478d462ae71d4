package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/internal/cluster"
)

// ARPSocket receives and sends ARP on one link, as long as that link lives: if it is deleted or gets another address, a
// new socket has to be opened.
//
// Listen belongs to one goroutine; the other methods may be called from any.
type ARPSocket struct {
	link   cluster.Link
	conn   *packet.Conn
	raw    syscall.RawConn
	closed atomic.Bool
}

// OpenARP opens a socket on a link. It receives nothing before Watch has named addresses.
func OpenARP(link cluster.Link) (*ARPSocket, error) {
	nothing, err := bpf.Assemble(filter(nil))
	if err != nil {
		return nil, fmt.Errorf("assemble ARP filter for %s: %w", link.Name, err)
	}
	ifi := &net.Interface{Index: link.Index, Name: link.Name, HardwareAddr: link.MAC[:]}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_ARP, &packet.Config{Filter: nothing})
	if err != nil {
		return nil, fmt.Errorf("open ARP socket on %s: %w", link.Name, err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = stamp(raw)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask for time stamps on %s: %w", link.Name, err), conn.Close())
	}
	return &ARPSocket{link: link, conn: conn, raw: raw}, nil
}

// stamp has the kernel note with each frame when it came in.
//
// The arp and packet libraries have no way to hand this on, so Listen receives by itself. The kernel's stamps are of the
// wall clock; packet sockets offer no other. If that clock is set, the age of the frames then waiting is wrong by as much:
// a few requests go unanswered or are answered late, once. The kernel begins to stamp a moment after it was first asked to
// (net_enable_timestamp defers to a work queue); a frame without a stamp gets one when it is read.
func stamp(raw syscall.RawConn) error {
	var inner error
	err := raw.Control(func(fd uintptr) {
		inner = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	return errors.Join(err, inner)
}

// Watch has the kernel pass on the frames that ask for or claim one of these addresses, and no others. The change is made
// in one step: no frame is lost over it.
func (s *ARPSocket) Watch(addresses []netip.Addr) error {
	// A kernel whose memory for socket options is small (net.core.optmem_max was 20 KiB for long) refuses a large filter;
	// a coarser one still does.
	for spans := maxSpans; ; spans /= 2 {
		program, err := bpf.Assemble(filter(spansOf(addresses, spans)))
		if err != nil {
			return fmt.Errorf("assemble ARP filter for %s: %w", s.link.Name, err)
		}
		err = s.conn.SetBPF(program)
		if errors.Is(err, unix.ENOMEM) && spans > 1 {
			continue
		}
		if err != nil {
			return fmt.Errorf("set ARP filter on %s: %w", s.link.Name, err)
		}
		return nil
	}
}

// Close ends Listen.
func (s *ARPSocket) Close() error {
	s.closed.Store(true)
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("close ARP socket on %s: %w", s.link.Name, err)
	}
	return nil
}

// Listen calls heard for each frame about a watched address, until the socket is closed (it then returns nil) or cannot
// receive any more, as when the link goes down. sender is the hardware address that a frame says it is from, source the
// protocol address. target is the address a request asks for; it is not valid if the frame is no request, and only claims
// source. at is when the kernel received it, by the wall clock.
func (s *ARPSocket) Listen(heard func(sender [6]byte, source, target netip.Addr, at time.Time)) error {
	var (
		frame   [128]byte
		control [64]byte
	)
	for {
		n, at, err := s.receive(frame[:], control[:])
		if s.closed.Load() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive ARP on %s: %w", s.link.Name, err)
		}
		if sender, target, ok := parse(frame[:n]); ok {
			heard(sender.mac, sender.address, target, at)
		}
	}
}

// parse reads a frame: who it says it is from and, if it is a request, the address it asks for. ok is false for one that is
// not ARP for IPv4 over Ethernet; the filter lets none such through, but what comes from outside is not to be trusted.
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
	return party{[6]byte(message.SenderHardwareAddr), message.SenderIP}, target, true
}

// receive waits for the next frame and the kernel's time stamp.
func (s *ARPSocket) receive(frame, control []byte) (n int, at time.Time, err error) {
	var inner error
	controlled := 0
	err = s.raw.Read(func(fd uintptr) bool {
		n, controlled, _, _, inner = unix.Recvmsg(int(fd), frame, control, 0)
		return !errors.Is(inner, unix.EAGAIN)
	})
	if err := errors.Join(err, inner); err != nil {
		return 0, time.Time{}, err
	}
	at, err = stampOf(control[:controlled])
	return n, at, err
}

// stampOf reads the kernel's time stamp from the control messages of a frame: seconds and nanoseconds, each a word of the
// machine.
func stampOf(control []byte) (time.Time, error) {
	for len(control) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return time.Time{}, fmt.Errorf("read control messages: %w", err)
		}
		control = rest
		if header.Level != unix.SOL_SOCKET || header.Type != unix.SO_TIMESTAMPNS {
			continue
		}
		var long [2]int64
		if _, err := binary.Decode(data, binary.NativeEndian, long[:]); err == nil {
			return time.Unix(long[0], long[1]), nil
		}
		var short [2]int32
		if _, err := binary.Decode(data, binary.NativeEndian, short[:]); err == nil {
			return time.Unix(int64(short[0]), int64(short[1])), nil
		}
	}
	return time.Time{}, errors.New("the kernel gave no time stamp")
}

// Reply answers a request that came in on this link: to the asker alone, with this link's hardware address (rule L2).
func (s *ARPSocket) Reply(to [6]byte, toAddress, address netip.Addr) error {
	return s.send(arp.OperationReply, address, to, toAddress, to)
}

// Ask asks the host with that hardware address whether it has an address of its own. Its kernel answers, whatever its
// programs do; the answer is heard if the address is watched. from is an address of this link.
func (s *ARPSocket) Ask(to [6]byte, from, address netip.Addr) error {
	return s.send(arp.OperationRequest, from, [6]byte{}, address, to)
}

// Announce tells everybody on this link that an address is here, twice: as a request (RFC 5227, section 3, "ARP
// Announcement") and then as a reply, for old hosts that take only those (rule L3). The reply's target hardware address
// is our own: Linux ignores one with the broadcast address there if its entry is younger than a second.
func (s *ARPSocket) Announce(address netip.Addr) error {
	everybody := [6]byte(ethernet.Broadcast)
	return errors.Join(
		s.send(arp.OperationRequest, address, [6]byte{}, address, everybody),
		s.send(arp.OperationReply, address, s.link.MAC, address, everybody),
	)
}

// send sends one ARP packet from an address of ours. It does not wait for room in the link's queue: a frame that comes
// late may be untrue by then, and a stuck link must not hold up the others (rule P14).
func (s *ARPSocket) send(op arp.Operation, from netip.Addr, target [6]byte, to netip.Addr, destination [6]byte) error {
	frame, err := frameOf(op, party{s.link.MAC, from}, party{target, to}, destination)
	if err != nil {
		return fmt.Errorf("send ARP for %s on %s: %w", from, s.link.Name, err)
	}
	address := &unix.SockaddrLinklayer{Protocol: protocol(), Ifindex: s.link.Index, Halen: 6}
	copy(address.Addr[:], destination[:])
	var inner error
	err = s.raw.Write(func(fd uintptr) bool {
		inner = unix.Sendto(int(fd), frame, unix.MSG_DONTWAIT, address)
		return true
	})
	if err := errors.Join(err, inner); err != nil {
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

// protocol is ARP's EtherType in network byte order, as the kernel wants it in an integer of the host's (packet(7)).
func protocol() uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP))
}
