package wiretest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// tapOf is a tap of frames of one kind.
type tapOf[F any] struct {
	t      testing.TB
	mac    [6]byte
	conn   *packet.Conn
	decode func(raw []byte) (F, bool)
	frames chan F
}

// openTap opens a tap for an EtherType. Frames that decode does not know are left out.
func openTap[F any](n *Namespace, link string, protocol int, decode func(raw []byte) (F, bool)) *tapOf[F] {
	n.t.Helper()
	tap := &tapOf[F]{t: n.t, decode: decode, frames: make(chan F, 10_000)}
	n.Do(func() error {
		ifi, err := net.InterfaceByName(link)
		if err != nil {
			return fmt.Errorf("find link: %w", err)
		}
		tap.mac = [6]byte(ifi.HardwareAddr)
		if tap.conn, err = packet.Listen(ifi, packet.Raw, protocol, nil); err != nil {
			return fmt.Errorf("open a tap: %w", err)
		}
		return nil
	})
	n.running.Go(tap.read)
	n.t.Cleanup(tap.Close)
	return tap
}

// Close ends the tap; so does the end of the test.
func (t *tapOf[F]) Close() { _ = t.conn.Close() }

// MAC is the hardware address of the tap's own link.
func (t *tapOf[F]) MAC() [6]byte { return t.mac }

// read decodes frames until the tap is closed. A link that goes down gives an error once and is read on.
func (t *tapOf[F]) read() {
	buffer := make([]byte, 2048)
	for {
		n, _, err := t.conn.ReadFrom(buffer)
		if isClosed(err) {
			return
		}
		if err != nil {
			continue
		}
		seen, ok := t.decode(buffer[:n])
		if !ok {
			continue
		}
		select {
		case t.frames <- seen:
		default:
			t.t.Error("the tap is full")
		}
	}
}

// Raw sends a frame as it is, whatever it is.
func (t *tapOf[F]) Raw(frame []byte) {
	t.t.Helper()
	if _, err := t.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
		t.t.Fatalf("send a frame: %v", err)
	}
}

// Next is the next frame; ok is false if none comes within that time.
func (t *tapOf[F]) Next(within time.Duration) (frame F, ok bool) {
	select {
	case frame = <-t.frames:
		return frame, true
	case <-time.After(within):
		return frame, false
	}
}

// During are the frames seen from now until that time has passed.
func (t *tapOf[F]) During(span time.Duration) []F {
	var frames []F
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
func (t *tapOf[F]) Drain() {
	for {
		select {
		case <-t.frames:
		default:
			return
		}
	}
}

// isClosed is true for the error of a socket that was closed.
func isClosed(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EBADF)
}
