package main

import (
	"sync"
	"time"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/election"
	"github.com/berthlb/berth/speaker/internal/agent"
	"github.com/berthlb/berth/speaker/internal/gossip"
	"github.com/berthlb/berth/speaker/internal/proxy"
	"github.com/berthlb/berth/speaker/internal/wire"
)

// facts brings together what the speaker knows that is no API object (rule E8).
type facts struct {
	node      string
	ring      *gossip.Ring
	links     *wire.Links
	denied    func() bool // raw sockets are refused, so that no link is of use
	proxy     *proxy.Watcher
	fresh     *agent.Freshness
	settling  *agent.Settling
	directory *directory
	gateways  *gateways

	teller teller
}

// own is what this speaker says of itself. Without raw sockets it has no link to answer on, and says so: it would else be
// chosen, and nobody would answer.
func (f *facts) own() cluster.Member {
	links := f.links.Current()
	if f.denied() {
		links = nil
	}
	settled, outlived := f.settling.Now()
	return cluster.Member{
		Node:       f.node,
		ProxyReady: f.proxy.Up(),
		Stale:      f.fresh.Stale(),
		Unsure:     f.fresh.Unsure(),
		Settled:    settled,
		Outlived:   outlived,
		Links:      links,
		Gateways:   f.gateways.current(time.Now()),
		Versions:   []int{election.Version},
	}
}

// tell says to the other speakers what has changed here.
func (f *facts) tell() { f.teller.tell(f.own, f.ring.SetFacts) }

// teller looks and tells what it sees, one at a time: else a caller that was held up between the two would put old facts
// in the place of newer ones, for good.
type teller struct{ mu sync.Mutex }

func (t *teller) tell(look func() cluster.Member, say func(cluster.Member)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	say(look())
}

// now is what the loop decides with. What it decides with is what the others have been told, whatever woke it.
func (f *facts) now() cluster.Facts {
	f.tell()
	members := f.members()
	return cluster.Facts{
		Self:    f.node,
		Members: members,
		Down:    f.down(members),
		Epoch:   f.ring.Epoch() + f.links.Epoch(),
	}
}

// members are the speakers that live, this one included.
func (f *facts) members() map[string]*cluster.Member {
	own := f.own()
	members := f.ring.Members()
	members[f.node] = &own
	return members
}

// down are the nodes that have a speaker of which gossip sees nothing. All speakers know the same of them, whenever they
// were started (rule P1).
func (f *facts) down(members map[string]*cluster.Member) map[string]bool {
	down := map[string]bool{}
	for name := range f.directory.known() {
		if members[name] == nil {
			down[name] = true
		}
	}
	return down
}
