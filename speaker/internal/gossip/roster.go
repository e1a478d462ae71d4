package gossip

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
)

// roster is what this speaker knows of all: who lives, by memberlist's word, and what each last said of itself. It is a
// pure step machine; Ring guards it with a lock.
type roster struct {
	self string
	own  news // what this node says

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
}

// saying is the newest thing a node said.
type saying struct {
	version uint64
	// member is nil after the node was held for dead: what it said then may not hold any more. It has to say it again, and
	// may do so with the same version, because it need not have noticed.
	member *cluster.Member
}

func newRoster(self string, version uint64) *roster {
	return &roster{
		self: self, own: newsOf(cluster.Member{Node: self}, version),
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

// leave takes in, from the memberlist of that generation, that a member is dead or has left.
func (r *roster) leave(name string, generation int) {
	if _, lives := r.live[name]; lives && generation == r.generation {
		r.lose(name)
	}
}

// lose lets a member go.
func (r *roster) lose(name string) {
	delete(r.live, name)
	if s := r.said[name]; s != nil {
		s.member = nil
	}
	r.epoch++
}

// carried are how many members the newest memberlist has not seen yet.
func (r *roster) carried() int {
	count := 0
	for _, a := range r.live {
		if a.generation != r.generation {
			count++
		}
	}
	return count
}

// dropCarried lets those go. It returns true if there were any.
func (r *roster) dropCarried() (dropped bool) {
	for name, a := range r.live {
		if a.generation != r.generation {
			r.lose(name)
			dropped = true
		}
	}
	return dropped
}

// hear takes in a news. changed is true if it tells something new about another node. repeat is true if it is of this node
// and newer than what it says now: then its clock was set back between two starts, and its news has to be said again, which
// now is newer still.
func (r *roster) hear(n *news) (changed, repeat bool) {
	if n.Node == r.self {
		if n.Version <= r.own.Version {
			return false, false
		}
		r.own.Version = n.Version + 1
		return false, true
	}
	known := r.said[n.Node]
	switch {
	case known == nil && len(r.said) >= maxNodes:
		return false, false
	case known == nil:
		known = &saying{}
		r.said[n.Node] = known
	case n.Version < known.version, n.Version == known.version && known.member != nil:
		return false, false
	}
	before := known.member
	known.version, known.member = n.Version, n.member()
	if _, lives := r.live[n.Node]; !lives {
		return false, false
	}
	if before == nil || !reflect.DeepEqual(before.Links, known.member.Links) {
		r.epoch++
	}
	return before == nil || !reflect.DeepEqual(before, known.member), false
}

// members are those that live, whose name and address belong together (rule E4) and who have said something; this node
// included.
func (r *roster) members(allowed func(name string, address netip.Addr) bool) map[string]*cluster.Member {
	members := map[string]*cluster.Member{r.self: r.own.member()}
	for name, a := range r.live {
		if s := r.said[name]; s != nil && s.member != nil && allowed(name, a.address.Addr()) {
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
		lives = lives && a.generation == r.generation
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
	all := []news{r.own}
	for name := range r.live {
		if s := r.said[name]; s != nil && s.member != nil {
			all = append(all, newsOf(*s.member, s.version))
		}
	}
	slices.SortFunc(all, func(a, b news) int { return cmp.Compare(a.Node, b.Node) })
	return all
}
