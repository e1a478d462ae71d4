package ipam

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// Decide answers a Service. It reads only. The steps, which the tests name:
//
//  1. A Service that is not ours, or no longer, is left alone; a record of ours is cleared (A1).
//  2. A status with addresses that are not from Berth is left as it is (A14).
//  3. For each family: what is wished for (A3, A4) if it can be had; else what is held (P5); else a fresh address (A5).
//  4. RequireDualStack gets all or nothing new (A2).
//  5. The answer is put together with its reason (P8).
func (l *Ledger) Decide(service *cluster.Service) Decision {
	if !service.Ours { // step 1
		if service.Recorded.ByUs {
			return Decision{Verdict: Clear}
		}
		return Decision{}
	}
	own, lost := l.basis(service)
	if len(own) == 0 && !service.Recorded.ByUs {
		if len(l.picture.Pools) == 0 {
			return Decision{} // without pools nothing is touched (P12)
		}
	}
	if len(own) == 0 && l.isForeign(service) { // step 2
		return foreign(service)
	}
	answers := make([]answer, 0, len(service.Families))
	for _, family := range service.Families { // step 3
		current, _ := ofFamily(own, family)
		answers = append(answers, l.answer(service, family, current))
	}
	wholeWish(service, answers)
	allOrNothing(service, answers) // step 4
	return l.compose(service, answers, lost)
}

// isForeign is true if the status holds addresses and none of them is from Berth.
func (l *Ledger) isForeign(service *cluster.Service) bool {
	if len(service.Recorded.Addresses) == 0 || len(record(service)) > 0 {
		return false
	}
	return !slices.ContainsFunc(service.Recorded.Addresses, func(a netip.Addr) bool { return l.ours(service, a) })
}

// foreign is the answer to a Service that another program gave its addresses. The message quotes them, since an
// address that stands free in it is one we gave (rule A14).
func foreign(service *cluster.Service) Decision {
	quoted := make([]string, len(service.Recorded.Addresses))
	for i, address := range service.Recorded.Addresses {
		quoted[i] = `"` + address.String() + `"`
	}
	return Decision{
		Verdict:   Foreign,
		Addresses: service.Recorded.Addresses,
		Reason: *reason.New(reason.ForeignAddress, "the status holds %s, which Berth did not give and which is in no pool open to this Service",
			strings.Join(quoted, " and ")),
	}
}

// answer is the answer for one family: what is held, what it is to be, or why it stays as it is.
type answer struct {
	family  cluster.Family
	current held           // what is held; the zero value if nothing is
	chosen  held           // what is to be held; the zero value for nothing
	refusal *reason.Reason // why the wish is not met; nil if it is
	waits   []waitKey      // what would help
	unasked bool           // a request leaves this family out: nothing is wanted
}

// keep makes the answer: as it is, for that reason.
func (a *answer) keep(refusal *reason.Reason, waits ...waitKey) {
	a.chosen, a.refusal, a.waits = a.current, refusal, waits
}

// answer is step 3 for one family.
func (l *Ledger) answer(service *cluster.Service, family cluster.Family, current held) answer {
	a := answer{family: family, current: current}
	switch {
	case service.RequestProblem != nil:
		a.keep(service.RequestProblem)
	case len(service.Request) > 0:
		l.request(service, &a)
	case service.RequestPool != "":
		l.fromRequestedPool(service, &a)
	case current.address.IsValid():
		a.keep(nil)
	default:
		l.fromAnyPool(service, &a)
	}
	return a
}

// request answers a wish for certain addresses (rule A3).
func (l *Ledger) request(service *cluster.Service, a *answer) {
	i := slices.IndexFunc(service.Request, func(r netip.Addr) bool { return cluster.FamilyOf(r) == a.family })
	if i < 0 {
		a.unasked = true
		if service.FamilyPolicy == cluster.RequireDualStack {
			a.keep(reason.New(reason.RequestUnmet, "the request names no %s address, and ipFamilyPolicy RequireDualStack needs one of each family", a.family))
		}
		return
	}
	address := service.Request[i]
	pool, refusal := l.refuse(service, address, a.current)
	if refusal != nil {
		a.keep(refusal)
		if refusal.Word == reason.AddressInUse || refusal.Word == reason.AddressSkipped {
			a.waits = []waitKey{{address: address}} // for the rest, pools have to change
		}
		return
	}
	if a.current.address == address {
		a.keep(nil)
		return
	}
	a.chosen = held{address, pool.Name}
}

