package cluster

import (
	"net/netip"
	"time"

	"github.com/berthlb/berth/internal/reason"
)

// Node is a Node of the cluster.
type Node struct {
	Name      string
	Labels    map[string]string
	Addresses []netip.Addr   // every address in its status
	PodCIDRs  []netip.Prefix // of its pods

	// Ready is the node's Ready condition; a missing one counts as not ready. ReadySince is when it last changed, on
	// the API server's clock; zero if unknown: a change counts only when it has stood (rule E2).
	Ready      bool
	ReadySince time.Time
	// NetworkUnavailable is true while the node's network is not set up (rule E1).
	NetworkUnavailable bool
	// Leaving says why the node is leaving; nil if it is not (rule E6).
	Leaving *reason.Reason
}

// Member is what a node's speaker says of itself in gossip: everything the election uses that is not an API object
// (rule E8).
type Member struct {
	Node string
	// ProxyReady is true if kube-proxy has served on the node since it booted (rule P21).
	ProxyReady bool
	// Stale is true if the speaker has not heard from the API server for 30 s (rule E9).
	Stale bool
	// Unsure is true if the speaker cannot say that the API server answers: it has not heard for a while that is too short
	// to be stale, or hears again only since a while. While all are unsure nobody's staleness counts (rule E9).
	Unsure bool
	// Restarting is true if the speaker has stopped to come back (rule E5).
	Restarting bool
	// Settled is true if no failbackDelay holds the node back: it was there first, or has been back for longer than any
	// delay can be. Else Outlived is the longest delay in use that it has been back for (rule E8).
	Settled  bool
	Outlived time.Duration
	// Links are the node's links that are up and can carry announcements, sorted by name.
	Links []Link
	// Gateways are the next hops of the node's default routes, sorted.
	Gateways []netip.Addr
	// Versions of the election the speaker can compute (rule E11).
	Versions []int
}

// Link is a link of a node that can carry announcements.
type Link struct {
	Name    string
	Index   int
	MAC     [6]byte
	Subnets []netip.Prefix // the masked prefixes of its addresses
	// Addresses are its own IPv4 addresses, sorted: other speakers ask the node's kernel for them (rule E4).
	Addresses []netip.Addr
	IPv4      bool // has an IPv4 address
	// LinkLocal is the IPv6 address that neighbour discovery is answered from; not valid if the link has none that can be
	// used, because IPv6 is off or another host on the link has the same (rule L1).
	LinkLocal netip.Addr
}

// Facts are what one speaker knows that is no API object: who is alive, and what each says of itself.
type Facts struct {
	// Self is the speaker's own node; empty for the controller, which announces nothing.
	Self string
	// Members are the live speakers by node name, Self included.
	Members map[string]*Member
	// Down are nodes that have a speaker which is not alive. The node itself may be dead, or only its speaker.
	Down map[string]bool
	// Epoch grows with every change of members and links that may make an announcement necessary again (rule P4).
	Epoch uint64
}
