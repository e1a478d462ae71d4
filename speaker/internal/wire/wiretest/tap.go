package wiretest

import (
	"net/netip"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
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
type Tap struct{ *tapOf[Frame] }

// Tap opens a tap on a link. It keeps up to 10,000 frames nobody has asked for yet.
func (n *Namespace) Tap(link string) *Tap {
	n.t.Helper()
	return &Tap{openTap(n, link, unix.ETH_P_ARP, decodeARP)}
}

// decodeARP reads a frame.
func decodeARP(raw []byte) (seen Frame, ok bool) {
	var frame ethernet.Frame
	var message arp.Packet
	if frame.UnmarshalBinary(raw) != nil || message.UnmarshalBinary(frame.Payload) != nil {
		return Frame{}, false
	}
	return Frame{
		From: [6]byte(frame.Source), To: [6]byte(frame.Destination), Operation: message.Operation,
		SenderMAC: [6]byte(message.SenderHardwareAddr), SenderIP: message.SenderIP,
		TargetMAC: [6]byte(message.TargetHardwareAddr), TargetIP: message.TargetIP, At: time.Now(),
	}, true
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
	t.Raw(bytes)
}

// Broadcast is the Ethernet address of everybody.
func Broadcast() [6]byte { return [6]byte(ethernet.Broadcast) }
