package gossip

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// direct is the most bytes of a message that is sent by datagram: what memberlist's packets hold, less its headers, the
// label and the encryption.
const direct = packetSize - 400

// errands are what a goroutine of its own sends, so that nobody waits for a connection.
type errands struct {
	noted chan struct{} // holds one: there is something to send

	mu      sync.Mutex
	all     bool                // own facts to all members
	one     map[string]struct{} // own facts to these
	welcome map[string]struct{} // a welcome to these
}

func newErrands() *errands {
	return &errands{noted: make(chan struct{}, 1), one: map[string]struct{}{}, welcome: map[string]struct{}{}}
}

// note adds to the errands, by f, and has them run.
func (r *Ring) note(f func(*errands)) {
	r.errands.mu.Lock()
	f(r.errands)
	r.errands.mu.Unlock()
	select {
	case r.errands.noted <- struct{}{}:
	default:
	}
}

// take empties the errands.
func (e *errands) take() (all bool, one, welcome []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, one, welcome = e.all, slices.Sorted(maps.Keys(e.one)), slices.Sorted(maps.Keys(e.welcome))
	e.all = false
	clear(e.one)
	clear(e.welcome)
	return all, one, welcome
}

// tell has the own facts told to all.
func (r *Ring) tell() { r.note(func(e *errands) { e.all = true }) }

// answer has them told to one.
func (r *Ring) answer(name string) { r.note(func(e *errands) { e.one[name] = struct{}{} }) }

// welcome has a member welcomed.
func (r *Ring) welcome(name string) { r.note(func(e *errands) { e.welcome[name] = struct{}{} }) }

// hear takes in news, and tells whoever has to know.
func (r *Ring) hear(all []*news, welcomed bool) {
	r.mu.Lock()
	changed, repeat := welcomed, false
	epoch := r.roster.epoch
	for _, n := range all {
		c, again := r.roster.hear(n)
		changed, repeat = changed || c, repeat || again
	}
	if welcomed {
		r.roster.epoch++ // the others may have moved our addresses away and back
	}
	changed = changed || r.roster.epoch != epoch
	r.mu.Unlock()
	if repeat {
		r.tell()
	}
	if changed {
		r.changed()
	}
}

// runErrands sends what is to be sent until ctx ends.
func (r *Ring) runErrands(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.errands.noted:
		}
		r.mu.Lock()
		own, members, silent := r.roster.own, slices.Sorted(maps.Keys(r.roster.live)), r.roster.silent
		r.mu.Unlock()
		if silent {
			continue // what is noted is sent when Speak notes more
		}
		all, one, welcome := r.errands.take()
		facts := encode(kindFacts, own)
		switch {
		case all && len(facts) <= direct:
			r.broadcast(r.options.Node, members, facts)
		case all:
			one = members
		}
		r.connect(&sending, one, facts)
		r.connect(&sending, welcome, encode(kindWelcome, own))
	}
}

// broadcast sends a message to every member in two ways: by one datagram each, at once, and by gossip, which takes some
// rounds but survives a lost datagram. In gossip it takes the place of the message before of that name.
func (r *Ring) broadcast(name string, members []string, message []byte) {
	r.queue.QueueBroadcast(broadcast{name: name, message: message})
	list := r.current()
	for _, node := range r.nodes(members) {
		r.told(node, list.SendBestEffort(node, message))
	}
}

// connect sends a message by a connection to each of some members, beside each other: one that does not answer holds up
// nobody. It hears the news with the next exchange of state, if it lives.
func (r *Ring) connect(sending *sync.WaitGroup, members []string, message []byte) {
	list := r.current()
	for _, node := range r.nodes(members) {
		sending.Go(func() { r.told(node, list.SendReliable(node, message)) })
	}
}

// told logs how a message got on.
func (r *Ring) told(node *memberlist.Node, err error) {
	if err != nil {
		r.log.V(1).Info("telling a member failed", "member", node.Name, "error", err.Error())
	}
}

// nodes are those of the named members that live, as memberlist wants to be told of them.
func (r *Ring) nodes(names []string) []*memberlist.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	var nodes []*memberlist.Node
	for _, name := range names {
		if a, lives := r.roster.live[name]; lives {
			nodes = append(nodes, &memberlist.Node{
				Name: name, Addr: a.address.Addr().AsSlice(), Port: a.address.Port(), PMax: memberlist.ProtocolVersionMax,
			})
		}
	}
	return nodes
}

// broadcast is a message in the queue of what is gossiped: the newest of a node takes the place of the one before.
type broadcast struct {
	name    string
	message []byte
}

// Name is whose news it is.
func (b broadcast) Name() string { return b.name }

// Message is what is sent.
func (b broadcast) Message() []byte { return b.message }

// Invalidates is true for an older message of the same node.
func (b broadcast) Invalidates(other memberlist.Broadcast) bool {
	o, ok := other.(broadcast)
	return ok && o.name == b.name
}

// Finished is told when the message needs no more sending: nobody waits for that.
func (b broadcast) Finished() {}
