package ipam_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
)

// TestColdStart begins with statuses as bad as they come: two Services on one address, addresses that are not from Berth,
// too many of them, of the wrong family. Whatever the order, every start ends the same (P18), nobody shares an address
// afterwards (P3), and the next start writes nothing (P6).
func TestColdStart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.editPools()
		w.editNodes()
		services := drawStatuses(w)
		first, second := w.startWith(services, nil), w.startWith(services, nil)
		if diff := cmp.Diff(first.status(), second.status()); diff != "" {
			t.Fatalf("P18: two orders end differently:\n%s", diff)
		}
		owners := map[string][]*cluster.Service{}
		for name, s := range first.services {
			if decision := first.Decide(s); decision.Verdict == ipam.Foreign || !s.Ours || len(w.picture.Pools) == 0 {
				continue
			}
			for _, address := range s.Recorded.Addresses {
				for _, other := range owners[address.String()] {
					if !together(s, other) {
						t.Fatalf("P3: %s is %s's and %s's", address, other.Name, name)
					}
				}
				owners[address.String()] = append(owners[address.String()], s)
			}
		}
		var after []*cluster.Service
		for _, s := range first.services {
			after = append(after, s)
		}
		slices.SortFunc(after, age)
		if third := w.startWith(after, cooling(w, first.Ledger)); len(third.writes) > 0 {
			t.Fatalf("P6: the next start wrote the lists of %v\n%+v\n%+v", third.writes, first.status(), third.status())
		}
	})
}

// drawStatuses makes Services with random statuses.
func drawStatuses(w *world) []*cluster.Service {
	var services []*cluster.Service
	for i := range rapid.IntRange(1, 6).Draw(w.t, "Services") {
		s := &cluster.Service{
			Name: cluster.Name{Namespace: "shop", Name: fmt.Sprintf("s%d", i)}, UID: fmt.Sprint(i),
			Created: epoch().Add(time.Duration(rapid.IntRange(0, 2).Draw(w.t, "age")) * time.Second),
		}
		w.drawWish(s)
		r := &s.Recorded
		for _, family := range rapid.SampledFrom([][]int{{}, {4}, {4}, {6}, {4, 6}, {4, 4}, {6, 4, 4}}).Draw(w.t, "status") {
			address := drawAddress(w.t, family)
			if !slices.Contains(r.Addresses, address) {
				r.Addresses = append(r.Addresses, address)
			}
		}
		if r.ByUs = rapid.Bool().Draw(w.t, "record"); r.ByUs {
			r.Since = epoch().Add(time.Duration(rapid.IntRange(0, 3).Draw(w.t, "since")) * time.Second)
			r.Named = r.Addresses
			if rapid.IntRange(0, 4).Draw(w.t, "overwritten") == 4 {
				r.Named = append(slices.Clone(r.Named[:0:0]), drawAddress(w.t, 4))
			}
			for range r.Named {
				r.Pools = append(r.Pools, rapid.SampledFrom([]string{"p1", "p2", "gone"}).Draw(w.t, "recorded pool"))
			}
		}
		services = append(services, s)
	}
	return services
}

// startWith is a controller's start with everything delivered in a random order.
func (w *world) startWith(services []*cluster.Service, cooling []ipam.Cooling) *bench {
	b := &bench{Ledger: ipam.NewLedger(), picture: w.picture, services: map[cluster.Name]*cluster.Service{}}
	b.Tick(epoch())
	b.SetCluster(b.picture)
	b.AdoptCooling(cooling)
	b.start(rapid.Permutation(services).Draw(w.t, "order")...)
	return b
}
