package ipam_test

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

// twin decides like the ledger, in the simplest way there is: it keeps no index, walks every address of every pool, and
// looks for each of them whether anybody may have it. Its pools are small.
type twin struct {
	picture  ipam.Cluster
	services map[cluster.Name]*cluster.Service // as they were last decided about
	holds    map[cluster.Name]*twinHold
	cooling  map[netip.Addr]ipam.Cooling
	now      time.Time
}

func newTwin() *twin {
	return &twin{
		services: map[cluster.Name]*cluster.Service{}, holds: map[cluster.Name]*twinHold{}, cooling: map[netip.Addr]ipam.Cooling{},
	}
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
	Consumed  string
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
	for _, gateway := range t.picture.Gateways {
		if gateway.Address == address {
			return true
		}
	}
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

// skippedFor is true if the address is skipped when this Service is decided about, of which the twin knows the past.
func (t *twin) skippedFor(s *cluster.Service, address netip.Addr) bool {
	return t.skipped(address) || slices.Contains(s.ClusterAddresses, address)
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

// own is what the Service has, one of each family at most, and what it has to give up; broken says for each of the latter
// whether the two shared it or would.
func (t *twin) own(s *cluster.Service) (own []given, broken []bool) {
	type loss struct {
		address netip.Addr
		broken  bool
	}
	var lost []loss
	has := func(family cluster.Family) bool {
		return slices.ContainsFunc(own, func(g given) bool { return cluster.FamilyOf(g.address) == family })
	}
	hold := t.holds[s.Name]
	for _, family := range s.Families {
		if hold == nil || hold.uid != s.UID {
			break
		}
		for _, one := range hold.wanted {
			switch {
			case cluster.FamilyOf(one.address) != family || has(family):
			case t.rival(s, one.address) != nil:
				lost = append(lost, loss{one.address, true})
			default:
				own = append(own, given{one.address, t.poolName(s, one.address, one.pool)})
			}
		}
	}
	for i, address := range s.Recorded.Addresses { // what the status still has is taken up again
		family := cluster.FamilyOf(address)
		if has(family) || !slices.Contains(s.Families, family) {
			continue
		}
		if other := t.rival(s, address); other != nil {
			if !slices.ContainsFunc(lost, func(l loss) bool { return l.address == address }) {
				lost = append(lost, loss{address, s.SharingKey != "" && s.SharingKey == other.SharingKey})
			}
			continue
		}
		own = append(own, given{address, t.poolName(s, address, s.Recorded.Pools[i])})
	}
	for _, one := range lost {
		if !has(cluster.FamilyOf(one.address)) {
			broken = append(broken, one.broken)
		}
	}
	return own, broken
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
		moving  bool
	}
	var results []result
	consents := s.Renumber != "" && s.Renumber != s.Recorded.Renumbered
	own, broken := t.own(s)
	joined := t.joined(s, own)
	for _, family := range s.Families {
		r := result{family: family}
		if i := slices.IndexFunc(own, func(g given) bool { return cluster.FamilyOf(g.address) == family }); i >= 0 {
			r.current, r.chosen = &own[i], &own[i]
			r.moving = consents && t.poolOf(own[i].address) == nil
		}
		switch {
		case len(s.Request) > 0:
			r.chosen, r.word, r.unasked = t.request(s, family, r.current)
		case s.RequestPool != "":
			r.chosen, r.word = t.requestPool(s, family, r.current, r.moving, joined)
		case r.current == nil || r.moving:
			r.chosen, r.word = t.automatic(s, family, joined)
		}
		results = append(results, r)
	}
	failed := slices.ContainsFunc(results, func(r result) bool { return r.word != "" })
	wrongFamily := slices.ContainsFunc(s.Request, func(a netip.Addr) bool { return !slices.Contains(s.Families, cluster.FamilyOf(a)) })
	all := wrongFamily || (failed && s.FamilyPolicy == cluster.RequireDualStack)
	answer := twinAnswer{Verdict: ipam.Set, Word: reason.Allocated, Consumed: s.Recorded.Renumbered}
	unmoved, outside := false, false
	first := reason.Word("")
	for _, r := range results {
		chosen := r.chosen
		if all || r.word != "" || (failed && r.unasked) {
			chosen = r.current
		}
		if first == "" {
			first = r.word
		}
		unmoved = unmoved || r.moving && (all || r.word != "")
		if chosen == nil {
			continue
		}
		answer.Addresses, answer.Pools = append(answer.Addresses, chosen.address), append(answer.Pools, chosen.pool)
		outside = outside || t.poolOf(chosen.address) == nil
		if t.tolerated(s, chosen.address) {
			answer.Word = reason.SharingNotAllowed
		}
	}
	if outside {
		answer.Word = reason.OutOfPool
	}
	if len(broken) > 0 {
		answer.Word = map[bool]reason.Word{true: reason.SharingBroken, false: reason.MovedDuplicate}[broken[0]]
	}
	if consents && !unmoved && len(answer.Addresses) > 0 {
		answer.Consumed = s.Renumber
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
	}
	if word := t.refuse(s, wish, pool); word != "" {
		return nil, word, false
	}
	return &given{wish, pool.Name}, "", false
}

func (t *twin) requestPool(s *cluster.Service, family cluster.Family, current *given, moving bool, joined []given) (*given, reason.Word) {
	pool := t.named(s.RequestPool)
	switch {
	case current != nil && current.pool == s.RequestPool && !moving:
		return current, ""
	case pool == nil || pool.Problem != nil:
		return nil, reason.NoPool
	case !t.open(pool, s):
		return nil, reason.PoolNotOpen
	}
	return t.take(s, family, []*cluster.Pool{pool}, joined)
}

func (t *twin) automatic(s *cluster.Service, family cluster.Family, joined []given) (*given, reason.Word) {
	candidates := slices.DeleteFunc(asTried(t.picture.Pools), func(pool *cluster.Pool) bool { return !pool.AutoAssign || !t.open(pool, s) })
	return t.take(s, family, candidates, joined)
}

// asTried is the order in which pools are tried (rule A4).
func asTried(pools []*cluster.Pool) []*cluster.Pool {
	rank := func(p *cluster.Pool) (restricted int, priority int64) {
		if !p.Restricted() {
			restricted = 1
		}
		if p.Priority == nil {
			return restricted, 1 << 40
		}
		return restricted, int64(*p.Priority)
	}
	return slices.SortedFunc(slices.Values(pools), func(a, b *cluster.Pool) int {
		ra, pa := rank(a)
		rb, pb := rank(b)
		return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(pa, pb), cmp.Compare(a.Name, b.Name))
	})
}

