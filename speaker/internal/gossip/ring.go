package gossip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/hashicorp/memberlist"

	"github.com/berthlb/berth/internal/cluster"
)

// Options are what a Ring works with.
type Options struct {
	// Node is the name of this speaker's node.
	Node string
	// Bind is the node's InternalIP and the gossip port, for TCP and UDP. Port 0 takes a free one.
	Bind netip.AddrPort
	Keys Keys
	// Label is the cluster's UID: rings of other clusters on the same network are not heard.
	Label string
	Log   logr.Logger
	// Known are the nodes that should have a speaker, with their gossip addresses. Those missing are joined.
	Known func() map[string][]netip.AddrPort
	// Allowed is true if a node of that name exists and has that address: only then does a member count (rule E4).
	Allowed func(name string, address netip.Addr) bool
	// Leaving is true if this speaker does not come back when it ends (rule E6). May be nil: it does.
	Leaving func() bool
	// Beat is called for every heartbeat of a member; it must not block. May be nil.
	Beat func(node string)

	paceOf    func(now pace, members int) pace
	transport func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
}

// leaveTimeout is how long leaving may take.
const leaveTimeout = 500 * time.Millisecond

// Keys are the keys of the ring, 32 bytes each. The first encrypts, all decrypt. They are not printed.
type Keys [][]byte

// String hides the keys (rule P19).
func (Keys) String() string { return "[redacted]" }

// GoString hides the keys (rule P19).
func (Keys) GoString() string { return "[redacted]" }

// Ring is this speaker's part of the gossip. Its methods may be called from any goroutine; Run owns its goroutines.
type Ring struct {
	options Options
	log     logr.Logger
	keyring *memberlist.Keyring
	queue   *memberlist.TransmitLimitedQueue

	// born is the version of the first news, and started when that was: what is counted from them grows over restarts, and
	// is never set back while the process runs.
	born    uint64
	started time.Time

	mu     sync.Mutex // guards roster and touch; never held while calling memberlist or wake
	roster *roster
	touch  touch
	met    bool

	listMu  sync.Mutex // guards those below; never held while calling memberlist or wake
	list    *memberlist.Memberlist
	pace    pace
	address netip.AddrPort
	left    bool

	wake    atomic.Pointer[func()]
	errands *errands
}

// New opens the gossip port. Run has to be called then.
func New(options Options) (*Ring, error) {
	if len(options.Keys) == 0 {
		return nil, errors.New("start gossip: no key")
	}
	keyring, err := memberlist.NewKeyring(options.Keys, options.Keys[0])
	if err != nil {
		return nil, fmt.Errorf("start gossip: read the keys: %w", err)
	}
	if options.paceOf == nil {
		options.paceOf = paceOf
	}
	started := time.Now()
	born := uint64(max(0, started.UnixNano()))
	r := &Ring{
		born: born, started: started,
		options: options,
		log:     options.Log.WithName("gossip"),
		keyring: keyring,
		roster:  newRoster(options.Node, born),
		errands: newErrands(),
	}
	r.roster.silent = true
	r.queue = &memberlist.TransmitLimitedQueue{RetransmitMult: retransmit, NumNodes: r.size}
	if err := r.open(options.paceOf(pace{}, len(options.Known())), options.Bind); err != nil {
		return nil, err
	}
	return r, nil
}

// Members are the speakers that live, by node name, each with what it says of itself; this one included. The map is the
// caller's; what it points to is shared and not to be changed.
func (r *Ring) Members() map[string]*cluster.Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.roster.members(r.options.Allowed)
}

// Epoch grows with every member that joins or leaves, with every change of a member's links, and whenever this speaker
// may have been held for dead: all that may make an announcement necessary again (rule P4).
func (r *Ring) Epoch() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.roster.epoch
}

// Speak has this node say of itself what SetFacts is given. Until then the others go by what it said before it was
// restarted, if they do (rule E5).
func (r *Ring) Speak() {
	r.mu.Lock()
	r.roster.silent = false
	r.mu.Unlock()
	r.tell()
}

// Met is true once this speaker knows what another one knew of all.
func (r *Ring) Met() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.met
}

// Returned is what this node said of itself before it was restarted, as the others remember it; nil if they do not, or if
// it did not say that it would be back (rules E5, E8). It is known once another member has been met.
func (r *Ring) Returned() *cluster.Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.roster.returned
}

// SetFacts says what this node says of itself from now on. The others hear it within a second if it has changed.
func (r *Ring) SetFacts(own cluster.Member) {
	r.mu.Lock()
	changed := r.roster.setOwn(own)
	r.mu.Unlock()
	if changed {
		r.tell()
	}
}

