package gossip

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

// kind is the first byte of a message between speakers: what the rest is, and in which form. A form that older speakers
// could not read would be another kind.
type kind byte

const (
	// kindFacts carries what a node says of itself: one news.
	kindFacts kind = 'f'
	// kindWelcome carries the same from whoever has just seen the receiver join. The receiver had been away, in the eyes of
	// the sender at least, and may not have noticed.
	kindWelcome kind = 'w'
	// kindDown carries that a node is down, as whoever watches it has found: one news with Down (rule E4).
	kindDown kind = 'd'
	// kindBeat carries a heartbeat to whoever watches the sender: one beat.
	kindBeat kind = 'b'
	// kindState carries everything a speaker knows of all nodes: a list of news.
	kindState kind = 's'
)

// Limits of what is taken from another speaker, and so of what is said: far above what a real node has.
const (
	maxNews     = 32 << 10 // bytes of one news
	maxState    = 16 << 20 // bytes of a state
	maxNodes    = 10_000
	maxName     = 253 // of a Node (RFC 1123)
	maxLinkName = 15  // IFNAMSIZ without its end
	maxLinks    = 128
	maxSubnets  = 64
	maxGateways = 16
	maxVersions = 32
)

// news is what a node says of itself. The names of its fields are short because it travels often; unknown ones are
// ignored, so that a newer speaker may say more.
type news struct {
	Node string `json:"n"`
	// Version grows with every change: older news never replaces newer. It starts at the time the speaker started, in
	// nanoseconds since 1970, so that it also grows over a restart.
	Version    uint64 `json:"v"`
	ProxyReady bool   `json:"p,omitempty"`
	Stale      bool   `json:"s,omitempty"`
	Unsure     bool   `json:"u,omitempty"`
	Restarting bool   `json:"r,omitempty"`
	Settled    bool   `json:"d,omitempty"`
	Outlived   int64  `json:"o,omitempty"` // nanoseconds
	// Down is true if somebody has found the node down that had said this version last. It says nothing else then. The node
	// refutes it with a higher version.
	Down     bool       `json:"x,omitempty"`
	Links    []newsLink `json:"l,omitempty"`
	Gateways []gateway  `json:"g,omitempty"`
	Versions []int      `json:"e,omitempty"`
}

// newsLink is a link in a news.
type newsLink struct {
	Name    string   `json:"n"`
	Index   int      `json:"i"`
	MAC     mac      `json:"m"`
	Subnets []prefix `json:"s,omitempty"`
	IPv4    bool     `json:"4,omitempty"`
	// Addresses are those on the link that others may ask the node's kernel at.
	Addresses []netip.Addr `json:"a,omitempty"`
	// LinkLocal is not there if the link has none, or the speaker is of a version that does not answer for IPv6.
	LinkLocal netip.Addr `json:"6,omitzero"`
}

// beat is a heartbeat.
type beat struct {
	Node string `json:"n"`
	// Number grows with every beat, also over a restart.
	Number uint64 `json:"b"`
}

// newsOf is what a member says, cut to the limits.
func newsOf(member cluster.Member, version uint64) news {
	n := news{
		Node: member.Node, Version: version,
		ProxyReady: member.ProxyReady, Stale: member.Stale, Unsure: member.Unsure, Restarting: member.Restarting,
		Settled: member.Settled, Outlived: int64(member.Outlived),
		Versions: append([]int(nil), member.Versions[:min(len(member.Versions), maxVersions)]...),
	}
	for _, link := range member.Links[:min(len(member.Links), maxLinks)] {
		l := newsLink{Name: link.Name, Index: link.Index, MAC: link.MAC, IPv4: link.IPv4, LinkLocal: link.LinkLocal}
		for _, subnet := range link.Subnets[:min(len(link.Subnets), maxSubnets)] {
			l.Subnets = append(l.Subnets, prefix{subnet})
		}
		l.Addresses = append(l.Addresses, link.Addresses[:min(len(link.Addresses), maxSubnets)]...)
		n.Links = append(n.Links, l)
	}
	for _, address := range member.Gateways[:min(len(member.Gateways), maxGateways)] {
		n.Gateways = append(n.Gateways, gateway{address})
	}
	return n
}

