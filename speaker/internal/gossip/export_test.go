package gossip

import (
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Through has all traffic pass a link that can be cut.
func (o *Options) Through(cut *Cut) {
	o.transport = func(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		t := &cutTransport{NodeAwareTransport: inner, cut: cut, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn)}
		t.end = make(chan struct{})
		go t.passPackets()
		go t.passStreams()
		return t
	}
}

// PaceBy has two paces that differ in name only: the second for more than so many speakers.
func (o *Options) PaceBy(limit int) {
	o.paceOf = func(_ pace, speakers int) pace {
		p := paceOf(pace{}, 0)
		if speakers > limit {
			p.timeout--
		}
		return p
	}
}

// Patient has memberlist itself find nobody dead for a minute.
func (o *Options) Patient() {
	o.paceOf = func(pace, int) pace {
		return pace{probe: 20 * time.Second, timeout: 10 * time.Second, gossip: 50 * time.Millisecond}
	}
}

// Cut is a link that can be cut: then packets are lost, and connections hang until they time out, as when a cable is
// drawn.
type Cut struct{ cut atomic.Bool }

// Set cuts the link, or mends it.
func (c *Cut) Set(cut bool) { c.cut.Store(cut) }

// cutTransport is a transport over such a link.
type cutTransport struct {
	memberlist.NodeAwareTransport
	cut     *Cut
	packets chan *memberlist.Packet
	streams chan net.Conn
	end     chan struct{}
}

func (t *cutTransport) passPackets() {
	for {
		select {
		case packet := <-t.NodeAwareTransport.PacketCh():
			if t.cut.cut.Load() {
				continue
			}
			select {
			case t.packets <- packet:
			case <-t.end:
				return
			}
		case <-t.end:
			return
		}
	}
}

func (t *cutTransport) passStreams() {
	for {
		select {
		case stream := <-t.NodeAwareTransport.StreamCh():
			if t.cut.cut.Load() {
				_ = stream.Close()
				continue
			}
			select {
			case t.streams <- cutConn{stream, t.cut}:
			case <-t.end:
				_ = stream.Close()
				return
			}
		case <-t.end:
			return
		}
	}
}

// PacketCh gives the packets that came through.
func (t *cutTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh gives the connections that came through.
func (t *cutTransport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo sends a packet.
func (t *cutTransport) WriteTo(packet []byte, to string) (time.Time, error) {
	if t.cut.cut.Load() {
		return time.Now(), nil
	}
	return t.NodeAwareTransport.WriteTo(packet, to)
}

// WriteToAddress sends a packet.
func (t *cutTransport) WriteToAddress(packet []byte, to memberlist.Address) (time.Time, error) {
	if t.cut.cut.Load() {
		return time.Now(), nil
	}
	return t.NodeAwareTransport.WriteToAddress(packet, to)
}

// DialTimeout connects.
func (t *cutTransport) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	if t.lost(timeout) {
		return nil, os.ErrDeadlineExceeded
	}
	return t.through(t.NodeAwareTransport.DialTimeout(to, timeout))
}

// through has a connection pass the link.
func (t *cutTransport) through(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return cutConn{conn, t.cut}, nil
}

// cutConn is a connection over such a link.
type cutConn struct {
	net.Conn

	cut *Cut
}

// Write sends nothing once the link is cut.
func (c cutConn) Write(bytes []byte) (int, error) {
	if c.cut.cut.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(bytes)
}

// DialAddressTimeout connects.
func (t *cutTransport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if t.lost(timeout) {
		return nil, os.ErrDeadlineExceeded
	}
	return t.through(t.NodeAwareTransport.DialAddressTimeout(to, timeout))
}

// lost waits for the timeout of a connection over a cut link.
func (t *cutTransport) lost(timeout time.Duration) bool {
	if !t.cut.cut.Load() {
		return false
	}
	select {
	case <-time.After(timeout):
	case <-t.end:
	}
	return true
}

// Shutdown ends it: the inner one first, which waits until what it has received is taken.
func (t *cutTransport) Shutdown() error {
	defer close(t.end)
	return t.NodeAwareTransport.Shutdown()
}