// InTouch is false while this speaker may have been held for dead and not know it: after it was paused for longer than it
// takes the others to notice, until it has exchanged state with one of them, for 2 s at most (rule E4).
func (r *Ring) InTouch() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.touch.in(time.Now())
}

// Down says to all that a member is down, and holds it for down here. It counts as a member again as soon as it refutes
// that, or as memberlist has found it dead and alive again. It has no effect on who is no member.
func (r *Ring) Down(node string) {
	r.mu.Lock()
	n, ok := r.roster.declareDown(node)
	members := slices.Sorted(maps.Keys(r.roster.live)) // with the node itself: if it lives it is to refute
	ok = ok && r.roster.hearDown(&n)
	r.mu.Unlock()
	if !ok {
		return
	}
	r.changed()
	r.broadcast("down/"+node, members, encode(kindDown, n))
}

// SendBeat sends a heartbeat to some members. Their Beat is called for it.
func (r *Ring) SendBeat(to []string) {
	number := r.born + uint64(max(0, time.Since(r.started)))
	message := encode(kindBeat, beat{Node: r.options.Node, Number: number})
	list := r.current()
	for _, node := range r.nodes(to) {
		r.told(node, list.SendBestEffort(node, message))
	}
}

// heardBeat takes in a heartbeat.
func (r *Ring) heardBeat(b beat) {
	r.mu.Lock()
	counts := r.roster.heardBeat(b)
	r.mu.Unlock()
	if counts && r.options.Beat != nil {
		r.options.Beat(b.Node)
	}
}

// Address is where this speaker gossips.
func (r *Ring) Address() netip.AddrPort {
	r.listMu.Lock()
	defer r.listMu.Unlock()
	return r.address
}

// Leave tells the others that this speaker ends for good, and waits until that is on its way. Run has to be ended then.
// Without Leave, they find out when they probe it.
func (r *Ring) Leave(timeout time.Duration) error {
	r.listMu.Lock()
	r.left = true
	list := r.list
	r.listMu.Unlock()
	if err := list.Leave(timeout); err != nil {
		return fmt.Errorf("leave the gossip ring: %w", err)
	}
	return nil
}

// Run keeps the ring together until ctx ends. wake is called after every change of Members, Epoch or InTouch; it must not
// block. At its end the others hear that this speaker restarts, or that it leaves if Leaving says so (rule E5).
func (r *Ring) Run(ctx context.Context, wake func()) error {
	r.wake.Store(&wake)
	r.mu.Lock()
	r.touch.last = time.Now()
	r.mu.Unlock()
	var running sync.WaitGroup
	defer func() {
		running.Wait()
		r.shutdown()
	}()
	running.Go(func() { r.watchTouch(ctx) })
	running.Go(func() { r.runErrands(ctx) })
	running.Go(func() { r.rejoin(ctx) })
	<-ctx.Done()
	r.takeLeave()
	return nil
}

// takeLeave says to the others how this speaker ends: that it will be back, so that they hold its rank, or that it leaves.
func (r *Ring) takeLeave() {
	if r.options.Leaving != nil && r.options.Leaving() {
		if err := r.Leave(leaveTimeout); err != nil {
			r.log.V(1).Info("leaving failed", "error", err.Error())
		}
		return
	}
	r.mu.Lock()
	own := r.roster.own.member()
	own.Restarting = true
	changed := r.roster.setOwn(*own) && !r.roster.silent
	message, members := encode(kindFacts, r.roster.own), slices.Sorted(maps.Keys(r.roster.live))
	r.mu.Unlock()
	if !changed {
		return
	}
	list := r.current()
	for range 2 { // a datagram may be lost, and there is no time for gossip
		for _, node := range r.nodes(members) {
			r.told(node, list.SendBestEffort(node, message))
		}
	}
}

// changed wakes whoever waits for news.
func (r *Ring) changed() {
	if wake := r.wake.Load(); wake != nil {
		(*wake)()
	}
}

// current is the memberlist of the moment.
func (r *Ring) current() *memberlist.Memberlist {
	r.listMu.Lock()
	defer r.listMu.Unlock()
	return r.list
}

// size is how many members there are, this one included; the queue wants to know.
func (r *Ring) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.roster.live) + 1
}

// shutdown closes the port.
func (r *Ring) shutdown() {
	if err := r.current().Shutdown(); err != nil {
		r.log.V(1).Info("closing the gossip port failed", "error", err.Error())
	}
}
