package watch_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/watch"
)

// on is a speaker with a link of that name in each network, where its address ends in the number.
func on(number int, networks ...string) *cluster.Member {
	member := &cluster.Member{Node: fmt.Sprint("n", number)}
	for i, network := range networks {
		prefix := netip.MustParsePrefix(network)
		address := prefix.Addr().As4()
		address[3] = byte(number)
		member.Links = append(member.Links, cluster.Link{
			Name: fmt.Sprint("eth", i), Index: i + 1, MAC: [6]byte{2, 0, 0, 0, byte(i), byte(number)},
			Subnets: []netip.Prefix{prefix}, Addresses: []netip.Addr{netip.AddrFrom4(address)},
		})
	}
	return member
}

// TestWatchers: two of those that share a link with a node, never itself, spread evenly; who is not concerned by a change
// of members keeps its watchers.
func TestWatchers(t *testing.T) {
	t.Parallel()
	members := map[string]*cluster.Member{}
	for i := 1; i <= 20; i++ {
		members[fmt.Sprint("n", i)] = on(i, "192.0.2.0/24")
	}
	members["n21"] = on(21, "198.51.100.0/24") // alone on its network
	before, load := map[string][]string{}, map[string]int{}
	for name := range members {
		got := watch.Watchers(name, members)
		before[name] = got
		if slices.Contains(got, name) || slices.Contains(got, "n21") {
			t.Errorf("%s is watched by %v", name, got)
		}
		if want := 2; name != "n21" && len(got) != want {
			t.Errorf("%s is watched by %v", name, got)
		}
		for _, watcher := range got {
			load[watcher]++
		}
	}
	for name, n := range load {
		if n > 7 {
			t.Errorf("%s watches %d nodes of 20", name, n)
		}
	}
	delete(members, "n7")
	for name, old := range before {
		if name != "n7" && !slices.Contains(old, "n7") && !slices.Equal(old, watch.Watchers(name, members)) {
			t.Errorf("%s has other watchers although theirs stayed", name)
		}
	}
}

// TestWatchersOverIPv6: links that have no IPv4 address are in one segment if they share an IPv6 subnet; that of link-local
// addresses is on every link.
func TestWatchersOverIPv6(t *testing.T) {
	t.Parallel()
	six := func(number int, subnets ...string) *cluster.Member {
		link := cluster.Link{Name: "eth0", Index: 1, LinkLocal: netip.MustParseAddr(fmt.Sprint("fe80::", number))}
		for _, subnet := range append(subnets, "fe80::/64") {
			link.Subnets = append(link.Subnets, netip.MustParsePrefix(subnet))
		}
		return &cluster.Member{Node: fmt.Sprint("n", number), Links: []cluster.Link{link}}
	}
	members := map[string]*cluster.Member{
		"n1": six(1, "2001:db8:1::/64"), "n2": six(2, "2001:db8:1::/64"), "n3": six(3, "2001:db8:2::/64"), "n4": six(4),
	}
	for name, want := range map[string][]string{"n1": {"n2"}, "n2": {"n1"}, "n3": {}, "n4": {}} {
		if got := watch.Watchers(name, members); !slices.Equal(got, want) {
			t.Errorf("%s is watched by %v, want %v", name, got, want)
		}
	}
}
