package kubelet

import (
	"fmt"
	"net/netip"
	"sync"
)

// pool hands out the addresses of a node's pods, the same offset into each range. It goes once through all offsets
// before it gives one a second time, so that nothing which still remembers an old pod meets a new one.
type pool struct {
	ranges []netip.Prefix

	mu   sync.Mutex // guards all below
	last int
	used map[int]bool
}

// The first two addresses of a range are left to gateways, the last one to IPv4's broadcast.
const firstOffset, lastOffset = 2, 254

func newPool(ranges []netip.Prefix) *pool {
	return &pool{ranges: ranges, last: firstOffset - 1, used: map[int]bool{}}
}

// take answers the offset taken and its address in each range.
func (p *pool) take() (int, []netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range lastOffset - firstOffset + 1 {
		p.last++
		if p.last > lastOffset {
			p.last = firstOffset
		}
		if p.used[p.last] {
			continue
		}
		p.used[p.last] = true
		var addrs []netip.Addr
		for _, prefix := range p.ranges {
			addrs = append(addrs, plus(prefix.Addr(), p.last))
		}
		return p.last, addrs, nil
	}
	return 0, nil, fmt.Errorf("take a pod address: all %d of %v are used", len(p.used), p.ranges)
}

func (p *pool) giveBack(offset int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, offset)
}

// plus adds an offset under 256 to the network address of a range of 24 bits or more room.
func plus(addr netip.Addr, offset int) netip.Addr {
	bytes := addr.AsSlice()
	bytes[len(bytes)-1] += byte(offset) //nolint:gosec // under 256 by the pool's bounds
	sum, _ := netip.AddrFromSlice(bytes)
	return sum
}
