package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// Decide answers a Service. It reads only. The steps, which the tests name:
//
//  1. A Service that is not ours, or no longer, is left alone; a record of ours is cleared (A1).
//  2. A status with addresses that are not from Berth is left as it is, unless its owner consents (A14).
//  3. For each family: what is wished for (A3, A4) if it can be had; else what is held (P5); else what is reserved for the
//     Service, what it had and cools down (A9), what Services of its key hold (A7), or a fresh address (A5).
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
	foreign := len(own) == 0 && l.isForeign(service)
	if foreign && !consents(service) { // step 2
		return foreignAnswer(service, "")
	}
	answers := l.answers(service, own) // step 3
	wholeWish(service, answers)
	allOrNothing(service, answers) // step 4
	decision := l.compose(service, answers, lost)
	if foreign && len(decision.Addresses) == 0 {
		kept := foreignAnswer(service, "; berth.dev/renumber consents to others, but "+decision.Reason.Message)
		kept.waits = decision.waits
		return kept
	}
	return decision
}

// consents is true if the owner consents to another address and has not got one for that yet (rule A10).
func consents(service *cluster.Service) bool {
	return service.Renumber != "" && service.Renumber != service.Recorded.Renumbered
}

// answers is step 3: one answer for each family.
func (l *Ledger) answers(service *cluster.Service, own []held) []answer {
	joined := l.joined(service, own)
	answers := make([]answer, 0, len(service.Families))
	for _, family := range service.Families {
		a := answer{family: family}
		a.current, _ = ofFamily(own, family)
		a.joined, _ = ofFamily(joined, family)
		a.moving = consents(service) && a.current.address.IsValid() && !l.inPool(a.current.address)
		l.answer(service, &a)
		answers = append(answers, a)
	}
	return answers
}

// isForeign is true if the status holds addresses and none of them is from Berth.
func (l *Ledger) isForeign(service *cluster.Service) bool {
	if len(service.Recorded.Addresses) == 0 || len(record(service)) > 0 {
		return false
	}
	return !slices.ContainsFunc(service.Recorded.Addresses, func(a netip.Addr) bool { return l.ours(service, a) })
}

// foreignAnswer is the answer to a Service that another program gave its addresses. The message quotes them, since an
// address that stands free in it is one we gave (rule A14).
func foreignAnswer(service *cluster.Service, more string) Decision {
	quoted := make([]string, len(service.Recorded.Addresses))
	for i, address := range service.Recorded.Addresses {
		quoted[i] = `"` + address.String() + `"`
	}
	return Decision{
		Verdict:    Foreign,
		Addresses:  service.Recorded.Addresses,
		Renumbered: service.Recorded.Renumbered,
		Reason: *reason.New(reason.ForeignAddress, "the status holds %s, which Berth did not give and which no pool open to this Service may give%s",
			strings.Join(quoted, " and "), more),
	}
}

// answer is the answer for one family: what is held, what it is to be, or why it stays as it is.
type answer struct {
	family  cluster.Family
	current held             // what is held; the zero value if nothing is
	moving  bool             // what is held is in no pool, and the owner consents to another address
	joined  held             // what the Service could share with others of its key; the zero value for nothing
	chosen  held             // what is to be held; the zero value for nothing
	refusal *reason.Reason   // why the wish is not met; nil if it is
	also    []*reason.Reason // refusals that are as true
	waits   []waitKey        // what would help
	unasked bool             // a request leaves this family out: nothing is wanted
	stays   bool             // nothing changes, because another family cannot be had
}

// keep makes the answer: as it is, for that reason.
func (a *answer) keep(refusal *reason.Reason, waits ...waitKey) {
	a.chosen, a.refusal, a.waits = a.current, refusal, waits
}

// answer answers for one family.
func (l *Ledger) answer(service *cluster.Service, a *answer) {
	switch {
	case service.RequestProblem != nil:
		a.keep(service.RequestProblem)
	case len(service.Request) > 0:
		l.request(service, a)
	case service.RequestPool != "":
		l.fromRequestedPool(service, a)
	case a.current.address.IsValid() && !a.moving:
		a.keep(nil)
	default:
		l.fromAnyPool(service, a)
	}
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
	pool, refusals := l.refuse(service, address, a.current)
	switch {
	case len(refusals) > 0:
		a.keep(refusals[0], l.helps(service, address, refusals[0].Word)...)
		a.also = refusals[1:]
	case a.current.address == address:
		a.keep(nil)
	default:
		a.chosen = held{address, pool.Name}
	}
}

