package ipam_test

import (
	"net/netip"
	"slices"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
)

// check looks at what must hold at every moment.
func (w *world) check() {
	w.noAddressTwice()
	w.countsAreExact()
}

// noAddressTwice is P3: no address is in two statuses, or on its way to one that another has, unless the two can share it.
// Where somebody changed one of them so that they cannot any more, one of the two has to be giving way.
func (w *world) noAddressTwice() {
	owners := map[netip.Addr][]cluster.Name{}
	for _, name := range w.names() {
		for address := range w.mayHave(name) {
			for _, other := range owners[address] {
				w.mayShare(address, name, other)
			}
			owners[address] = append(owners[address], name)
		}
	}
}

func (w *world) mayShare(address netip.Addr, a, b cluster.Name) {
	switch {
	case together(w.live[a].service, w.live[b].service), w.acted[a], w.acted[b]:
	case w.givesWay(a, address), w.givesWay(b, address):
	default:
		w.t.Fatalf("P3: %s is %s's and %s's", address, a, b)
	}
}

// givesWay is true if the Service has lost its right to the address and its status is about to follow.
func (w *world) givesWay(name cluster.Name, address netip.Addr) bool {
	return !w.twin.claims(name, address) && (w.due[name] || w.writes[name] != nil || len(w.open[name]) > 0)
}

// mayHave is every address that is in the Service's status or may yet get there.
func (w *world) mayHave(name cluster.Name) map[netip.Addr]bool {
	o := w.live[name]
	has := map[netip.Addr]bool{}
	for _, address := range o.service.Recorded.Addresses {
		has[address] = true
	}
	underWay := w.open[name]
	if write := w.writes[name]; write != nil {
		underWay = append(slices.Clone(underWay), write)
	}
	for _, write := range underWay {
		if write.version == o.version { // else it can never land
			for _, address := range write.decision.Addresses {
				has[address] = true
			}
		}
	}
	return has
}

// countsAreExact is P15 and P17: what the ledger counts is what a walk over every address counts.
func (w *world) countsAreExact() {
	held := map[netip.Addr]bool{}
	for _, hold := range w.twin.holds {
		for address := range hold.possible {
			held[address] = true
		}
	}
	for _, pool := range w.picture.Pools {
		var want ipam.Usage
		for _, r := range pool.Ranges {
			for address := r.From(); r.Contains(address); address = address.Next() {
				counts := &want.IPv4
				if cluster.FamilyOf(address) == cluster.IPv6 {
					counts = &want.IPv6
				}
				counts.Capacity++
				switch {
				case w.twin.poolOf(address) != pool:
					// an older pool counts it
				case held[address]:
					counts.Assigned++
				case w.twin.cooling[address].Address.IsValid():
					want.Cooling = append(want.Cooling, w.twin.cooling[address])
				case !w.twin.skipped(address) && w.twin.reservedFor(address) == nil:
					counts.Available++
				}
			}
		}
		got := usage(w, w.ledger, pool.Name)
		w.skippedAreShown(pool, got.Skipped)
		got.Overlap, got.Skipped = nil, nil
		if diff := cmp.Diff(want, got, compareAddr()); diff != "" {
			w.t.Fatalf("P15, P17: pool %s is counted wrong (-walk +ledger):\n%s", pool.Name, diff)
		}
	}
}

// Helper and Fatalf make a world do where a testing.TB is wanted.
func (w *world) Helper()                           {}
func (w *world) Fatalf(format string, args ...any) { w.t.Fatalf(format, args...) }

// checkRest looks at what must hold once nothing is due and nothing is under way.
func (w *world) checkRest() {
	for _, a := range w.names() { // P3, without any grace
		for _, b := range w.names() {
			for address := range w.mayHave(a) {
				if a != b && w.mayHave(b)[address] && !together(w.live[a].service, w.live[b].service) {
					w.t.Fatalf("P3: %s is %s's and %s's, and nothing is under way", address, a, b)
				}
			}
		}
	}
	for _, name := range w.names() { // P16: who waits could not be served now
		s := w.live[name].service
		if decision := w.ledger.Decide(s); !stored(s, decision) {
			w.t.Fatalf("P16: %s is at rest and would be given something else: %+v", name, decision)
		}
	}
	for _, name := range w.ledger.Plan() {
		last, now := w.last[name], w.ledger.Decide(w.live[name].service)
		if last.Reason = now.Reason; !now.Says(w.last[name].Reason) || !last.Equal(&now) {
			w.t.Fatalf("P8, P16: %s would have another answer: %+v, was %+v", name, now, w.last[name])
		}
	}
	first, second := w.coldStart(), w.coldStart()
	if diff := cmp.Diff(first, second, compareAddr()); diff != "" { // P18
		w.t.Fatalf("two starts in different orders differ:\n%s", diff)
	}
	warm := map[cluster.Name]twinAnswer{}
	for _, s := range w.services() {
		decision := w.ledger.Decide(s)
		warm[s.Name] = twinAnswer{decision.Verdict, decision.Addresses, decision.Pools, decision.Reason.Word, decision.Renumbered}
	}
	if diff := cmp.Diff(warm, first, compareAddr()); diff != "" { // the ledger kept is the ledger rebuilt; P6
		w.t.Fatalf("the ledger kept and the one rebuilt differ (-kept +rebuilt):\n%s", diff)
	}
}

func compareAddr() cmp.Option { return cmp.Comparer(func(a, b netip.Addr) bool { return a == b }) }

// coldStart is what another controller decides that starts now, with everything delivered in a random order.
func (w *world) coldStart() map[cluster.Name]twinAnswer {
	ledger := ipam.NewLedger()
	ledger.Tick(w.now)
	ledger.SetCluster(w.picture)
	w.cools = cooling(w, w.ledger)
	ledger.AdoptCooling(w.cools)
	ledger.Adopt(rapid.Permutation(w.services()).Draw(w.t, "order of another list"))
	answers := map[cluster.Name]twinAnswer{}
	services := w.services()
	slices.SortFunc(services, age)
	for _, s := range services {
		decision := ledger.Decide(s)
		ledger.Hold(s, decision)
		ledger.Settle(s.Name, ipam.Written)
		answers[s.Name] = twinAnswer{decision.Verdict, decision.Addresses, decision.Pools, decision.Reason.Word, decision.Renumbered}
	}
	return answers
}

// skippedAreShown: the pool's list of what is skipped has just those addresses that the twin skips, but for avoidBuggyIPs.
func (w *world) skippedAreShown(pool *cluster.Pool, shown []ipam.Skipped) {
	twin := *w.twin
	plain := *pool
	plain.AvoidBuggyIPs = false
	twin.picture.Pools = slices.Clone(twin.picture.Pools)
	twin.picture.Pools[slices.Index(twin.picture.Pools, pool)] = &plain
	for address := range twin.addresses(&plain, cluster.IPv4) {
		listed := slices.ContainsFunc(shown, func(s ipam.Skipped) bool { return s.Range.Contains(address) })
		if skipped := twin.skipped(address); skipped != listed {
			w.t.Fatalf("A5: %s of pool %s is skipped: %v, listed: %v", address, pool.Name, skipped, listed)
		}
	}
}
