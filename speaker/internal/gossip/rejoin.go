package gossip

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

const (
	// rejoinEvery is the shortest time between two attempts to reach speakers that are missing; the longest is twice that.
	rejoinEvery = time.Second
	// firstJoin is how often it is tried while nobody has been met yet.
	firstJoin = 100 * time.Millisecond
	// joinAtOnce is how many of the missing are tried in one attempt, beside each other: one that answers tells of all it
	// knows, and one that does not takes its time.
	joinAtOnce = 5
	// carriedFor is how long members are carried over when a new memberlist takes the place of another.
	carriedFor = 3 * time.Second
)

// rejoin joins speakers that are known of and missing, until ctx ends: memberlist never tries again by itself once it
// holds a member for dead, so a partition would last for ever (rule E4). It also changes the pace.
func (r *Ring) rejoin(ctx context.Context) {
	var carriedUntil time.Time
	for {
		known := r.options.Known()
		if r.repace(ctx, len(known)) {
			carriedUntil = time.Now().Add(carriedFor)
		}
		r.mu.Lock()
		dropped := time.Now().After(carriedUntil) && r.roster.dropCarried()
		r.roster.forget(known)
		missing := r.roster.missing(known)
		hurry := len(r.roster.live) == 0 || r.roster.carried() > 0
		r.mu.Unlock()
		if dropped {
			r.changed()
		}
		r.join(ctx, known, missing)
		pause := rejoinEvery
		if hurry {
			pause = firstJoin
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(upToTwice(pause)):
		}
	}
}

// upToTwice is a random time from a pause to twice as long, so that speakers do not act in step.
func upToTwice(pause time.Duration) time.Duration {
	return pause + rand.N(pause) //nolint:gosec // it spreads load and is no secret
}

// join tries to reach some of the missing: at random, so that a few that never answer do not stand in the others' way.
func (r *Ring) join(ctx context.Context, known map[string][]netip.AddrPort, missing []string) {
	if r.hasLeft() {
		return
	}
	//nolint:gosec // which ones are tried is no secret
	order := rand.Perm(len(missing))
	var joining sync.WaitGroup
	for _, i := range order[:min(len(order), joinAtOnce)] {
		joining.Go(func() { r.joinOne(ctx, missing[i], known[missing[i]]) })
	}
	joining.Wait()
}

// joinOne tries to reach a speaker at its addresses.
func (r *Ring) joinOne(ctx context.Context, name string, addresses []netip.AddrPort) {
	for _, address := range addresses {
		if ctx.Err() != nil {
			return
		}
		_, err := r.current().Join([]string{name + "/" + address.String()})
		if err == nil {
			return
		}
		r.log.V(1).Info("joining a speaker failed", "speaker", name, "address", address.String(), "error", err.Error())
	}
}

// exchange exchanges state with the first member that answers.
func (r *Ring) exchange(ctx context.Context) {
	r.mu.Lock()
	members := maps.Clone(r.roster.live)
	r.mu.Unlock()
	for name, a := range members {
		if ctx.Err() != nil {
			return
		}
		if _, err := r.current().Join([]string{name + "/" + a.address.String()}); err == nil {
			return
		}
	}
}

// repace puts a new memberlist in the place of the old one if the number of speakers asks for another pace: memberlist
// reads its intervals when it starts only. The members are carried over, and the others do not notice: they find the port
// open again long before they hold this speaker for dead. It returns true if it did.
func (r *Ring) repace(ctx context.Context, speakers int) (changed bool) {
	r.listMu.Lock()
	p := r.options.paceOf(r.pace, speakers)
	stays := p == r.pace || r.left
	list, bind := r.list, r.address
	r.listMu.Unlock()
	if stays {
		return false
	}
	r.log.Info("changing the pace of gossip", "speakers", speakers, "probe", p.probe.String())
	if err := list.Shutdown(); err != nil {
		r.log.V(1).Info("closing the gossip port failed", "error", err.Error())
	}
	for {
		err := r.open(p, bind)
		if err == nil {
			return true
		}
		r.log.Error(err, "gossip does not run, trying again")
		select {
		case <-ctx.Done():
			return true
		case <-time.After(rejoinEvery):
		}
	}
}

func (r *Ring) hasLeft() bool {
	r.listMu.Lock()
	defer r.listMu.Unlock()
	return r.left
}
