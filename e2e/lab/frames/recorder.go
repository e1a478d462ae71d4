package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/e2e/lab/fabric"
)

// keep is how many frames a recorder holds; the oldest go first.
const keep = 1 << 17

// Recorder keeps every ARP and neighbour discovery frame that a link carries, with the kernel's time of each.
type Recorder struct {
	space  *fabric.Space
	link   string
	socket *os.File
	done   chan struct{}

	mu     sync.Mutex // guards all below
	frames []Frame
	fresh  chan struct{} // closed and replaced when a frame comes
}

// Record begins to record on a link of a namespace.
func Record(space *fabric.Space, link string) (*Recorder, error) {
	r := &Recorder{space: space, link: link, done: make(chan struct{}), fresh: make(chan struct{})}
	if err := space.Do(r.open); err != nil {
		return nil, fmt.Errorf("record frames of %s in %s: %w", link, space.Name, err)
	}
	go r.read()
	return r, nil
}

// open makes the packet socket. It gets its filter before it is bound, so no other frame is ever queued.
func (r *Recorder) open() error {
	device, err := net.InterfaceByName(r.link)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if err := prepare(fd, device.Index); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	r.socket = os.NewFile(uintptr(fd), "recorder")
	return nil
}

func prepare(fd, device int) error {
	program, err := filter()
	if err != nil {
		return err
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program); err != nil {
		return fmt.Errorf("attach the filter: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("ask for the kernel's time: %w", err)
	}
	const room = 8 << 20
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room); err != nil {
		return fmt.Errorf("ask for room for frames: %w", err)
	}
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: device})
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// filter passes ARP, and of ICMPv6 solicitations and advertisements.
func filter() (*unix.SockFprog, error) {
	const all, none = 1 << 16, 0
	instructions, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherARP, SkipTrue: 6},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: etherIPv6, SkipTrue: 6},
		bpf.LoadAbsolute{Off: etherLen + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protoICMPv6, SkipTrue: 4},
		bpf.LoadAbsolute{Off: etherLen + ipv6Len, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeNS, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: typeNA, SkipTrue: 1},
		bpf.RetConstant{Val: all},
		bpf.RetConstant{Val: none},
	})
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	var program []unix.SockFilter
	for _, i := range instructions {
		program = append(program, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}, nil //nolint:gosec // ten instructions
}

// read takes frames until the socket is closed.
func (r *Recorder) read() {
	defer close(r.done)
	conn, err := r.socket.SyscallConn()
	if err != nil {
		return
	}
	buffer, control := make([]byte, 2048), make([]byte, 128)
	for {
		var n, controlLen int
		var from unix.Sockaddr
		var failed error
		err := conn.Read(func(fd uintptr) bool {
			n, controlLen, _, from, failed = unix.Recvmsg(int(fd), buffer, control, 0)
			return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
		})
		if err != nil {
			return // closed
		}
		if failed != nil {
			continue // the link went down or up: frames come again when it is up
		}
		frame, ok := Decode(buffer[:n])
		if !ok {
			continue
		}
		frame.Time = stamp(control[:controlLen])
		if link, ok := from.(*unix.SockaddrLinklayer); ok {
			frame.Outgoing = link.Pkttype == unix.PACKET_OUTGOING
		}
		r.add(frame)
	}
}

// stamp finds the kernel's time among the control messages.
func stamp(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, message := range messages {
		if message.Header.Type == unix.SCM_TIMESTAMPNS && len(message.Data) >= 16 {
			seconds := binary.NativeEndian.Uint64(message.Data[0:8])
			return time.Unix(int64(seconds), int64(binary.NativeEndian.Uint64(message.Data[8:16]))) //nolint:gosec // a struct timespec
		}
	}
	return time.Now()
}

func (r *Recorder) add(frame Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.frames) == keep {
		r.frames = append(r.frames[:0], r.frames[keep/2:]...)
	}
	r.frames = append(r.frames, frame)
	close(r.fresh)
	r.fresh = make(chan struct{})
}

// Since answers the frames recorded at a moment or after it, in the order they came.
func (r *Recorder) Since(at time.Time) []Frame {
	frames, _ := r.since(at)
	return frames
}

func (r *Recorder) since(at time.Time) ([]Frame, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Frame
	for _, frame := range r.frames {
		if !frame.Time.Before(at) {
			found = append(found, frame)
		}
	}
	return found, r.fresh
}

// Close ends recording; what was recorded stays.
func (r *Recorder) Close() error {
	err := r.socket.Close()
	<-r.done
	return err
}

// Question is who has Target, asked by the host with that address (of the same family) and MAC.
type Question struct {
	Target, Source netip.Addr
	MAC            net.HardwareAddr
}

// Probe sends a question over the recorded link and answers the MACs that claim the target within wait, each once, in
// the order of their first answers.
func (r *Recorder) Probe(ask Question, wait time.Duration) ([]string, error) {
	begin := time.Now()
	if err := r.send(Ask(ask.Target, ask.Source, ask.MAC)); err != nil {
		return nil, fmt.Errorf("ask who has %s: %w", ask.Target, err)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		frames, fresh := r.since(begin)
		select {
		case <-fresh:
		case <-timer.C:
			return answers(frames, ask.Target), nil
		}
	}
}

// answers picks the MACs that claim an address in answer to a question.
func answers(frames []Frame, target netip.Addr) []string {
	var macs []string
	seen := map[string]bool{}
	for _, f := range frames {
		if f.Outgoing || f.Subject() != target || f.Op != Reply && f.Op != Advertisement || f.Gratuitous() {
			continue
		}
		mac := f.SenderMAC
		if mac == nil {
			mac = f.Source // an advertisement may leave its option out (RFC 4861 section 4.4)
		}
		if text := mac.String(); !seen[text] {
			seen[text] = true
			macs = append(macs, text)
		}
	}
	return macs
}

// send puts one frame on the link, through a socket of its own: the recorder's reader is not disturbed.
func (r *Recorder) send(frame []byte) error {
	return r.space.Do(func() error {
		device, err := net.InterfaceByName(r.link)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: device.Index})
	})
}
