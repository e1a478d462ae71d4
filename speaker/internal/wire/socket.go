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

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/internal/cluster"
)

// Why a frame that came in was of no use: what Listen tells its second callback.
const (
	// malformed is a frame that is about a watched address and breaks the protocol's rules.
	malformed = "malformed"
	// overflow is a frame that the kernel threw away because too many waited to be read.
	overflow = "overflow"
)

// socket is a packet socket on one link, as long as that link lives: what ARP and neighbour discovery have in common.
//
// listen belongs to one goroutine; the other methods may be called from any.
type socket struct {
	link     cluster.Link
	name     string // of the protocol, in errors
	protocol uint16 // its EtherType
	conn     *packet.Conn
	raw      syscall.RawConn
	closed   atomic.Bool
}

// openSocket opens a socket on a link. It receives nothing before it is given a filter.
func openSocket(link cluster.Link, name string, protocol uint16) (*socket, error) {
	nothing, err := bpf.Assemble([]bpf.Instruction{verdict(drop)})
	if err != nil {
		return nil, fmt.Errorf("assemble %s filter for %s: %w", name, link.Name, err)
	}
	ifi := &net.Interface{Index: link.Index, Name: link.Name, HardwareAddr: link.MAC[:]}
	conn, err := packet.Listen(ifi, packet.Raw, int(protocol), &packet.Config{Filter: nothing})
	if err != nil {
		return nil, fmt.Errorf("open %s socket on %s: %w", name, link.Name, err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = stamp(raw)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask for time stamps on %s: %w", link.Name, err), conn.Close())
	}
	return &socket{link: link, name: name, protocol: protocol, conn: conn, raw: raw}, nil
}

// stamp has the kernel note with each frame when it came in, and how many it had thrown away by then.
//
// The packet library has no way to hand this on, so listen receives by itself. The kernel's stamps are of the wall clock;
// packet sockets offer no other. If that clock is set, the age of the frames then waiting is wrong by as much: a few
// requests go unanswered or are answered late, once. The kernel begins to stamp a moment after it was first asked to
// (net_enable_timestamp defers to a work queue); a frame without a stamp gets one when it is read.
func stamp(raw syscall.RawConn) error {
	var inner error
	err := raw.Control(func(fd uintptr) {
		inner = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1),
		)
	})
	return errors.Join(err, inner)
}

// setFilter has the kernel pass on what the program chooses that is made for these addresses. The change is made in one
// step: no frame is lost over it.
func (s *socket) setFilter(addresses []netip.Addr, program func([]span) []bpf.Instruction) error {
	// A kernel whose memory for socket options is small (net.core.optmem_max was 20 KiB for long) refuses a large filter;
	// a coarser one still does.
	for spans := maxSpans; ; spans /= 2 {
		assembled, err := bpf.Assemble(program(spansOf(addresses, spans)))
		if err != nil {
			return fmt.Errorf("assemble %s filter for %s: %w", s.name, s.link.Name, err)
		}
		err = s.conn.SetBPF(assembled)
		if errors.Is(err, unix.ENOMEM) && spans > 1 {
			continue
		}
		if err != nil {
			return fmt.Errorf("set %s filter on %s: %w", s.name, s.link.Name, err)
		}
		return nil
	}
}

// Close ends Listen.
func (s *socket) Close() error {
	s.closed.Store(true)
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("close %s socket on %s: %w", s.name, s.link.Name, err)
	}
	return nil
}

// largestFrame is how many bytes of a frame are read. Neither protocol comes near it.
const largestFrame = 2048

// listen calls take for each frame that passes the filter, and refused for those that the kernel had no room for or that
// take does not like, until the socket is closed (it then returns nil) or cannot receive any more, as when the link goes
// down.
func (s *socket) listen(take func(frame []byte, at time.Time) (ok bool), refused func(why string, frames int)) error {
	var (
		frame   [largestFrame]byte
		control [128]byte
		lost    uint32
	)
	for {
		n, about, err := s.receive(frame[:], control[:])
		if s.closed.Load() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive %s on %s: %w", s.name, s.link.Name, err)
		}
		if more := about.lost - lost; more != 0 {
			lost = about.lost
			refused(overflow, int(more))
		}
		if !take(frame[:n], about.at) {
			refused(malformed, 1)
		}
	}
}

// receive waits for the next frame and what the kernel says about it.
func (s *socket) receive(frame, control []byte) (n int, about reception, err error) {
	var inner error
	controlled := 0
	err = s.raw.Read(func(fd uintptr) bool {
		n, controlled, _, _, inner = unix.Recvmsg(int(fd), frame, control, 0)
		return !errors.Is(inner, unix.EAGAIN)
	})
	if err := errors.Join(err, inner); err != nil {
		return 0, reception{}, err
	}
	about, err = receptionOf(control[:controlled])
	return n, about, err
}

// reception is what the kernel says about a frame.
type reception struct {
	at   time.Time // when it came in, by the wall clock
	lost uint32    // how many frames the socket had lost by then
}

// receptionOf reads the control messages of a frame. The time is seconds and nanoseconds, each a word of the machine; the
// number of lost frames is not there while there are none.
func receptionOf(control []byte) (about reception, err error) {
	for len(control) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return reception{}, fmt.Errorf("read control messages: %w", err)
		}
		control = rest
		switch {
		case header.Level != unix.SOL_SOCKET:
		case header.Type == unix.SO_TIMESTAMPNS:
			about.at = timeOf(data)
		case header.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			about.lost = binary.NativeEndian.Uint32(data)
		}
	}
	if about.at.IsZero() {
		return reception{}, errors.New("the kernel gave no time stamp")
	}
	return about, nil
}

// timeOf reads a time stamp; zero if it is none.
func timeOf(data []byte) time.Time {
	var long [2]int64
	if _, err := binary.Decode(data, binary.NativeEndian, long[:]); err == nil {
		return time.Unix(long[0], long[1])
	}
	var short [2]int32
	if _, err := binary.Decode(data, binary.NativeEndian, short[:]); err == nil {
		return time.Unix(int64(short[0]), int64(short[1]))
	}
	return time.Time{}
}

// send sends a frame to a hardware address. It does not wait for room in the link's queue: a frame that comes late may be
// untrue by then, and a stuck link must not hold up the others (rule P14).
func (s *socket) send(frame []byte, destination [6]byte) error {
	address := &unix.SockaddrLinklayer{Protocol: networkOrder(s.protocol), Ifindex: s.link.Index, Halen: 6}
	copy(address.Addr[:], destination[:])
	var inner error
	err := s.raw.Write(func(fd uintptr) bool {
		inner = unix.Sendto(int(fd), frame, unix.MSG_DONTWAIT, address)
		return true
	})
	return errors.Join(err, inner)
}

// networkOrder is an EtherType in network byte order, as the kernel wants it in an integer of the host's (packet(7)).
func networkOrder(protocol uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
}

// isHost is true for a hardware address that one host can have: neither a group's nor unset.
func isHost(mac [6]byte) bool { return mac[0]&1 == 0 && mac != [6]byte{} }