// helps is what a Service waits for that is refused a certain address. For the rest, pools have to change.
func (l *Ledger) helps(service *cluster.Service, address netip.Addr, why reason.Word) []waitKey {
	switch why {
	case reason.AddressInUse, reason.AddressSkipped, reason.SharingRefused, reason.CoolingDown:
		return []waitKey{{address: address}}
	case reason.QuotaExceeded:
		return []waitKey{{place: place{l.pools.of(address).Name, cluster.FamilyOf(address), service.Name.Namespace}}, {company: address}}
	default:
		return nil
	}
}

// refuse says why the Service cannot have an address it asks for: all that is true, the first to be told; nothing, with
// its pool, if it can. One it holds is its own whatever the pools say now, unless it asks for another pool in the same
// breath.
func (l *Ledger) refuse(service *cluster.Service, address netip.Addr, current held) (*poolIndex, []*reason.Reason) {
	pool := l.pools.of(address)
	holds, wish := current.address == address, service.RequestPool
	switch {
	case holds && (wish == "" || current.pool == wish):
		return pool, nil
	case wish != "" && (pool == nil || pool.Name != wish):
		return nil, []*reason.Reason{reason.New(reason.NotInPool, "%s is not in pool %s, which the Service asks for too", address, wish)}
	case holds:
		return pool, nil
	}
	return pool, l.refuseFresh(service, address, pool)
}

// refuseFresh says why the Service cannot have an address that it does not hold: all that is true; nothing if it can.
// pool is the one that contains it.
func (l *Ledger) refuseFresh(service *cluster.Service, address netip.Addr, pool *poolIndex) []*reason.Reason {
	if pool == nil {
		return []*reason.Reason{l.inNoPool(service, address)}
	}
	if !l.open(pool, service) {
		return []*reason.Reason{notOpen(pool)}
	}
	var refusals []*reason.Reason
	for _, refusal := range []*reason.Reason{
		l.refuseReserved(service, address),
		l.refuseSkipped(service, address, pool),
		refuseBuggy(address, pool),
		l.refuseCooling(service, address, pool),
		l.refuseHeld(service, address, pool),
	} {
		if refusal != nil {
			refusals = append(refusals, refusal)
		}
	}
	if refusal := l.refuseByQuota(service, pool, cluster.FamilyOf(address)); refusal != nil && !l.heldInNamespace(service, address) {
		refusals = append(refusals, refusal)
	}
	return refusals
}

// inNoPool is the reason that no pool has an address: one that is open to the Service leaves it out, or none was meant to.
func (l *Ledger) inNoPool(service *cluster.Service, address netip.Addr) *reason.Reason {
	for _, pool := range l.pools.ordered {
		if containsAddress(pool.Excluded, address) && l.open(pool, service) {
			return reason.New(reason.AddressSkipped, "%s is left out by pool %s: exclude", address, pool.Name)
		}
	}
	return reason.New(reason.NotInPool, "%s is in no pool", address)
}

func (l *Ledger) refuseReserved(service *cluster.Service, address netip.Addr) *reason.Reason {
	if corner := l.pools.at(address).corner; corner != nil && corner.reservation.Service != service.Name {
		return reason.New(reason.Reserved, "%s is reserved for Service %s by AddressReservation %s",
			address, corner.reservation.Service, corner.reservation.Name)
	}
	return nil
}

func (l *Ledger) refuseSkipped(service *cluster.Service, address netip.Addr, pool *poolIndex) *reason.Reason {
	var own []cluster.Name
	if slices.Contains(service.ClusterAddresses, address) { // the ledger may not know of it yet
		own = append(own, service.Name)
	}
	if why := l.skip.why(address, own...); why != "" {
		return reason.New(reason.AddressSkipped, "%s of pool %s is %s", address, pool.Name, why)
	}
	return nil
}

func refuseBuggy(address netip.Addr, pool *poolIndex) *reason.Reason {
	if pool.free(cluster.FamilyOf(address)).skips(address) {
		return reason.New(reason.AddressSkipped, "%s is left out by pool %s: avoidBuggyIPs", address, pool.Name)
	}
	return nil
}

func (l *Ledger) refuseCooling(service *cluster.Service, address netip.Addr, pool *poolIndex) *reason.Reason {
	if one, cools := l.cooling.byAddress[address]; cools && one.Service != service.Name {
		return reason.New(reason.CoolingDown, "%s was Service %s's, and pool %s keeps it from others until %s",
			address, one.Service, pool.Name, one.Until.UTC().Format(time.RFC3339))
	}
	return nil
}

