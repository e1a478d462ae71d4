package gossip

import (
	"net/netip"

	"github.com/hashicorp/memberlist"
)

// delegate is what memberlist calls. It holds memberlist's locks meanwhile, so nothing here calls memberlist or waits.
type delegate struct {
	ring       *Ring
	generation int
}

// NotifyJoin takes in that a member lives, and has it welcomed: it may not know that it was held for dead.
func (d *delegate) NotifyJoin(node *memberlist.Node) {
	address, ok := netip.AddrFromSlice(node.Addr)
	if !ok || node.Name == d.ring.options.Node {
		return
	}
	d.ring.mu.Lock()
	d.ring.roster.join(node.Name, netip.AddrPortFrom(address.Unmap(), node.Port), d.generation)
	d.ring.mu.Unlock()
	d.ring.welcome(node.Name)
	d.ring.changed()
}

// NotifyLeave takes in that a member is dead or has left.
func (d *delegate) NotifyLeave(node *memberlist.Node) {
	d.ring.mu.Lock()
	d.ring.roster.leave(node.Name, d.generation)
	d.ring.mu.Unlock()
	d.ring.changed()
}

// NotifyUpdate is about node meta data, which is not used: it holds 512 bytes.
func (d *delegate) NotifyUpdate(*memberlist.Node) {}

// NodeMeta is empty, see NotifyUpdate.
func (d *delegate) NodeMeta(int) []byte { return nil }

// NotifyMsg takes in a message from another speaker.
func (d *delegate) NotifyMsg(message []byte) {
	if len(message) == 0 {
		return
	}
	switch k := kind(message[0]); k {
	case kindFacts, kindWelcome:
		n, err := decodeNews(message[1:])
		if err != nil {
			d.ring.log.V(1).Info("ignoring a message of another speaker", "error", err.Error())
			return
		}
		d.ring.hear([]*news{n}, k == kindWelcome)
		if k == kindWelcome {
			d.ring.answer(n.Node)
		}
	case kindDown:
		n, err := decodeNews(message[1:])
		if err != nil || !n.Down {
			d.ring.log.V(1).Info("ignoring a message that a speaker is down", "error", err)
			return
		}
		d.ring.hear([]*news{n}, false)
	case kindBeat:
		b, err := decodeBeat(message[1:])
		if err != nil {
			d.ring.log.V(1).Info("ignoring a heartbeat", "error", err.Error())
			return
		}
		d.ring.heardBeat(b)
	default:
		d.ring.log.V(1).Info("ignoring a message of a kind not known here", "kind", string(message[:1]))
	}
}

// GetBroadcasts gives what is to be gossiped.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.ring.queue.GetBroadcasts(overhead, limit)
}

// LocalState is everything known here, for another speaker.
func (d *delegate) LocalState(bool) []byte {
	d.ring.mu.Lock()
	state := d.ring.roster.state()
	d.ring.mu.Unlock()
	return encode(kindState, state)
}

// MergeRemoteState takes in everything another speaker knows. With that, this one is in touch.
func (d *delegate) MergeRemoteState(message []byte, _ bool) {
	all, err := decodeState(message)
	if err != nil {
		d.ring.log.V(1).Info("ignoring a part of another speaker's state", "error", err.Error())
	}
	d.ring.hear(all, false)
	d.ring.touched()
}
