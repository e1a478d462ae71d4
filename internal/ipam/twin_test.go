package ipam_test

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

// twin decides like the ledger, in the simplest way there is: it keeps no index, walks every address of every pool, and
// looks for each of them whether anybody may have it. Its pools are small.
type twin struct {
	picture  ipam.Cluster
	services map[cluster.Name]*cluster.Service
	holds    map[cluster.Name]*twinHold
}

// twinHold is what a Service has. possible is every address that may be in its status.
type twinHold struct {
	uid      string
	wanted   []given
	stored   []given
	possible map[netip.Addr]bool
	added    []netip.Addr // to possible, by the last decision
}

type given struct {
	address netip.Addr
	pool    string
}

// twinAnswer is the part of an answer that is compared.
type twinAnswer struct {
	Verdict   ipam.Verdict
	Addresses []netip.Addr
	Pools     []string
	Word      reason.Word
}

// age orders Services by age, then name.
func age(a, b *cluster.Service) int {
	return cmp.Or(a.Created.Compare(b.Created), a.Name.Compare(b.Name))
}

// byAge is the pools, oldest first.
func (t *twin) byAge() []*cluster.Pool {
	return slices.SortedFunc(slices.Values(t.picture.Pools), func(a, b *cluster.Pool) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

// poolOf is the oldest pool that contains the address.
func (t *twin) poolOf(address netip.Addr) *cluster.Pool {
	for _, pool := range t.byAge() {
		if pool.Problem == nil && pool.Contains(address) {
			return pool
		}
	}
	return nil
}

func (t *twin) named(name string) *cluster.Pool {
	for _, pool := range t.picture.Pools {
		if pool.Name == name {
			return pool
		}
	}
	return nil
}

func (t *twin) open(pool *cluster.Pool, s *cluster.Service) bool {
	var labels map[string]string
	if namespace := t.picture.Namespaces[s.Name.Namespace]; namespace != nil {
		labels = namespace.Labels
	}
	return pool.Open(s, labels)
}

// skipped is true if the address is a node's or the cluster's, or one that the pool avoids.
func (t *twin) skipped(address netip.Addr) bool {
	for _, node := range t.picture.Nodes {
		if slices.Contains(node.Addresses, address) {
			return true
		}
		for _, prefix := range node.PodCIDRs {
			if prefix.Contains(address) {
				return true
			}
		}
	}
	for _, prefix := range t.picture.ServiceCIDRs {
		if prefix.Contains(address) {
			return true
		}
	}
	for _, s := range t.services {
		if slices.Contains(s.ClusterAddresses, address) {
			return true
		}
	}
	pool := t.poolOf(address)
	last := address.As16()[15]
	return pool != nil && pool.AvoidBuggyIPs && address.Is4() && (last == 0 || last == 255)
}

// takenFor is true if another Service may have the address.
func (t *twin) takenFor(s *cluster.Service, address netip.Addr) bool {
	for name, hold := range t.holds {
		if (name != s.Name || hold.uid != s.UID) && hold.possible[address] {
			return true
		}
	}
	return false
}

// poolName follows a held address's pool: the recorded one, else the one that has it now, else the recorded one.
func (t *twin) poolName(s *cluster.Service, address netip.Addr, recorded string) string {
	if pool := t.named(recorded); pool != nil && pool.Contains(address) || recorded == s.RequestPool && recorded != "" {
		return recorded
	}
	if pool := t.poolOf(address); pool != nil {
		return pool.Name
	}
	return recorded
}

// held is what the Service has of a family.
func (t *twin) held(s *cluster.Service, family cluster.Family) (given, bool) {
	if hold := t.holds[s.Name]; hold != nil && hold.uid == s.UID {
		for _, one := range hold.wanted {
			if cluster.FamilyOf(one.address) == family {
				return given{one.address, t.poolName(s, one.address, one.pool)}, true
			}
		}
	}
	for i, address := range s.Recorded.Addresses { // what the status still has is taken up again
		if cluster.FamilyOf(address) == family && !t.takenFor(s, address) {
			return given{address, t.poolName(s, address, s.Recorded.Pools[i])}, true
		}
	}
	return given{}, false
}

// decide answers a Service whose hold is known, with the rules read one by one.
func (t *twin) decide(s *cluster.Service) twinAnswer {
	if !s.Ours {
		if s.Recorded.ByUs {
			return twinAnswer{Verdict: ipam.Clear}
		}
		return twinAnswer{}
	}
	type result struct {
		family  cluster.Family
		current *given
		chosen  *given
		word    reason.Word
		unasked bool
	}
	var results []result
	for _, family := range s.Families {
		r := result{family: family}
		if one, has := t.held(s, family); has {
			r.current, r.chosen = &one, &one
		}
		switch {
		case len(s.Request) > 0:
			r.chosen, r.word, r.unasked = t.request(s, family, r.current)
		case s.RequestPool != "":
			r.chosen, r.word = t.requestPool(s, family, r.current)
		case r.current == nil:
			r.chosen, r.word = t.automatic(s, family)
		}
		results = append(results, r)
	}
	failed := slices.ContainsFunc(results, func(r result) bool { return r.word != "" })
	wrongFamily := slices.ContainsFunc(s.Request, func(a netip.Addr) bool { return !slices.Contains(s.Families, cluster.FamilyOf(a)) })
	all := wrongFamily || (failed && s.FamilyPolicy == cluster.RequireDualStack)
	answer := twinAnswer{Verdict: ipam.Set, Word: reason.Allocated}
	first := reason.Word("")
	for _, r := range results {
		chosen := r.chosen
		if all || r.word != "" || (failed && r.unasked) {
			chosen = r.current
		}
		if first == "" {
			first = r.word
		}
		if chosen == nil {
			continue
		}
		answer.Addresses, answer.Pools = append(answer.Addresses, chosen.address), append(answer.Pools, chosen.pool)
		if t.poolOf(chosen.address) == nil {
			answer.Word = reason.OutOfPool
		}
	}
	wishes := len(s.Request) > 0 || s.RequestPool != ""
	switch {
	case wrongFamily:
		answer.Word = reason.RequestUnmet
	case failed && len(answer.Addresses) == 0:
		answer.Word = first
	case failed && s.FamilyPolicy == cluster.PreferDualStack && !wishes:
		answer.Word = reason.PartlyAllocated
	case failed:
		answer.Word = reason.RequestUnmet
	}
	if len(t.picture.Pools) == 0 && len(answer.Addresses) == 0 && !s.Recorded.ByUs {
		return twinAnswer{}
	}
	return answer
}

func (t *twin) request(s *cluster.Service, family cluster.Family, current *given) (chosen *given, refused reason.Word, unasked bool) {
	var wish netip.Addr
	for _, address := range s.Request {
		if cluster.FamilyOf(address) == family {
			wish = address
		}
	}
	if !wish.IsValid() {
		if s.FamilyPolicy == cluster.RequireDualStack {
			return nil, reason.RequestUnmet, true
		}
		return nil, "", true
	}
	pool := t.poolOf(wish)
	switch {
	case current != nil && current.address == wish && (s.RequestPool == "" || s.RequestPool == current.pool):
		return current, "", false
	case s.RequestPool != "" && (pool == nil || pool.Name != s.RequestPool):
		return nil, reason.NotInPool, false
	case current != nil && current.address == wish:
		return current, "", false
	case pool == nil:
		return nil, reason.NotInPool, false
	case !t.open(pool, s):
		return nil, reason.PoolNotOpen, false
	case t.skipped(wish):
		return nil, reason.AddressSkipped, false
	case t.takenFor(s, wish):
		return nil, reason.AddressInUse, false
	}
	return &given{wish, pool.Name}, "", false
}

func (t *twin) requestPool(s *cluster.Service, family cluster.Family, current *given) (*given, reason.Word) {
	pool := t.named(s.RequestPool)
	switch {
	case current != nil && current.pool == s.RequestPool:
		return current, ""
	case pool == nil || pool.Problem != nil:
		return nil, reason.NoPool
	case !t.open(pool, s):
		return nil, reason.PoolNotOpen
	}
	return t.lowest(s, family, []*cluster.Pool{pool})
}

func (t *twin) automatic(s *cluster.Service, family cluster.Family) (*given, reason.Word) {
	var candidates []*cluster.Pool
	for _, pool := range t.picture.Pools {
		if pool.AutoAssign && t.open(pool, s) {
			candidates = append(candidates, pool)
		}
	}
	rank := func(p *cluster.Pool) (restricted int, priority int64) {
		if !p.Restricted() {
			restricted = 1
		}
		if p.Priority == nil {
			return restricted, 1 << 40
		}
		return restricted, int64(*p.Priority)
	}
	slices.SortFunc(candidates, func(a, b *cluster.Pool) int {
		ra, pa := rank(a)
		rb, pb := rank(b)
		return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(pa, pb), cmp.Compare(a.Name, b.Name))
	})
	return t.lowest(s, family, candidates)
}

// lowest tries every address of the pools.
func (t *twin) lowest(s *cluster.Service, family cluster.Family, pools []*cluster.Pool) (*given, reason.Word) {
	exists := false
	for _, pool := range pools {
		if pool.Problem != nil {
			continue
		}
		for _, r := range pool.Ranges {
			if cluster.FamilyOf(r.From()) != family {
				continue
			}
			for address := r.From(); r.Contains(address); address = address.Next() {
				if t.poolOf(address) != pool {
					continue // an older pool has it
				}
				exists = true
				if !t.skipped(address) && !t.takenFor(s, address) && !t.ownOther(s, address) {
					return &given{address, pool.Name}, ""
				}
			}
		}
	}
	if exists {
		return nil, reason.PoolFull
	}
	return nil, reason.NoPool
}

// ownOther is true if the Service itself may have the address in its status: it is not free, for it either.
func (t *twin) ownOther(s *cluster.Service, address netip.Addr) bool {
	hold := t.holds[s.Name]
	return hold != nil && hold.possible[address]
}

// hold notes a decision that is being written.
func (t *twin) hold(s *cluster.Service, decision ipam.Decision) {
	hold := t.holds[s.Name]
	if hold == nil || hold.uid != s.UID {
		hold = &twinHold{uid: s.UID, possible: map[netip.Addr]bool{}}
		t.holds[s.Name] = hold
	}
	hold.wanted, hold.added = nil, nil
	for i, address := range decision.Addresses {
		hold.wanted = append(hold.wanted, given{address, decision.Pools[i]})
		if !hold.possible[address] {
			hold.possible[address] = true
			hold.added = append(hold.added, address)
		}
	}
}

// settle notes what became of the write of the last decision.
func (t *twin) settle(name cluster.Name, outcome ipam.Outcome) {
	hold := t.holds[name]
	switch {
	case hold == nil:
	case outcome == ipam.Written:
		hold.stored, hold.possible = hold.wanted, map[netip.Addr]bool{}
		for _, one := range hold.stored {
			hold.possible[one.address] = true
		}
	case outcome == ipam.NotWritten:
		hold.wanted = hold.stored
		for _, address := range hold.added {
			delete(hold.possible, address)
		}
	}
}
