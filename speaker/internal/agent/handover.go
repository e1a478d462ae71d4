package agent

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
)

// For how long a node goes on answering for an address that it hands over, if the new owner is not heard: when it leaves
// (rule E6), and when only other nodes' endpoints are used from now on, of which the new owner may wait for its proxy
// (rule P21).
const (
	leavesFor = 500 * time.Millisecond
	yieldsFor = 3 * time.Second
)

// handing is what was announced last, and what is handed over, by address.
type handing map[netip.Addr]handed

// handed is an address that was announced.
type handed struct {
	claim announce.Claim
	until time.Time // zero while it is announced
}

// handOver is what is still to be answered for although others own it: a node that can still forward does not fall silent
// before the new owner speaks. until is when the first of it ends; zero if there is none.
func (a *Agent) handOver(table *announce.Table, snapshot *cluster.Snapshot, open []announce.Claim, now time.Time) (still []announce.Claim, until time.Time) {
	next := make(handing, len(open))
	for i := range open {
		next[open[i].Address] = handed{claim: open[i]}
	}
	for address, was := range a.handing {
		if _, owned := next[address]; owned {
			continue
		}
		verdict, _ := table.Of(address)
		if was.until.IsZero() {
			was.until = now.Add(a.forwards(snapshot, &was.claim))
			was.claim.HandedOver = true
		}
		if verdict.Owner == "" || verdict.Owner == a.Node || !now.Before(was.until) {
			continue // nobody's; or its own again, and the gate is shut; or it has lasted long enough
		}
		next[address] = was
		still = append(still, was.claim)
		until = earlier(until, was.until)
	}
	a.handing = next
	return still, until
}

// forwards is for how long a node that has lost an address goes on answering for it.
func (a *Agent) forwards(snapshot *cluster.Snapshot, claim *announce.Claim) time.Duration {
	i, found := slices.BinarySearchFunc(snapshot.Nodes, a.Node, func(n *cluster.Node, name string) int { return cmp.Compare(n.Name, name) })
	if found && snapshot.Nodes[i].Leaving != nil {
		return leavesFor
	}
	for _, service := range claim.Services {
		if service.Policy == cluster.PolicyLocal && a.stillServes(snapshot, service.Name, cluster.FamilyOf(claim.Address)) {
			return yieldsFor
		}
	}
	return 0
}

// stillServes is true if a Service has endpoints here that serve while they terminate, and are used no more since others
// are ready.
func (a *Agent) stillServes(snapshot *cluster.Snapshot, name cluster.Name, family cluster.Family) bool {
	i, found := slices.BinarySearchFunc(snapshot.Services, name, func(s *cluster.Service, name cluster.Name) int { return s.Name.Compare(name) })
	if !found {
		return false
	}
	service := snapshot.Services[i]
	down := func(node string) bool { return snapshot.Facts.Down[node] }
	endpoints := service.Endpoints4
	if family == cluster.IPv6 {
		endpoints = service.Endpoints6
	}
	return endpoints.ServingOn(a.Node) && !endpoints.UsableOn(a.Node, down)
}

// earlier is the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