// ownOther is true if the Service itself may have the address in its status: it is not free, for it either.
func (t *twin) ownOther(s *cluster.Service, address netip.Addr) bool {
	hold := t.holds[s.Name]
	return hold != nil && hold.possible[address]
}

// hold notes a decision that is being written.
func (t *twin) hold(s *cluster.Service, decision ipam.Decision) {
	if old := t.holds[s.Name]; old != nil && old.uid != s.UID {
		t.forget(s.Name)
	}
	if t.holds[s.Name] == nil {
		t.adopt(s) // another controller may have written its status
	}
	hold := t.holds[s.Name]
	t.services[s.Name] = s
	hold.wanted, hold.added = nil, nil
	for i, address := range decision.Addresses {
		hold.wanted = append(hold.wanted, given{address, decision.Pools[i]})
		delete(t.cooling, address)
		if !hold.possible[address] {
			hold.possible[address] = true
			hold.added = append(hold.added, address)
		}
	}
	hold.stored = slices.DeleteFunc(slices.Clone(hold.stored), func(one given) bool {
		return !slices.ContainsFunc(hold.wanted, func(g given) bool { return g.address == one.address }) && t.rival(s, one.address) != nil
	})
}

// settle notes what became of the write of the last decision.
func (t *twin) settle(name cluster.Name, outcome ipam.Outcome) {
	hold := t.holds[name]
	switch {
	case hold == nil:
	case outcome == ipam.Written:
		before := hold.possible
		hold.stored, hold.possible = hold.wanted, map[netip.Addr]bool{}
		for _, one := range hold.stored {
			hold.possible[one.address] = true
		}
		for address := range before {
			t.cool(address, name)
		}
	case outcome == ipam.NotWritten:
		hold.wanted = hold.stored
		for _, address := range hold.added { // it was never in the status, so it need not cool down
			delete(hold.possible, address)
		}
	}
}

// forget is the end of a Service.
func (t *twin) forget(name cluster.Name) {
	hold := t.holds[name]
	delete(t.holds, name)
	delete(t.services, name)
	if hold != nil {
		for address := range hold.possible {
			t.cool(address, name)
		}
	}
}

// cool keeps an address from others that nobody has any more, if its pool says so.
func (t *twin) cool(address netip.Addr, had cluster.Name) {
	for _, hold := range t.holds {
		if hold.possible[address] {
			return
		}
	}
	if pool := t.poolOf(address); pool != nil && pool.ReleaseDelay > 0 {
		t.cooling[address] = ipam.Cooling{Address: address, Service: had, Until: t.now.Add(pool.ReleaseDelay)}
	}
}

// tick is the time that passes.
func (t *twin) tick(now time.Time) {
	t.now = now
	for address, one := range t.cooling {
		if !one.Until.After(now) {
			delete(t.cooling, address)
		}
	}
}