func (l *Ledger) refuseHeld(service *cluster.Service, address netip.Addr, pool *poolIndex) *reason.Reason {
	switch other, why := l.refuseCompany(service, address, pool.Pool); {
	case why == "":
		return nil
	case service.SharingKey == "" || other.SharingKey != service.SharingKey:
		return reason.New(reason.AddressInUse, "%s is held by Service %s", address, other.Name)
	default:
		return reason.New(reason.SharingRefused, "%s is held by Service %s of the same sharing key, but %s", address, other.Name, why)
	}
}

// notOpen is the reason that a pool is for others.
func notOpen(pool *poolIndex) *reason.Reason {
	return reason.New(reason.PoolNotOpen, "pool %s is not open to this Service: see serviceAllocation there", pool.Name)
}

// fromRequestedPool answers a wish for a pool (rule A4): what is held from it stays, else its lowest free address.
func (l *Ledger) fromRequestedPool(service *cluster.Service, a *answer) {
	name := service.RequestPool
	if !l.leaves(service, a.current) && a.current.address.IsValid() && !a.moving {
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
		l.takeFrom(service, a, []*poolIndex{pool})
	}
}

// leaves is true if the Service asks for another pool than the one of an address it holds, or consents to leave it.
func (l *Ledger) leaves(service *cluster.Service, one held) bool {
	return service.RequestPool != "" && one.pool != service.RequestPool || consents(service) && !l.inPool(one.address)
}

// fromAnyPool gives a fresh address from the pools that assign by themselves, in their order (rule A4).
func (l *Ledger) fromAnyPool(service *cluster.Service, a *answer) {
	var candidates []*poolIndex
	for _, pool := range l.pools.ordered {
		if pool.AutoAssign && pool.has(a.family) && l.open(pool, service) {
			candidates = append(candidates, pool)
		}
	}
	l.takeFrom(service, a, candidates)
}

// takeFrom gives a Service an address: what is reserved for it, what it had, what it can share, or the lowest free one of
// the first pool that has one. Else it waits for all of them.
func (l *Ledger) takeFrom(service *cluster.Service, a *answer, candidates []*poolIndex) {
	if l.fromReservation(service, a) || l.fromCooling(service, a, false) {
		return
	}
	if a.joined.address.IsValid() {
		a.chosen = a.joined
		return
	}
	if len(candidates) == 0 {
		a.keep(reason.New(reason.NoPool, "no pool that assigns by itself is open to this Service and has %s addresses", a.family))
		return
	}
	var over []*reason.Reason
	var waits []waitKey
	for _, pool := range candidates {
		if refusal := l.refuseByQuota(service, pool, a.family); refusal != nil {
			over = append(over, refusal)
			waits = append(waits, waitKey{place: place{pool.Name, a.family, service.Name.Namespace}})
			continue
		}
		if address, free := pool.free(a.family).lowest(service.ClusterAddresses); free {
			a.chosen = held{address, pool.Name}
			return
		}
		waits = append(waits, waitKey{place: place{pool: pool.Name, family: a.family}})
	}
	if service.SharingKey != "" {
		waits = append(waits, waitKey{sharingKey: service.SharingKey})
	}
	why := nothingLeft(candidates, a.family)
	if len(over) == len(candidates) {
		a.keep(over[0], waits...)
	} else {
		a.keep(why, waits...)
	}
	a.also = append(over, why) //nolint:gocritic // over is not used again
}

// nothingLeft is the reason that pools have no address left, in a wording that stays true whichever of them are full and
// in which the Service's namespace has all it may have.
func nothingLeft(candidates []*poolIndex, family cluster.Family) *reason.Reason {
	if len(candidates) == 1 {
		return reason.New(reason.PoolFull, "pool %s has no free %s address", candidates[0].Name, family)
	}
	const most = 10 // who looks for a way out needs no more, and there may be thousands
	var names []string
	for _, pool := range candidates[:min(len(candidates), most)] {
		names = append(names, pool.Name)
	}
	list := strings.Join(names, ", ")
	if len(candidates) > most {
		list += fmt.Sprintf(" and %d more", len(candidates)-most)
	}
	return reason.New(reason.PoolFull, "pools %s have no free %s address for this Service", list, family)
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
		answers[i].chosen, answers[i].stays = answers[i].current, true
		if refusal != nil {
			answers[i].refusal, answers[i].also, answers[i].waits = refusal, nil, nil
		}
	}
}
