package gossip

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

// roster is what this speaker knows of all: who lives, by memberlist's word, and what each last said of itself. It is a
// pure step machine; Ring guards it with a lock.
type roster struct {
	self string
	own  news // what this node says
	// silent is true while this node says nothing of itself: the others go by what it said before it was restarted.
	silent bool
	now    func() time.Time
	// returned is what this node said before it was restarted; nil if it did not say that it would be.
	returned *cluster.Member
	// refuted is the highest version of its own with which this node was held for down.
	refuted uint64

	// generation counts memberlists: the ring makes a new one to change its pace (rejoin.go). Only the newest is believed;
	// timers of one that was shut down may still go off.
	generation int
	live       map[string]alive   // the others that live, by name
	said       map[string]*saying // what others said, by name, also of those that do not live
	// epoch grows with everything that may make an announcement necessary again (rule P4).
	epoch uint64
}

// alive is a member that memberlist holds for alive, and where it gossips. It is copied out of memberlist's own record,
// which memberlist hands out by pointer and changes later without saying so.
type alive struct {
	address netip.AddrPort
	// generation is that of the memberlist that last saw it. A member not yet seen by the newest is carried over from the one
	// before.
	generation int
	// gone is true if it does not live, but said that it would be back, and it is not too late for that.
	gone bool
}

// holds is how long the rank of a speaker is held that said it would be back (rule E5).
const holds = 10 * time.Second

// saying is the newest thing a node said.
type saying struct {
	version uint64
	// member is nil after the node was held for dead: what it said then may not hold any more. It has to say it again, and
	// may do so with the same version, because it need not have noticed.
	member *cluster.Member
	// down is true if the node was found down that had said this version, until it says a higher one.
	down bool
	beat uint64 // the number of its last heartbeat
	// until is how long it counts as a member although it restarts; zero if it does not.
	until time.Time
	// lapsed is the version with which it said last that it would be back, and was held for long enough. Others that heard it
	// later still say so.
	lapsed uint64
}

// held is true if the speaker restarts and has time for it still.
func (s *saying) held(now time.Time) bool {
	return s != nil && s.member != nil && !s.down && now.Before(s.until)
}

// isNewerThan is true if a news tells nothing beyond what is known. To restart is news once: else speakers that heard it at
// different times would have each other hold the rank for ever.
func (s *saying) isNewerThan(n *news) bool {
	return n.Version < s.version || (n.Version == s.version && (s.member != nil || (n.Restarting && n.Version == s.lapsed)))
}

func newRoster(self string, version uint64) *roster {
	return &roster{
		self: self, own: newsOf(cluster.Member{Node: self}, version), now: time.Now,
		live: map[string]alive{}, said: map[string]*saying{},
	}
}

// setOwn takes what this node says of itself. It returns true if that is new.
func (r *roster) setOwn(member cluster.Member) (changed bool) {
	member.Node = r.self
	next := newsOf(member, r.own.Version)
	if reflect.DeepEqual(next, r.own) {
		return false
	}
	next.Version++
	r.own = next
	return true
}

// join takes in, from the memberlist of that generation, that a member lives.
func (r *roster) join(name string, address netip.AddrPort, generation int) {
	if name == r.self || generation != r.generation {
		return
	}
	if _, lives := r.live[name]; !lives {
		r.epoch++
	}
	r.live[name] = alive{address: address, generation: generation}
}

// leave takes in, from the memberlist of that generation, that a member is dead or has left. One that restarts stays a
// member for a while (rule E5).
func (r *roster) leave(name string, generation int) {
	a, lives := r.live[name]
	switch {
	case !lives || generation != r.generation:
	case r.said[name].held(r.now()):
		a.gone = true
		r.live[name] = a
	default:
		r.lose(name)
	}
}

// expire lets go those that said that they would be back, and are not. It returns true if there were any.
func (r *roster) expire() (expired bool) {
	now := r.now()
	for name, s := range r.said {
		if s.until.IsZero() || s.held(now) {
			continue
		}
		s.until, s.lapsed = time.Time{}, s.version
		if s.member == nil {
			continue
		}
		expired = true
		if r.live[name].gone {
			r.lose(name)
			continue
		}
		s.member = nil // it lives, and has said nothing for all that time but that it restarts
		r.epoch++
	}
	return expired
}

// lose lets a member go.
func (r *roster) lose(name string) {
	delete(r.live, name)
	if s := r.said[name]; s != nil {
		s.member, s.down = nil, false // it will have to speak again anyway
	}
	r.epoch++
}

// declareDown is the news that a member is down; false if it is no member, or held for down already.
func (r *roster) declareDown(name string) (n news, ok bool) {
	s := r.said[name]
	if _, lives := r.live[name]; !lives || s == nil || s.member == nil || s.down {
		return news{}, false
	}
	return news{Node: name, Version: s.version, Down: true}, true
}

