package bench

import (
	"net/netip"
	"slices"
	"time"

	"github.com/berthlb/berth/e2e/lab/frames"
)

// firsts answers when the first gratuitous frame about each address came, of the frames that want accepts. An address
// that none was about is left out.
func firsts(list []frames.Frame, addresses []netip.Addr, want func(frames.Frame) bool) map[netip.Addr]time.Time {
	found := map[netip.Addr]time.Time{}
	wanted := map[netip.Addr]bool{}
	for _, address := range addresses {
		wanted[address] = true
	}
	for _, f := range list {
		subject := f.Subject()
		if f.Outgoing || !f.Gratuitous() || !wanted[subject] || !want(f) {
			continue
		}
		if first, known := found[subject]; !known || f.Time.Before(first) {
			found[subject] = f.Time
		}
	}
	return found
}

// span answers the first and the last of some times; there must be one at least.
func span(times map[netip.Addr]time.Time) (first, last time.Time) {
	for _, at := range times {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}

// busiest answers the host that owns most addresses (of equals the first by name) and those addresses, in order.
func busiest(owners map[netip.Addr]string) (host string, owned []netip.Addr) {
	by := map[string][]netip.Addr{}
	for address, name := range owners {
		by[name] = append(by[name], address)
	}
	for name, addresses := range by {
		if len(addresses) > len(owned) || len(addresses) == len(owned) && name < host {
			host, owned = name, addresses
		}
	}
	slices.SortFunc(owned, netip.Addr.Compare)
	return host, owned
}

// hosts counts the different owners.
func hosts(owners map[netip.Addr]string) int {
	names := map[string]bool{}
	for _, name := range owners {
		names[name] = true
	}
	return len(names)
}
