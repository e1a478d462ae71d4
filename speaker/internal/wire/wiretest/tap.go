package wiretest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// Frame is an ARP frame as it was on the link.
type Frame struct {
	From, To  [6]byte // Ethernet source and destination
	Operation arp.Operation
	SenderMAC [6]byte
	SenderIP  netip.Addr
	TargetMAC [6]byte
	TargetIP  netip.Addr
	At        time.Time // when the tap read it
}

// Tap sees every ARP frame that comes in on a link, and sends others.
type Tap struct {
	t      testing.TB
	mac    [6]byte
	conn   *packet.Conn
	frames chan Frame
}

// Tap opens a tap on a link. It keeps up to 10,000 frames nobody has asked for yet.
func (n *Namespace) Tap(link string) *Tap {
	n.t.Helper()
	tap := &Tap{t: n.t, frames: make(chan Frame, 10_000)}
	n.Do(func() error {
		ifi, err := net.InterfaceByName(link)
		if err != nil {
			return fmt.Errorf("find link: %w", err)
		}
		tap.mac = [6]byte(ifi.HardwareAddr)
		if tap.conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_ARP, nil); err != nil {
			return fmt.Errorf("open a tap: %w", err)
		}
		return nil
	})
	n.running.Go(tap.read)
	n.t.Cleanup(tap.Close)
	return tap
}

// Close ends the tap; so does the end of the test.
func (t *Tap) Close() { _ = t.conn.Close() }

// MAC is the hardware address of the tap's own link.
func (t *Tap) MAC() [6]byte { return t.mac }

// read decodes frames until the tap is closed. A link that goes down gives an error once and is read on.
func (t *Tap) read() {
	buffer := make([]byte, 256)
	for {
		n, _, err := t.conn.ReadFrom(buffer)
		if isClosed(err) {
			return
		}
		var frame ethernet.Frame
		var message arp.Packet
		if err != nil || frame.UnmarshalBinary(buffer[:n]) != nil || message.UnmarshalBinary(frame.Payload) != nil {
			continue
		}
		seen := Frame{
			From: [6]byte(frame.Source), To: [6]byte(frame.Destination), Operation: message.Operation,
			SenderMAC: [6]byte(message.SenderHardwareAddr), SenderIP: message.SenderIP,
			TargetMAC: [6]byte(message.TargetHardwareAddr), TargetIP: message.TargetIP, At: time.Now(),
		}
		select {
		case t.frames <- seen:
		default:
			t.t.Error("the tap is full")
		}
	}
}

// Ask sends a broadcast request for an address, from one.
func (t *Tap) Ask(from, address netip.Addr) {
	t.t.Helper()
	t.Send(Frame{
		From: t.mac, To: Broadcast(), Operation: arp.OperationRequest,
		SenderMAC: t.mac, SenderIP: from, TargetIP: address,
	})
}

// Send sends a frame.
func (t *Tap) Send(f Frame) {
	t.t.Helper()
	message, err := arp.NewPacket(f.Operation, f.SenderMAC[:], f.SenderIP, f.TargetMAC[:], f.TargetIP)
	if err != nil {
		t.t.Fatal(err)
	}
	payload, err := message.MarshalBinary()
	if err != nil {
		t.t.Fatal(err)
	}
	frame := ethernet.Frame{Destination: f.To[:], Source: f.From[:], EtherType: ethernet.EtherTypeARP, Payload: payload}
	bytes, err := frame.MarshalBinary()
	if err != nil {
		t.t.Fatal(err)
	}
	if _, err := t.conn.WriteTo(bytes, &packet.Addr{HardwareAddr: f.To[:]}); err != nil {
		t.t.Fatalf("send an ARP frame: %v", err)
	}
}

// Next is the next frame; ok is false if none comes within that time.
func (t *Tap) Next(within time.Duration) (frame Frame, ok bool) {
	select {
	case frame = <-t.frames:
		return frame, true
	case <-time.After(within):
		return Frame{}, false
	}
}

// During are the frames seen from now until that time has passed.
func (t *Tap) During(span time.Duration) []Frame {
	var frames []Frame
	end := time.Now().Add(span)
	for {
		frame, ok := t.Next(time.Until(end))
		if !ok {
			return frames
		}
		frames = append(frames, frame)
	}
}

// Drain throws away what was seen so far.
func (t *Tap) Drain() {
	for {
		select {
		case <-t.frames:
		default:
			return
		}
	}
}

// Broadcast is the Ethernet address of everybody.
func Broadcast() [6]byte { return [6]byte(ethernet.Broadcast) }

// isClosed is true for the error of a socket that was closed.
func isClosed(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EBADF)
}
