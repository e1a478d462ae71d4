package gossip

import (
	"fmt"
	"net"
	"net/netip"
)

// mac is an Ethernet address that is text in JSON.
type mac [6]byte

// MarshalText gives the usual form, with colons.
func (m mac) MarshalText() ([]byte, error) { return []byte(net.HardwareAddr(m[:]).String()), nil }

// UnmarshalText reads it.
func (m *mac) UnmarshalText(text []byte) error {
	parsed, err := net.ParseMAC(string(text))
	if err != nil {
		return fmt.Errorf("read hardware address: %w", err)
	}
	if len(parsed) != len(m) {
		return fmt.Errorf("read hardware address %s: not Ethernet", parsed)
	}
	*m = mac(parsed)
	return nil
}

// prefix is a subnet that is text in JSON; it is masked, and of one family only.
type prefix struct{ netip.Prefix }

// UnmarshalText reads it.
func (p *prefix) UnmarshalText(text []byte) error {
	parsed, err := netip.ParsePrefix(string(text))
	if err != nil {
		return fmt.Errorf("read subnet: %w", err)
	}
	if parsed != parsed.Masked() || parsed.Addr().Is4In6() {
		return fmt.Errorf("read subnet %s: not canonical", parsed)
	}
	p.Prefix = parsed
	return nil
}

// gateway is the address of a router that is text in JSON.
type gateway struct{ netip.Addr }

// UnmarshalText reads it.
func (g *gateway) UnmarshalText(text []byte) error {
	parsed, err := netip.ParseAddr(string(text))
	if err != nil {
		return fmt.Errorf("read gateway: %w", err)
	}
	if parsed.Is4In6() || parsed.Zone() != "" {
		return fmt.Errorf("read gateway %s: not canonical", parsed)
	}
	g.Addr = parsed
	return nil
}
