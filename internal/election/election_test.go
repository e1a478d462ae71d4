package election_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/election"
)

// TestScoreIsByteExact pins version 1, with figures from another implementation of XXH64: two releases that differ here would elect two owners (rule E11).
func TestScoreIsByteExact(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		node    string
		address string
		want    uint64
	}{
		"IPv4": {reason: "an IPv4 address is hashed as its 16 mapped bytes", node: "n1", address: "192.0.2.10", want: 0xf11e34e9dad4d61},
		"IPv6": {reason: "an IPv6 address is hashed as it is", node: "n1", address: "2001:db8::10", want: 0x4cbb5087c48fa881},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := election.Score(election.Seed(c.node), election.KeyOf(netip.MustParseAddr(c.address)))
			if got != c.want {
				t.Errorf("%s: got %#x, want %#x", c.reason, got, c.want)
			}
		})
	}
}

// TestF77OnlyAddressesOfAChangedNodeMove: a node that joins takes addresses from others, but none moves between those.
func TestF77OnlyAddressesOfAChangedNodeMove(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`), 2, 12, rapid.ID[string]).Draw(t, "nodes")
		joining := nodes[0]
		address := netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, "last octet")})
		before := election.Winner(nodes[1:], address)
		after := election.Winner(nodes, address)
		if after != before && after != joining {
			t.Fatalf("%s moved from %s to %s when %s joined", address, before, after, joining)
		}
	})
}

// TestWinnerDoesNotDependOnOrder: speakers list their candidates in different orders and still agree (rule P1).
func TestWinnerDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,4}`), 1, 9, rapid.ID[string]).Draw(t, "nodes")
		address := netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(t, "third"), rapid.Byte().Draw(t, "fourth")})
		shuffled := rapid.Permutation(slices.Clone(nodes)).Draw(t, "another order")
		if a, b := election.Winner(nodes, address), election.Winner(shuffled, address); a != b {
			t.Fatalf("%v elects %s, %v elects %s", nodes, a, shuffled, b)
		}
	})
}

// TestF84AddressesSpreadEvenly: over 1,000 addresses the busiest of 7 nodes is within 20 % of the mean. Three addresses
// in a row may well fall on one node: that is chance, not a fault.
func TestF84AddressesSpreadEvenly(t *testing.T) {
	t.Parallel()
	var nodes []string
	for i := range 7 {
		nodes = append(nodes, fmt.Sprintf("node-%d", i+1))
	}
	share := map[string]int{}
	address := netip.MustParseAddr("198.51.100.0")
	for range 1000 {
		share[election.Winner(nodes, address)]++
		address = address.Next()
	}
	mean := 1000.0 / 7
	for _, node := range nodes {
		if n := float64(share[node]); n > 1.2*mean || n < 0.8*mean {
			t.Errorf("%s owns %.0f addresses of 1000, the mean is %.0f: %v", node, n, mean, share)
		}
	}
}
