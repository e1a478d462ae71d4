package kubelet

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestPoolNeverGivesAnAddressTwice compares with a set of what is held.
func TestPoolNeverGivesAnAddressTwice(t *testing.T) {
	t.Parallel()
	ranges := []netip.Prefix{netip.MustParsePrefix("10.245.1.0/24"), netip.MustParsePrefix("fd00:245:0:1::/64")}
	rapid.Check(t, func(t *rapid.T) {
		pool, held := newPool(ranges), map[netip.Addr]int{}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "give back") {
				addr := rapid.SampledFrom(keys(held)).Draw(t, "which")
				pool.giveBack(held[addr])
				delete(held, addr)
				continue
			}
			offset, addrs, err := pool.take()
			if err != nil {
				if len(held) != lastOffset-firstOffset+1 {
					t.Fatalf("%d addresses are held: %v", len(held), err)
				}
				continue
			}
			if _, twice := held[addrs[0]]; twice || !ranges[0].Contains(addrs[0]) || !ranges[1].Contains(addrs[1]) {
				t.Fatalf("got %v while %v are held", addrs, held)
			}
			held[addrs[0]] = offset
		}
	})
}

func keys(m map[netip.Addr]int) []netip.Addr {
	all := make([]netip.Addr, 0, len(m))
	for i := firstOffset; i <= lastOffset; i++ {
		if addr := plus(netip.MustParseAddr("10.245.1.0"), i); m[addr] != 0 {
			all = append(all, addr)
		}
	}
	return all
}