// refuse says why the Service cannot have an address it asks for; nil, with its pool, if it can. One it holds is its
// own whatever the pools say now, unless it asks for another pool in the same breath.
func (l *Ledger) refuse(service *cluster.Service, address netip.Addr, current held) (*poolIndex, *reason.Reason) {
	pool := l.pools.of(address)
	holds, wish := current.address == address, service.RequestPool
	switch {
	case holds && (wish == "" || current.pool == wish):
		return pool, nil
	case wish != "" && (pool == nil || pool.Name != wish):
		return nil, reason.New(reason.NotInPool, "%s is not in pool %s, which the Service asks for too", address, wish)
	case holds:
		return pool, nil
	}
	if why := l.refuseFresh(service, address, pool); why != nil {
		return nil, why
	}
	return pool, nil
}

// refuseFresh says why the Service cannot have an address that it does not hold; nil if it can. pool is the one that
// contains it.
func (l *Ledger) refuseFresh(service *cluster.Service, address netip.Addr, pool *poolIndex) *reason.Reason {
	if pool == nil {
		return reason.New(reason.NotInPool, "%s is in no pool", address)
	}
	if !l.open(pool, service) {
		return notOpen(pool)
	}
	if why := l.skip.why(address); why != "" {
		return reason.New(reason.AddressSkipped, "%s of pool %s is %s", address, pool.Name, why)
	}
	if pool.free(cluster.FamilyOf(address)).skips(address) {
		return reason.New(reason.AddressSkipped, "%s is left out by pool %s: avoidBuggyIPs", address, pool.Name)
	}
	if other := l.heldByAnother(service, address); other != nil {
		return reason.New(reason.AddressInUse, "%s is held by Service %s", address, other.Name)
	}
	return nil
}

// notOpen is the reason that a pool is for others.
func notOpen(pool *poolIndex) *reason.Reason {
	return reason.New(reason.PoolNotOpen, "pool %s is not open to this Service: see serviceAllocation there", pool.Name)
}

// fromRequestedPool answers a wish for a pool (rule A4): what is held from it stays, else its lowest free address.
func (l *Ledger) fromRequestedPool(service *cluster.Service, a *answer) {
	name := service.RequestPool
	if a.current.address.IsValid() && a.current.pool == name {
		a.keep(nil)
		return
	}
	pool := l.pools.byName[name]
	switch {
	case pool == nil:
		a.keep(reason.New(reason.NoPool, "pool %s does not exist", name))
	case pool.Problem != nil:
		a.keep(reason.New(reason.NoPool, "pool %s is not used: %s", name, pool.Problem.Message))
	case !l.open(pool, service):
		a.keep(notOpen(pool))
	case !pool.has(a.family):
		a.keep(reason.New(reason.NoPool, "pool %s has no %s addresses", name, a.family))
	default:
		takeLowest(a, pool)
	}
}

// fromAnyPool gives a fresh address from the pools that assign by themselves, in their order (rule A4).
func (l *Ledger) fromAnyPool(service *cluster.Service, a *answer) {
	var candidates []*poolIndex
	for _, pool := range l.pools.ordered {
		if !pool.AutoAssign || !pool.has(a.family) || !l.open(pool, service) {
			continue
		}
		if pool.free(a.family).any() {
			takeLowest(a, pool)
			return
		}
		candidates = append(candidates, pool)
	}
	if len(candidates) == 0 {
		a.keep(reason.New(reason.NoPool, "no pool that assigns by itself is open to this Service and has %s addresses", a.family))
		return
	}
	takeLowest(a, candidates...)
}

// takeLowest chooses the lowest free address of the first pool that has one; else the Service waits for all of them.
func takeLowest(a *answer, candidates ...*poolIndex) {
	for _, pool := range candidates {
		if address, free := pool.free(a.family).lowest(); free {
			a.chosen = held{address, pool.Name}
			return
		}
	}
	waits := make([]waitKey, 0, len(candidates))
	names := make([]string, 0, len(candidates))
	for _, pool := range candidates {
		waits = append(waits, waitKey{pool: pool.Name, family: a.family})
		names = append(names, pool.Name)
	}
	a.keep(full(names, a.family), waits...)
}

// full is the reason that pools have no address left.
func full(names []string, family cluster.Family) *reason.Reason {
	if len(names) == 1 {
		return reason.New(reason.PoolFull, "pool %s has no free %s address", names[0], family)
	}
	return reason.New(reason.PoolFull, "pools %s have no free %s address", strings.Join(names, ", "), family)
}

