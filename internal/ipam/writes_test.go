package ipam_test

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

func (w *world) settle(name cluster.Name, outcome ipam.Outcome, sent *write) {
	w.twin.settle(name, outcome)
	if outcome == ipam.Written {
		delete(w.open, name)
		w.acted[name] = w.acted[name] && w.live[name].spec != sent.spec
		w.unmet[name] = sent.decision.Reason.Word == reason.RequestUnmet
	}
	w.wake(w.ledger.Settle(name, outcome))
}

// apply is the API server's doing: the status is written if the object is still the one the write was made from.
func (w *world) apply(write *write) bool {
	o := w.live[write.service.Name]
	if o == nil || o.version != write.version {
		return false
	}
	written := *o.service
	written.Recorded = recordOf(o.service, write.decision)
	if slices.Equal(written.Recorded.Addresses, o.service.Recorded.Addresses) {
		written.Recorded.Since = o.service.Recorded.Since
	} else {
		written.Recorded.Since = epoch().Add(time.Duration(w.tick()/3) * time.Second)
	}
	w.live[write.service.Name] = &object{&written, w.tick(), o.spec}
	return true
}

// answer ends a write that is under way.
func (w *world) answer() bool {
	names := slices.SortedFunc(maps.Keys(w.writes), cluster.Name.Compare)
	if len(names) == 0 {
		return false
	}
	name := rapid.SampledFrom(names).Draw(w.t, "whose write")
	switch rapid.SampledFrom([]string{"written", "written", "refused", "lost before", "lost after"}).Draw(w.t, "outcome") {
	case "written":
		w.finish(name)
	case "refused":
		w.conclude(name, ipam.NotWritten)
	case "lost before": // it may still arrive
		w.conclude(name, ipam.Unknown)
	case "lost after":
		w.apply(w.writes[name])
		w.conclude(name, ipam.Unknown)
	}
	return true
}

// finish has the API server answer a write.
func (w *world) finish(name cluster.Name) {
	if w.apply(w.writes[name]) {
		w.conclude(name, ipam.Written)
	} else {
		w.conclude(name, ipam.NotWritten)
	}
}

// conclude tells the ledger. Where the outcome is unknown the object is looked at: if it is another than the write was
// bound to, the write has happened or never will.
func (w *world) conclude(name cluster.Name, outcome ipam.Outcome) {
	write := w.writes[name]
	delete(w.writes, name)
	w.due[name] = true
	if outcome == ipam.NotWritten && w.live[name].version == write.version {
		w.live[name].version = w.tick() // it was refused because somebody else wrote something that does not matter here
	}
	if outcome != ipam.Unknown {
		w.settle(name, outcome, write)
		return
	}
	w.open[name] = append(w.open[name], write)
	w.settle(name, ipam.Unknown, write)
	if o := w.live[name]; o.version != write.version {
		w.open[name] = w.open[name][:len(w.open[name])-1]
		if slices.Equal(o.service.Recorded.Addresses, write.decision.Addresses) {
			w.settle(name, ipam.Written, write)
		} else {
			w.settle(name, ipam.NotWritten, write)
		}
	}
}

// land lets a write arrive whose outcome is unknown.
func (w *world) land() {
	for _, name := range slices.SortedFunc(maps.Keys(w.open), cluster.Name.Compare) {
		if slices.ContainsFunc(w.open[name], w.apply) {
			w.due[name] = true
			return
		}
	}
	w.t.Skip("nothing on its way")
}

// restart starts another controller. The lease has seen to it that no write of the old one is under way any more.
func (w *world) restart() {
	for _, name := range w.names() {
		if write := w.writes[name]; write != nil && rapid.Bool().Draw(w.t, "arrives") {
			w.apply(write)
		}
		for _, write := range w.open[name] {
			if rapid.Bool().Draw(w.t, "arrives too") {
				w.apply(write)
			}
		}
	}
	w.cools = cooling(w, w.ledger)
	w.begin()
}

// settleDown lets everything run until nothing is due, and looks at what must hold then.
func (w *world) settleDown() {
	for limit := 0; ; limit++ {
		if limit > 500 {
			w.t.Fatalf("the controller does not come to rest: due %v", w.due)
		}
		if w.decideOldest() {
			continue
		}
		names := slices.SortedFunc(maps.Keys(w.writes), cluster.Name.Compare)
		if len(names) == 0 {
			break
		}
		w.finish(names[0])
	}
	w.check()
	w.checkRest()
}

// stray is a write of another controller that believes to lead, as no guard can rule out: it gives a Service an address
// that may be another's by now.
func (w *world) stray() {
	name, found := w.pick()
	if !found || !w.live[name].service.Ours {
		w.t.Skip("no Service")
	}
	written := *w.live[name].service
	address := drawAddress(w.t, 4)
	if !slices.Contains(written.Families, cluster.IPv4) {
		address = drawAddress(w.t, 6)
	}
	now := w.tick()
	written.Recorded = cluster.Record{
		ByUs: true, Addresses: []netip.Addr{address}, Named: []netip.Addr{address}, Pools: []string{"p1"},
		Since: epoch().Add(time.Duration(now/3) * time.Second), Renumbered: written.Recorded.Renumbered,
	}
	w.live[name] = &object{&written, now, now}
	w.due[name] = true
	w.acted[name] = true
}