// member is what the news says.
func (n *news) member() *cluster.Member {
	m := &cluster.Member{
		Node:       n.Node,
		ProxyReady: n.ProxyReady, Stale: n.Stale, Unsure: n.Unsure, Restarting: n.Restarting,
		Settled: n.Settled, Outlived: time.Duration(n.Outlived),
		Versions: append([]int(nil), n.Versions...),
	}
	for _, l := range n.Links {
		link := cluster.Link{Name: l.Name, Index: l.Index, MAC: l.MAC, IPv4: l.IPv4, LinkLocal: l.LinkLocal}
		for _, subnet := range l.Subnets {
			link.Subnets = append(link.Subnets, subnet.Prefix)
		}
		link.Addresses = append(link.Addresses, l.Addresses...)
		m.Links = append(m.Links, link)
	}
	for _, one := range n.Gateways {
		m.Gateways = append(m.Gateways, one.Addr)
	}
	return m
}

// check refuses news beyond the limits.
func (n *news) check() error {
	if n.Node == "" || len(n.Node) > maxName {
		return fmt.Errorf("a node's name of %d bytes", len(n.Node))
	}
	if len(n.Links) > maxLinks || len(n.Gateways) > maxGateways || len(n.Versions) > maxVersions {
		return fmt.Errorf("%d links, %d gateways and %d versions of node %s", len(n.Links), len(n.Gateways), len(n.Versions), n.Node)
	}
	for _, link := range n.Links {
		if len(link.Name) > maxLinkName || len(link.Subnets) > maxSubnets || len(link.Addresses) > maxSubnets {
			return fmt.Errorf("a link's name of %d bytes, with %d subnets and %d addresses, of node %s", len(link.Name), len(link.Subnets),
				len(link.Addresses), n.Node)
		}
	}
	return nil
}

// encode writes a message.
func encode(k kind, content any) []byte {
	text, err := json.Marshal(content)
	if err != nil {
		panic("gossip: encode own news: " + err.Error()) // numbers, names and addresses only: it cannot fail
	}
	return append([]byte{byte(k)}, text...)
}

// decodeNews reads the content of a message of kindFacts or kindWelcome.
func decodeNews(content []byte) (*news, error) {
	if len(content) > maxNews {
		return nil, fmt.Errorf("news of %d bytes", len(content))
	}
	n := &news{}
	if err := json.Unmarshal(content, n); err != nil {
		return nil, fmt.Errorf("read news: %w", err)
	}
	if err := n.check(); err != nil {
		return nil, fmt.Errorf("refuse news: %w", err)
	}
	return n, nil
}

// decodeBeat reads the content of a message of kindBeat.
func decodeBeat(content []byte) (beat, error) {
	var b beat
	if len(content) > maxNews {
		return b, fmt.Errorf("a heartbeat of %d bytes", len(content))
	}
	if err := json.Unmarshal(content, &b); err != nil {
		return b, fmt.Errorf("read heartbeat: %w", err)
	}
	return b, nil
}

// decodeState reads a state. One bad entry does not spoil the others (rule P20): what can be read is returned with an
// error about the rest.
func decodeState(message []byte) ([]*news, error) {
	if len(message) == 0 || kind(message[0]) != kindState {
		return nil, errors.New("not a state")
	}
	if len(message) > maxState {
		return nil, fmt.Errorf("a state of %d bytes", len(message))
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(message[1:], &raw); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	if len(raw) > maxNodes {
		return nil, fmt.Errorf("a state of %d nodes", len(raw))
	}
	var (
		all  []*news
		errs error
	)
	for _, content := range raw {
		n, err := decodeNews(content)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		all = append(all, n)
	}
	return all, errs
}
