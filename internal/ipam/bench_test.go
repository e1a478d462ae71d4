package ipam_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
)

// BenchmarkDecideHold measures one decision with its Hold, for pools of all sizes and up to a million held addresses.
// The figure is to stay flat and under 5 µs.
func BenchmarkDecideHold(b *testing.B) {
	for _, c := range []struct {
		pool string
		held int
	}{
		{"192.0.2.0/30", 2},
		{"192.0.2.0/24", 10},
		{"10.0.0.0/8", 10},
		{"10.0.0.0/8", 1_000},
		{"10.0.0.0/8", 100_000},
		{"10.0.0.0/8", 1_000_000},
		{"2001:db8::/64", 10},
		{"2001:db8::/64", 100_000},
		{"2001:db8::/64", 1_000_000},
	} {
		b.Run(fmt.Sprintf("pool=%s/held=%d", c.pool, c.held), func(b *testing.B) {
			benchmarkDecideHold(b, netip.MustParsePrefix(c.pool), c.held)
		})
	}
}

func benchmarkDecideHold(b *testing.B, prefix netip.Prefix, count int) {
	ledger := ipam.NewLedger()
	ledger.SetCluster(ipam.Cluster{Pools: []*cluster.Pool{{
		Name: "public", AutoAssign: true, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(prefix)},
	}}})
	family := cluster.FamilyOf(prefix.Addr())
	for i := range count {
		place(b, ledger, benchService(i, family))
	}
	// Every third address is given back, so that the free ones are scattered over a third of a million intervals.
	for i := 0; i < count; i += 3 {
		ledger.Release(benchService(i, family).Name)
	}
	fresh := make([]*cluster.Service, batch(prefix))
	for i := range fresh {
		fresh[i] = benchService(count+i, family)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		service := fresh[i%len(fresh)]
		decision := ledger.Decide(service)
		ledger.Hold(service, decision)
		if decision.Pending() {
			b.Fatal(decision.Reason)
		}
		if i%len(fresh) == len(fresh)-1 { // make room for the next batch
			b.StopTimer()
			for _, service := range fresh {
				ledger.Release(service.Name)
			}
			b.StartTimer()
		}
	}
}

// batch is how many Services are decided about before they are released again: stopping the clock costs more than a
// decision, so it is done seldom.
func batch(prefix netip.Prefix) int {
	if prefix.Bits() == 30 {
		return 2
	}
	return 200
}

// place decides about a Service and has the answer written.
func place(tb testing.TB, ledger *ipam.Ledger, service *cluster.Service) ipam.Decision {
	tb.Helper()
	decision := ledger.Decide(service)
	ledger.Hold(service, decision)
	ledger.Settle(service.Name, ipam.Written)
	return decision
}

func benchService(i int, family cluster.Family) *cluster.Service {
	name := cluster.Name{Namespace: "shop", Name: fmt.Sprintf("s%07d", i)}
	return &cluster.Service{
		Name: name, UID: name.String(), Created: time.Unix(int64(i), 0), Ours: true, Families: []cluster.Family{family},
	}
}
