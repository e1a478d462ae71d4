package wire

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"
)

// groupsPerSocket is how many groups one socket is in. The kernel keeps them in memory meant for socket options, 56 bytes
// each, of which older ones gave a socket 20 KiB (net.core.optmem_max): a socket that has used it up cannot even send.
const groupsPerSocket = 200

// groups keeps a link in multicast groups: its card then takes their frames in, and switches that look which groups a
// port is in are told (MLD, RFC 3810). The kernel ends a membership with its socket, so nothing stays behind.
//
// Sockets that are in groups do nothing else. It is not safe for concurrent use.
type groups struct {
	link    int // index
	sockets []*groupSocket
}

// groupSocket is in groups.
type groupSocket struct {
	fd     int
	joined map[netip.Addr]struct{}
}

// groupsOf are the solicited-node groups in which these addresses are asked for, each once: addresses whose last 24 bits
// are the same share one, and it is needed as long as one of them is.
func groupsOf(addresses []netip.Addr) map[netip.Addr]struct{} {
	wanted := make(map[netip.Addr]struct{}, len(addresses))
	for _, address := range addresses {
		if group, err := ndp.SolicitedNodeMulticast(address); err == nil { // the only error: it is no IPv6 address
			wanted[group] = struct{}{}
		}
	}
	return wanted
}

// join joins those groups that the link is not in yet.
func (g *groups) join(wanted map[netip.Addr]struct{}) error {
	for group := range wanted {
		if g.has(group) {
			continue
		}
		if err := g.add(group); err != nil {
			return fmt.Errorf("join %s: %w", group, err)
		}
	}
	return nil
}

func (g *groups) has(group netip.Addr) bool {
	for _, s := range g.sockets {
		if _, joined := s.joined[group]; joined {
			return true
		}
	}
	return false
}

// add joins a group by a socket that has room, or by a new one.
func (g *groups) add(group netip.Addr) error {
	for _, s := range g.sockets {
		if len(s.joined) < groupsPerSocket {
			return s.change(unix.IPV6_JOIN_GROUP, g.link, group)
		}
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // it is never bound: no port is taken
	if err != nil {
		return fmt.Errorf("open a socket for groups: %w", err)
	}
	s := &groupSocket{fd: fd, joined: map[netip.Addr]struct{}{}}
	g.sockets = append(g.sockets, s)
	return s.change(unix.IPV6_JOIN_GROUP, g.link, group)
}

// change joins or leaves a group.
func (s *groupSocket) change(option, link int, group netip.Addr) error {
	request := &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(link)} //nolint:gosec // indexes are small and positive
	err := unix.SetsockoptIPv6Mreq(s.fd, unix.IPPROTO_IPV6, option, request)
	switch {
	case option == unix.IPV6_LEAVE_GROUP:
		delete(s.joined, group) // also if that failed: the link has forgotten it
	case err == nil || errors.Is(err, unix.EADDRINUSE):
		s.joined[group] = struct{}{}
		return nil
	}
	return err //nolint:wrapcheck // join says what was asked; nobody asks about leaving
}

// leaveOthers leaves the groups that are not wanted, and closes sockets that are in none any more.
func (g *groups) leaveOthers(wanted map[netip.Addr]struct{}) {
	var used []*groupSocket
	for _, s := range g.sockets {
		for group := range s.joined {
			if _, still := wanted[group]; !still {
				_ = s.change(unix.IPV6_LEAVE_GROUP, g.link, group) // where the link is gone so is the membership
			}
		}
		if len(s.joined) > 0 {
			used = append(used, s)
		} else {
			_ = unix.Close(s.fd) // it has nothing to lose
		}
	}
	g.sockets = used
}

// close leaves all groups.
func (g *groups) close() { g.leaveOthers(nil) }
