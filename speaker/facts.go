package main

import (
	"sync"

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
	proxy     *proxy.Watcher
	fresh     *agent.Freshness
	directory *directory

	mu   sync.Mutex
	seen map[string]bool // nodes whose speaker has been a member since this process started
}

// own is what this speaker says of itself.
func (f *facts) own() cluster.Member {
	return cluster.Member{
		Node:       f.node,
		ProxyReady: f.proxy.Up(),
		Stale:      f.fresh.Stale(),
		Links:      f.links.Current(),
		Versions:   []int{election.Version},
	}
}

// tell says to the other speakers what has changed here.
func (f *facts) tell() { f.ring.SetFacts(f.own()) }

// now is what the loop decides with.
func (f *facts) now() cluster.Facts {
	own := f.own()
	members := f.ring.Members()
	members[f.node] = &own
	return cluster.Facts{
		Self:    f.node,
		Members: members,
		Down:    f.down(members),
		Epoch:   f.ring.Epoch() + f.links.Epoch(),
	}
}

// down are the nodes whose speaker was a member, is none now and has not gone for good.
func (f *facts) down(members map[string]*cluster.Member) map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range members {
		f.seen[name] = true
	}
	known := f.directory.known()
	down := map[string]bool{}
	for name := range f.seen {
		if _, expected := known[name]; members[name] == nil && expected {
			down[name] = true
		}
	}
	return down
}
