package watch

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/berthlb/berth/internal/cluster"
)

// BenchmarkTargets works out whom one of 100 nodes watches, each of which has four links of two networks and two more.
func BenchmarkTargets(b *testing.B) {
	members := map[string]*cluster.Member{}
	for i := range 100 {
		member := &cluster.Member{Node: fmt.Sprint("n", i)}
		for j, third := range []byte{1, 2, byte(100 + i), byte(200 + i%50)} {
			member.Links = append(member.Links, cluster.Link{
				Name: fmt.Sprint("eth", j), Index: j, MAC: [6]byte{2, 0, 0, 0, byte(j), byte(i)}, IPv4: true,
				Subnets:   []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, third, 0}), 24)},
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, third, byte(i + 1)})},
			})
		}
		members[member.Node] = member
	}
	for b.Loop() {
		if len(targets("n1", members)) > 10 {
			b.Fatal("one node watches more than ten")
		}
	}
}
