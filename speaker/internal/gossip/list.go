package gossip

import (
	"errors"
	"fmt"
	"log" //nolint:depguard // memberlist takes no other; its lines go to logr (debugLog)
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/hashicorp/memberlist"
)

const (
	// retransmit times log(members) is how often a message is gossiped.
	retransmit = 4
	// streamTimeout is how long a connection to another speaker may take.
	streamTimeout = 2 * time.Second
	// pushPull is how often the whole state is exchanged with some member: what repairs a lost message.
	pushPull = 10 * time.Second
	// reclaim is after what time a dead member's name may come back from another address: a node made anew.
	reclaim = time.Second
	// packetSize is memberlist's limit for a datagram.
	packetSize = 1400
)

// open makes a memberlist. The one before, if there is one, is shut down already.
func (r *Ring) open(p pace, bind netip.AddrPort) error {
	r.mu.Lock()
	r.roster.generation++
	generation := r.roster.generation
	r.touch.limit = p.detection()
	r.mu.Unlock()
	config := r.config(p, bind, generation)
	transport, err := r.listen(bind, config.Logger)
	if err != nil {
		return err
	}
	config.Transport = transport
	config.BindPort = transport.GetAutoBindPort() // where bind has port 0
	config.AdvertisePort = config.BindPort
	if r.options.transport != nil {
		config.Transport = r.options.transport(transport)
	}
	list, err := memberlist.Create(config)
	if err != nil {
		return errors.Join(fmt.Errorf("start gossip on %s: %w", bind, err), transport.Shutdown())
	}
	r.listMu.Lock()
	defer r.listMu.Unlock()
	r.list, r.pace, r.address = list, p, netip.AddrPortFrom(bind.Addr(), list.LocalNode().Port)
	return nil
}

// listen opens the port. memberlist hands on the text of the kernel's error only.
func (r *Ring) listen(bind netip.AddrPort, logger *log.Logger) (*memberlist.NetTransport, error) {
	transport, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{bind.Addr().String()}, BindPort: int(bind.Port()), Logger: logger,
	})
	switch {
	case err == nil:
		return transport, nil
	case strings.Contains(err.Error(), syscall.EADDRINUSE.Error()):
		return nil, fmt.Errorf("start gossip: port %d of %s (tcp and udp) is in use by another program: end that, or set --gossip-port to another, "+
			"the same on all nodes: %w", bind.Port(), bind.Addr(), err)
	default:
		return nil, fmt.Errorf("start gossip on port %d of %s (tcp and udp, --gossip-port): %w", bind.Port(), bind.Addr(), err)
	}
}

// config is memberlist's configuration.
func (r *Ring) config(p pace, bind netip.AddrPort, generation int) *memberlist.Config {
	config := memberlist.DefaultLANConfig()
	config.Name = r.options.Node
	config.BindAddr, config.AdvertiseAddr = bind.Addr().String(), bind.Addr().String()
	config.BindPort, config.AdvertisePort = int(bind.Port()), int(bind.Port())
	p.apply(config)
	config.RetransmitMult = retransmit
	config.TCPTimeout = streamTimeout
	config.PushPullInterval = pushPull
	config.DeadNodeReclaimTime = reclaim
	config.UDPBufferSize = packetSize
	config.Label = r.options.Label
	config.Keyring = r.keyring
	config.GossipVerifyIncoming, config.GossipVerifyOutgoing = true, true
	config.Logger = log.New(debugLog{r.log}, "", 0)
	d := &delegate{ring: r, generation: generation}
	config.Delegate, config.Events = d, d
	return config
}

// debugLog writes memberlist's own lines, which tell of every lost probe, at debug level.
type debugLog struct{ log logr.Logger }

// Write takes one line.
func (d debugLog) Write(line []byte) (int, error) {
	d.log.V(1).Info("memberlist says", "line", strings.TrimSpace(string(line)))
	return len(line), nil
}
