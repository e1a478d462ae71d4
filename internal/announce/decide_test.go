package announce_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// TestDecideEqualsItsTwin: for random clusters, fed to the store in any order, every address has the owner, the link and
// the Services that the rules give it word by word (rules E1, E2, E3, E12, P1, P7). And, from the answer itself: exactly
// its owner claims an address; it has one if a Service alone would have a candidate (P2); every holder is either served
// or told why not, and every other node is told why not (P8).
func TestDecideEqualsItsTwin(t *testing.T) {
	t.Parallel()
	for range 5 { // some mistakes show in few worlds
		rapid.Check(t, func(t *rapid.T) {
			w := worlds().Draw(t, "world")
			snapshot := w.snapshot(t)
			table := announce.Decide(snapshot)
			claims := claimsByAddress(&w, table)
			for _, address := range worldAddresses() {
				got, held := table.Of(netip.MustParseAddr(address))
				if holders := w.holders(address); held != (len(holders) > 0) {
					t.Fatalf("%s: decided %v, holders %v", address, held, holders)
				}
				if held {
					checkDecision(t, &w, got, claims[address])
					checkAnswered(t, &w, got)
					checkReasons(t, snapshot, table, got)
				}
			}
		})
	}
}

// checkDecision compares the decision about an address with the twin's.
func checkDecision(t *rapid.T, w *world, got announce.Verdict, claimedBy []string) {
	want := w.decide(got.Address.String())
	answer := decision{owner: got.Owner, link: got.Link, services: serviceNames(got.Services)}
	if diff := cmp.Diff(want, answer, cmp.AllowUnexported(decision{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s: %s", got.Address, diff)
	}
	claims := filter([]string{want.owner}, func(owner string) bool { return owner != "" })
	if diff := cmp.Diff(claims, claimedBy); diff != "" {
		t.Fatalf("%s is claimed by: %s", got.Address, diff)
	}
}

// claimsByAddress is which nodes claim each address.
func claimsByAddress(w *world, table *announce.Table) map[string][]string {
	claims := map[string][]string{}
	for i := range w.nodes {
		for _, claim := range table.For(w.nodes[i].name) {
			claims[claim.Address.String()] = append(claims[claim.Address.String()], w.nodes[i].name)
		}
	}
	return claims
}

// checkAnswered fails if nobody answers for an address although one of the counted Services on it has a candidate.
func checkAnswered(t *rapid.T, w *world, got announce.Verdict) {
	for _, service := range w.counted(got.Address.String()) {
		if alone := w.candidates([]*worldService{service}, got.Address.String()); len(alone) > 0 && got.Owner == "" {
			t.Fatalf("nobody answers for %s although %v could for %s: %v", got.Address, alone, service.name, got.Why)
		}
	}
}

// checkReasons fails if anything is without a reason that is in the catalogue and has a message, or is told twice.
func checkReasons(t *rapid.T, snapshot *cluster.Snapshot, table *announce.Table, got announce.Verdict) {
	check := func(what string, why *reason.Reason) {
		if why == nil || why.Message == "" {
			t.Fatalf("%s: no reason for %s: %v", got.Address, what, why)
		}
		reason.SeverityOf(why.Word) // panics for a word that is not in the catalogue
	}
	if (got.Owner == "") != (got.Why != nil) {
		t.Fatalf("%s: owner %q, reason %v", got.Address, got.Owner, got.Why)
	}
	told := serviceNames(got.Services)
	for _, other := range got.Others {
		check(other.Service.Name.String(), other.Why)
		told = append(told, other.Service.Name.String())
	}
	var holders []string
	for _, service := range snapshot.Services {
		if service.Ours && slices.Contains(service.Recorded.Addresses, got.Address) {
			holders = append(holders, service.Name.String())
			answered, why := table.Announced(service)
			check("condition of "+service.Name.String(), why)
			if answered && !slices.Contains(got.Services, service) {
				t.Fatalf("%s counts as announced for %s", got.Address, service.Name)
			}
		}
	}
	slices.Sort(told)
	if diff := cmp.Diff(holders, told); diff != "" {
		t.Fatalf("%s: Services told of: %s", got.Address, diff)
	}
	checkExclusions(t, snapshot, table, got, check)
}

func checkExclusions(t *rapid.T, snapshot *cluster.Snapshot, table *announce.Table, got announce.Verdict, check func(string, *reason.Reason)) {
	exclusions := table.Exclusions(got.Address)
	if got.Owner == "" && len(exclusions) == 0 {
		return // no node is asked
	}
	var told []string
	for _, exclusion := range exclusions {
		check(exclusion.Node, exclusion.Why)
		told = append(told, exclusion.Node)
	}
	var nodes []string
	for _, node := range snapshot.Nodes {
		nodes = append(nodes, node.Name)
	}
	for node := range snapshot.Facts.Members {
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	others := slices.DeleteFunc(slices.Compact(nodes), func(node string) bool { return node == got.Owner })
	if diff := cmp.Diff(others, told, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s: nodes told of: %s", got.Address, diff)
	}
}

// TestP1OrderDoesNotMatter: two speakers that were fed the same objects in other orders decide the same, reasons included.
func TestP1OrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := worlds().Draw(t, "world")
		one, other := announce.Decide(w.snapshot(t)), announce.Decide(w.snapshot(t))
		if diff := cmp.Diff(one.Verdicts(), other.Verdicts(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestP7AnnouncedOnlyWhereServed: a Local Service is announced only by a node with an endpoint of its own that takes
// traffic, and no Service without any endpoint that does.
func TestP7AnnouncedOnlyWhereServed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := worlds().Draw(t, "world")
		for _, one := range announce.Decide(w.snapshot(t)).Verdicts() {
			for _, compiled := range one.Services {
				i := slices.IndexFunc(w.services, func(s worldService) bool { return s.name == compiled.Name.Name })
				service := &w.services[i]
				if service.local && !w.usableOn(one.Owner, service) {
					t.Fatalf("%s is announced by %s for %s, which has no endpoint there", one.Address, one.Owner, service.name)
				}
				if !w.usable(service) {
					t.Fatalf("%s is announced for %s, which has no endpoint", one.Address, service.name)
				}
			}
		}
	})
}

// TestP11UnrelatedNodesMoveNothing: whatever becomes of a node that does not own an address and has no endpoint for it, the
// owner stays, unless that node becomes it. All nodes are ready and sure here: whether readiness and staleness count at all is
// a matter of them all.
func TestP11UnrelatedNodesMoveNothing(t *testing.T) {
	t.Parallel()
	moved, stayed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		before := worlds().Draw(t, "world")
		for i := range before.nodes {
			before.nodes[i].ready, before.nodes[i].unsure = true, false
		}
		i := rapid.IntRange(0, len(before.nodes)-1).Draw(t, "the node")
		changed := before.nodes[i].name
		for s := range before.services {
			before.services[s].endpoints = slices.DeleteFunc(before.services[s].endpoints, func(e worldEndpoint) bool { return e.node == changed })
		}
		after := before
		after.nodes = slices.Clone(before.nodes)
		after.nodes[i] = drawNode(t, changed)
		then, now := owners(before.snapshot(t)), owners(after.snapshot(t))
		for address, owner := range then {
			switch now[address] {
			case owner:
				stayed++
			case changed:
				moved++
			default:
				if owner != changed {
					t.Fatalf("%s moved from %q to %q when %s changed", address, owner, now[address], changed)
				}
			}
		}
	})
	if moved == 0 || stayed == 0 {
		t.Errorf("%d addresses moved, %d stayed: the worlds are too dull", moved, stayed)
	}
}