// heardBeat is true for a heartbeat of a member that is newer than the last: one that somebody has recorded and sends again
// is none.
func (r *roster) heardBeat(b beat) bool {
	s := r.said[b.Node]
	if _, lives := r.live[b.Node]; !lives || s == nil || b.Number <= s.beat {
		return false
	}
	s.beat = b.Number
	return true
}

// carried are how many members the newest memberlist has not seen yet.
func (r *roster) carried() int {
	count := 0
	for _, a := range r.live {
		if a.generation != r.generation && !a.gone {
			count++
		}
	}
	return count
}

// dropCarried lets those go. It returns true if there were any.
func (r *roster) dropCarried() (dropped bool) {
	for name, a := range r.live {
		if a.generation != r.generation && !a.gone {
			r.lose(name)
			dropped = true
		}
	}
	return dropped
}

// hear takes in a news. changed is true if it tells something new about another node. repeat is true if the own news has to
// be said again, which now has a higher version: somebody holds this node for down, or knows newer news of it, so that its
// clock was set back between two starts.
func (r *roster) hear(n *news) (changed, repeat bool) {
	switch {
	case n.Node == r.self:
		return false, r.hearOwn(n)
	case n.Down:
		return r.hearDown(n), false
	}
	return r.hearOther(n), false
}

// hearOther takes in what another node says of itself.
func (r *roster) hearOther(n *news) (changed bool) {
	known := r.said[n.Node]
	switch {
	case known == nil && len(r.said) >= maxNodes:
		return false
	case known == nil:
		known = &saying{}
		r.said[n.Node] = known
	case known.isNewerThan(n):
		return false
	}
	before := known.member
	if known.down {
		before = nil // back: what is ours may have been its own meanwhile
	}
	known.version, known.member, known.down, known.until = n.Version, n.member(), false, time.Time{}
	if n.Restarting {
		known.until = r.now().Add(holds)
	}
	if _, lives := r.live[n.Node]; !lives {
		return false
	}
	if before == nil || !reflect.DeepEqual(before.Links, known.member.Links) {
		r.epoch++
	}
	return before == nil || !reflect.DeepEqual(before, known.member)
}

// hearOwn takes in what somebody else says about this node.
func (r *roster) hearOwn(n *news) (repeat bool) {
	if n.Restarting && n.Version < r.own.Version && r.silent {
		r.returned = n.member()
	}
	if n.Down && n.Version > r.refuted {
		r.refuted = n.Version
		r.epoch++ // others may answer for what is ours, until they hear
	}
	if n.Version < r.own.Version || (n.Version == r.own.Version && !n.Down) {
		return false
	}
	r.own.Version = n.Version + 1
	return true
}

// hearDown takes in that somebody has found a node down.
func (r *roster) hearDown(n *news) (changed bool) {
	known := r.said[n.Node]
	if _, lives := r.live[n.Node]; !lives || known == nil || known.member == nil || known.down || n.Version < known.version {
		return false
	}
	known.version, known.down = n.Version, true
	r.epoch++
	if r.live[n.Node].gone {
		r.lose(n.Node) // its speaker was to be back, and now its node has gone too
	}
	return true
}

// members are those that live, whose name and address belong together (rule E4) and who have said something; this node
// included.
func (r *roster) members(allowed func(name string, address netip.Addr) bool) map[string]*cluster.Member {
	members := map[string]*cluster.Member{r.self: r.own.member()}
	for name, a := range r.live {
		if s := r.said[name]; s != nil && s.member != nil && !s.down && allowed(name, a.address.Addr()) {
			members[name] = s.member
		}
	}
	return members
}

// missing are the nodes of a list that are not members in every respect: dead, carried over, or silent about themselves.
func (r *roster) missing(known map[string][]netip.AddrPort) []string {
	var names []string
	for name := range known {
		a, lives := r.live[name]
		lives = lives && a.generation == r.generation && !a.gone
		if s := r.said[name]; name != r.self && (!lives || s == nil || s.member == nil) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// forget lets go what was said by nodes that neither live nor are known.
func (r *roster) forget(known map[string][]netip.AddrPort) {
	for name := range r.said {
		_, lives := r.live[name]
		if _, expected := known[name]; !lives && !expected {
			delete(r.said, name)
		}
	}
}

// state is everything known: what this node says, and what others that live have said, sorted.
func (r *roster) state() []news {
	var all []news
	if !r.silent {
		all = append(all, r.own)
	}
	for name := range r.live {
		switch s := r.said[name]; {
		case s == nil || s.member == nil:
		case s.down:
			all = append(all, news{Node: name, Version: s.version, Down: true})
		default:
			all = append(all, newsOf(*s.member, s.version))
		}
	}
	slices.SortFunc(all, func(a, b news) int { return cmp.Compare(a.Node, b.Node) })
	return all
}