// wholeWish ends the answers to a request: what it leaves out is given up only once all it asks for is met, and an
// address of a family the Service does not have makes it fail as a whole (rule A3).
func wholeWish(service *cluster.Service, answers []answer) {
	for _, address := range service.Request {
		if !slices.Contains(service.Families, cluster.FamilyOf(address)) {
			stay(answers, reason.New(reason.RequestUnmet, "%s is asked for, but the Service has no %s cluster IP", address, cluster.FamilyOf(address)))
			return
		}
	}
	if !slices.ContainsFunc(answers, func(a answer) bool { return a.refusal != nil }) {
		return
	}
	for i := range answers {
		if answers[i].unasked {
			answers[i].chosen = answers[i].current
		}
	}
}

// allOrNothing is step 4: where RequireDualStack cannot have both, nothing new is given and nothing taken away.
func allOrNothing(service *cluster.Service, answers []answer) {
	if service.FamilyPolicy != cluster.RequireDualStack {
		return
	}
	if i := slices.IndexFunc(answers, func(a answer) bool { return a.refusal != nil }); i >= 0 {
		stay(answers, nil)
	}
}

// stay makes every answer: as it is; for that reason, where there is one.
func stay(answers []answer, refusal *reason.Reason) {
	for i := range answers {
		answers[i].chosen = answers[i].current
		if refusal != nil {
			answers[i].refusal, answers[i].waits = refusal, nil
		}
	}
}

// compose is step 5.
func (l *Ledger) compose(service *cluster.Service, answers []answer, lost []netip.Addr) Decision {
	decision := Decision{Verdict: Set}
	var refusals []answer
	var outside []string
	for i := range answers {
		a := &answers[i]
		decision.waits = append(decision.waits, a.waits...)
		if a.refusal != nil {
			refusals = append(refusals, *a)
		}
		if !a.chosen.address.IsValid() {
			continue
		}
		decision.Addresses = append(decision.Addresses, a.chosen.address)
		decision.Pools = append(decision.Pools, a.chosen.pool)
		if !l.inPool(a.chosen.address) {
			outside = append(outside, a.chosen.address.String())
		}
	}
	decision.Complete = len(refusals) == 0 || partly(service, &decision)
	decision.Reason = describe(service, &decision, refusals, outside, lost)
	for i := 1; i < len(refusals); i++ {
		decision.Also = append(decision.Also, describe(service, &decision, refusals[i:], outside, lost))
	}
	return decision
}

// partly is true if the Service wants no more than could be had: as many families as there are (rule A2).
func partly(service *cluster.Service, decision *Decision) bool {
	return service.FamilyPolicy == cluster.PreferDualStack && len(decision.Addresses) > 0 && !wishes(service)
}

// wishes is true if the Service asks for something by name.
func wishes(service *cluster.Service) bool {
	return len(service.Request) > 0 || service.RequestPool != "" || service.RequestProblem != nil
}

// describe gives the reason of an answer. The message of a Service that holds addresses names them, each as a word of
// its own: that is the record that they are from Berth (rule A14).
func describe(service *cluster.Service, decision *Decision, refusals []answer, outside []string, lost []netip.Addr) reason.Reason {
	has := holding(decision)
	switch {
	case has == "":
		return pending(service, refusals)
	case len(refusals) > 0 && decision.Complete:
		return *reason.New(reason.PartlyAllocated, "%s; no %s address: %s", has, refusals[0].family, refusals[0].refusal.Message)
	case len(refusals) > 0:
		return *reason.New(reason.RequestUnmet, "keeps %s; %s: %s", has, refusals[0].refusal.Word, refusals[0].refusal.Message)
	case len(lost) > 0:
		return *reason.New(reason.MovedDuplicate, "%s, because %s is an older Service's", has, lost[0])
	case len(outside) > 0:
		return *reason.New(reason.OutOfPool, "%s; no pool contains %s any more", has, strings.Join(outside, " and "))
	default:
		return reason.Reason{Word: reason.Allocated, Message: has}
	}
}

// pending is the reason that a Service has no address. Where two families are wanted it says which one is missing.
func pending(service *cluster.Service, refusals []answer) reason.Reason {
	if len(refusals) == 0 { // a Service without any cluster IP, or headless without families
		return *reason.New(reason.NoPool, "the Service has no IP family yet")
	}
	first := refusals[0]
	if len(service.Families) > 1 && first.refusal != service.RequestProblem && !strings.Contains(first.refusal.Message, first.family.String()) {
		return *reason.New(first.refusal.Word, "%s: %s", first.family, first.refusal.Message)
	}
	return *first.refusal
}

// holding is "192.0.2.10 from pool public and 2001:db8::10 from pool six"; "" if nothing is held.
func holding(decision *Decision) string {
	parts := make([]string, len(decision.Addresses))
	for i, address := range decision.Addresses {
		parts[i] = address.String() + " from pool " + decision.Pools[i]
	}
	return strings.Join(parts, " and ")
}
