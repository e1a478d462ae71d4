package ipam_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
)

// TestRandomRivals has other programs write lists of addresses beside our record, empty them, and take records away, where
// TestRandomHistories has the API server and ourselves for writers. Each answer is written at once. After each step no two
// Services have one address that we gave, asking again gives the same, and so does a cold start (rules P3, P6, P16, P18).
func TestRandomRivals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(drawPools(t)...)
		age := 0
		pick := func() *cluster.Service {
			names := slices.SortedFunc(keys(b.services), cluster.Name.Compare)
			if len(names) == 0 {
				t.Skip("no Service")
			}
			return b.services[rapid.SampledFrom(names).Draw(t, "service")]
		}
		// rival writes a status: the Service is seen with it.
		rival := func(edit func(*cluster.Record)) {
			changed := *pick()
			edit(&changed.Recorded)
			b.services[changed.Name] = &changed
			b.drain([]cluster.Name{changed.Name})
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(*rapid.T) {
				age++
				s := service(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), age, in(rapid.SampledFrom([]string{"shop", "blog"}).Draw(t, "namespace")))
				if before := b.services[s.Name]; before != nil {
					s.UID, s.Created, s.Recorded = before.UID, before.Created, before.Recorded
				} else {
					s.UID = fmt.Sprint(s.Name, age)
				}
				drawNeeds(t, s)
				b.services[s.Name] = s
				b.drain([]cluster.Name{s.Name})
			},
			"remove": func(*rapid.T) {
				name := pick().Name
				delete(b.services, name)
				b.drain(b.Release(name))
			},
			"set pools": func(*rapid.T) { b.setPools(drawPools(t)...) },
			"overwrite": func(*rapid.T) {
				rival(func(r *cluster.Record) {
					r.Addresses = []netip.Addr{drawAddress(t, rapid.SampledFrom([]int{4, 6}).Draw(t, "family"))}
				})
			},
			"empty": func(*rapid.T) { rival(func(r *cluster.Record) { r.Addresses = nil }) },
			"add": func(*rapid.T) {
				rival(func(r *cluster.Record) {
					if one := drawAddress(t, 4); !slices.Contains(r.Addresses, one) {
						r.Addresses = append(slices.Clone(r.Addresses), one)
					}
				})
			},
			"forget": func(*rapid.T) { rival(func(r *cluster.Record) { *r = cluster.Record{Addresses: r.Addresses} }) },
			"set nodes": func(*rapid.T) {
				b.setCluster(func(c *ipam.Cluster) {
					c.Nodes, c.Reservations = nil, nil
					if rapid.Bool().Draw(t, "node") {
						c.Nodes = []*cluster.Node{{Name: "n1", Addresses: []netip.Addr{drawAddress(t, 4)}}}
					}
					if rapid.Bool().Draw(t, "reserves") {
						one := drawAddress(t, 4)
						c.Reservations = []*cluster.Reservation{{
							Name: "r", UID: "r", Service: cluster.Name{Namespace: "shop", Name: "a"}, Ranges: []netipx.IPRange{netipx.IPRangeFrom(one, one)},
						}}
					}
				})
			},
			"": func(*rapid.T) { atRest(t, b) },
		})
	})
}

func keys(services map[cluster.Name]*cluster.Service) func(func(cluster.Name) bool) {
	return func(yield func(cluster.Name) bool) {
		for name := range services {
			if !yield(name) {
				return
			}
		}
	}
}

// drawNeeds gives a Service families, a request and a sharing key.
func drawNeeds(t *rapid.T, s *cluster.Service) {
	s.FamilyPolicy = rapid.SampledFrom([]cluster.FamilyPolicy{cluster.SingleStack, cluster.PreferDualStack, cluster.RequireDualStack}).Draw(t, "policy")
	if s.FamilyPolicy != cluster.SingleStack {
		s.Families = []cluster.Family{cluster.IPv4, cluster.IPv6}
	}
	if rapid.IntRange(0, 3).Draw(t, "asks") == 0 {
		s.Request = []netip.Addr{drawAddress(t, 4)}
	}
	s.SharingKey = rapid.SampledFrom([]string{"", "", "k"}).Draw(t, "key")
	s.Ports = []cluster.Port{{Protocol: "TCP", Number: rapid.Uint16Range(80, 82).Draw(t, "port")}}
	s.Renumber = rapid.SampledFrom([]string{"", "", "1"}).Draw(t, "renumber")
}

// drawPools draws up to two pools of few addresses.
func drawPools(t *rapid.T) []*cluster.Pool {
	var pools []*cluster.Pool
	for _, name := range []string{"p1", "p2"} {
		if rapid.IntRange(0, 4).Draw(t, "has "+name) == 0 {
			continue
		}
		texts := []string{drawAddress(t, 4).String(), drawAddress(t, 4).String(), drawAddress(t, 6).String()}
		p := pool(name, texts...)
		p.Namespaces = rapid.SampledFrom([][]string{nil, {"shop"}, {"blog"}}).Draw(t, "for")
		p.Sharing = rapid.SampledFrom([]cluster.Sharing{cluster.SameNamespace, cluster.AcrossNamespaces, cluster.Never}).Draw(t, "sharing")
		p.QuotaPerNamespace = int64(rapid.IntRange(0, 2).Draw(t, "quota"))
		p.AutoAssign = rapid.IntRange(0, 4).Draw(t, "auto") > 0
		pools = append(pools, p)
	}
	return pools
}

// atRest looks at what must hold when everything is written.
func atRest(t *rapid.T, b *bench) {
	names := slices.SortedFunc(keys(b.services), cluster.Name.Compare)
	var all []*cluster.Service
	for _, name := range names {
		s := b.services[name]
		all = append(all, s)
		decision := b.Decide(s)
		if !stored(s, decision) {
			t.Fatalf("P16: %s is at rest with %+v and would be given %+v", name, s.Recorded, decision)
		}
		if decision.Verdict != ipam.Set {
			continue
		}
		for _, other := range all[:len(all)-1] {
			for _, address := range decision.Addresses {
				if slices.Contains(other.Recorded.Addresses, address) && !together(s, other) && b.Decide(other).Verdict == ipam.Set {
					t.Fatalf("P3: %s is %s's and %s's", address, name, other.Name)
				}
			}
		}
	}
	cold := &bench{Ledger: ipam.NewLedger(), picture: b.picture, services: map[cluster.Name]*cluster.Service{}}
	cold.SetCluster(cold.picture)
	cold.start(rapid.Permutation(all).Draw(t, "order of the list")...)
	for _, s := range all {
		if now := cold.services[s.Name]; !slices.Equal(now.Recorded.Addresses, s.Recorded.Addresses) {
			t.Fatalf("P6: a restart changes %s from %+v to %+v", s.Name, s.Recorded, now.Recorded)
		}
	}
}
