package ipam

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/berthlb/berth/internal/cluster"
)

// Ledger knows who holds what. It is not safe for concurrent use: decisions are serial (its owner holds a lock), writes
// of statuses are not. It keeps the Services it is given and never changes them.
type Ledger struct {
	entries    map[cluster.Name]*entry
	holders    map[netip.Addr]holders
	waiting    waiting
	skip       skipped
	pools      pools
	picture    Cluster
	namespaces map[string]*cluster.Namespace
}

// Cluster is the part of the picture that the indexes are built from.
type Cluster struct {
	Pools        []*cluster.Pool
	Nodes        []*cluster.Node
	Namespaces   map[string]*cluster.Namespace
	ServiceCIDRs []netip.Prefix
}

// entry is what the Ledger knows about a Service.
//
// An address is held by the Service if it is in one of the four lists. wanted is the newest answer. stored is what the
// status had when we last knew it; the two differ while a write is on its way. maybe is what the status may have
// besides: what a write of unknown outcome wrote, and what it had that is not to stay. foreign is what the status has
// that is not from Berth: nobody else gets it either (rule A14).
type entry struct {
	service *cluster.Service // as it was when last decided about
	wanted  []held
	stored  []held
	maybe   []netip.Addr
	foreign []netip.Addr

	decided bool // last is an answer
	last    Decision
	// promised is what Plan let the Service have on paper: who came after it there was told nothing.
	promised []waitKey
}

// all is every address the entry holds, each once.
func (e *entry) all() []netip.Addr {
	addresses := slices.Concat(e.maybe, e.foreign)
	for _, list := range [][]held{e.wanted, e.stored} {
		for _, one := range list {
			if !slices.Contains(addresses, one.address) {
				addresses = append(addresses, one.address)
			}
		}
	}
	return addresses
}

// holders are the Services that hold an address: the one whose it is, and others that still have it in their status.
// Here is the seam for shared addresses (rule A7): today a second holder is always one that has to move.
type holders struct {
	first *entry
	more  []*entry
}

// Outcome is what became of the write of a status.
type Outcome uint8

const (
	// Written means: the status is as decided, whether it was written now or needed no writing.
	Written Outcome = iota
	// NotWritten means: the status is certainly as it was before.
	NotWritten
	// Unknown means: the request went out and no answer came back. Old and new addresses stay held until a later write or
	// look at the live object settles it.
	Unknown
)

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		entries: map[cluster.Name]*entry{},
		holders: map[netip.Addr]holders{},
		waiting: waiting{},
		skip:    skipped{services: map[netip.Addr][]cluster.Name{}},
	}
}

// SetCluster takes in the pools, nodes, namespaces and networks. It rebuilds the indexes where one of them changed and
// moves nothing; Plan says who has another answer now.
func (l *Ledger) SetCluster(picture Cluster) {
	same := slices.Equal(l.picture.Pools, picture.Pools) && slices.Equal(l.picture.Nodes, picture.Nodes) &&
		slices.Equal(l.picture.ServiceCIDRs, picture.ServiceCIDRs)
	l.picture = picture
	l.namespaces = picture.Namespaces
	if same {
		return
	}
	l.skip.setCluster(picture.Nodes, picture.ServiceCIDRs)
	l.pools = newPools(picture.Pools, &l.skip)
	for address := range l.holders {
		l.occupy(address)
	}
}

// Adopt takes in all Services as their statuses are, before the first decision: what a status holds is held, in
// whatever order the Services come (rules A12, P18). Where two hold one address, it is the one's that got it first,
// then the older's, then the first's by name; the other moves when it is decided about. Addresses that are not from
// Berth come after all that are.
func (l *Ledger) Adopt(services []*cluster.Service) {
	foreign := map[*cluster.Service]bool{}
	for _, service := range services {
		foreign[service] = l.isForeign(service)
	}
	byClaim := slices.SortedFunc(slices.Values(services), func(a, b *cluster.Service) int {
		return cmp.Or(
			falseFirst(foreign[a], foreign[b]),
			falseFirst(a.Recorded.Since.IsZero(), b.Recorded.Since.IsZero()),
			a.Recorded.Since.Compare(b.Recorded.Since),
			older(a, b),
		)
	})
	for _, service := range byClaim {
		l.entries[service.Name] = l.enter(service, woken{}) // nobody waits yet
	}
}

// enter makes the entry of a Service that is not known yet.
func (l *Ledger) enter(service *cluster.Service, wakes woken) *entry {
	own, lost := l.claim(service)
	e := &entry{service: service, stored: own, wanted: own}
	switch {
	case len(own) > 0 || len(lost) > 0 || service.Recorded.ByUs:
		e.maybe = slices.Clone(service.Recorded.Addresses)
	case service.Ours:
		e.foreign = slices.Clone(service.Recorded.Addresses)
	}
	for _, address := range e.all() {
		l.addHolder(address, e, wakes)
	}
	for _, address := range service.ClusterAddresses {
		l.skipForService(address, service.Name, wakes)
	}
	return e
}

// Hold notes a decision before it is written. From now on the Service holds the new addresses as well as the old ones,
// until Settle.
func (l *Ledger) Hold(service *cluster.Service, decision Decision) []cluster.Name {
	wakes := woken{}
	e := l.entries[service.Name]
	if len(decision.waits) > 0 && e != nil && !sameSelf(e.service, service) {
		wakes.add(service) // it may wait for what it had itself until now
	}
	if e != nil && e.service.UID != service.UID { // deleted and made anew under the name, and nobody said so
		l.drop(e, wakes)
		e = nil
	}
	if e == nil {
		e = l.enter(service, wakes)
		l.entries[service.Name] = e
	}
	l.replaceService(e, service, wakes)
	l.want(e, decision, wakes)
	l.rewait(e, decision, wakes)
	e.last, e.decided = decision, true
	return wakes.names()
}

// want replaces what the Service is to have. What it had stays held until Settle, and so does an earlier answer whose
// write has an unknown outcome: it may still arrive.
func (l *Ledger) want(e *entry, decision Decision, wakes woken) {
	for _, address := range e.all() {
		if !contains(e.stored, address) && !slices.Contains(e.maybe, address) {
			e.maybe = append(slices.Clip(e.maybe), address) // a clone of the ledger has the same array
		}
	}
	e.wanted, e.foreign = nil, nil
	for i, address := range decision.Addresses {
		if decision.Verdict == Foreign {
			e.foreign = append(e.foreign, address)
		} else {
			e.wanted = append(e.wanted, held{address, decision.Pools[i]})
		}
		l.addHolder(address, e, wakes)
	}
}

// sameSelf is true if two states of a Service are of one object and have the same own addresses.
func sameSelf(a, b *cluster.Service) bool {
	return a.UID == b.UID && slices.Equal(a.ClusterAddresses, b.ClusterAddresses)
}

// rewait replaces what the Service waits for. What it waited for or was promised and can be had now, it has not needed:
// the next in line may have it.
func (l *Ledger) rewait(e *entry, decision Decision, wakes woken) {
	l.waiting.remove(e.service, e.last.waits)
	l.waiting.add(e.service, decision.waits)
	l.passOn(e, wakes)
}

// passOn wakes the next in line for what a Service waited for or was promised and has not taken.
func (l *Ledger) passOn(e *entry, wakes woken) {
	for _, key := range slices.Concat(e.last.waits, e.promised) {
		if l.available(key) {
			wakes.add(l.waiting.first(key))
		}
	}
	e.promised = nil
}

// replaceService notes the Service as it is now.
func (l *Ledger) replaceService(e *entry, service *cluster.Service, wakes woken) {
	old := e.service
	if old == service {
		return
	}
	l.waiting.remove(old, e.last.waits) // the trees hold the Service itself
	e.service = service
	l.waiting.add(service, e.last.waits)
	if slices.Equal(old.ClusterAddresses, service.ClusterAddresses) {
		return
	}
	for _, address := range service.ClusterAddresses {
		l.skipForService(address, service.Name, wakes)
	}
	for _, address := range old.ClusterAddresses {
		l.unskipForService(address, service.Name, wakes)
	}
}

// Settle notes what became of the write of the last decision about a Service.
func (l *Ledger) Settle(name cluster.Name, outcome Outcome) []cluster.Name {
	e := l.entries[name]
	if e == nil || outcome == Unknown {
		return nil
	}
	before := e.all()
	if outcome == Written {
		e.stored, e.maybe = e.wanted, nil
	} else {
		e.wanted = e.stored
	}
	wakes := woken{}
	after := e.all()
	for _, address := range before {
		if !slices.Contains(after, address) {
			l.removeHolder(address, e, wakes)
		}
	}
	return wakes.names()
}

// Release forgets a Service that is gone.
func (l *Ledger) Release(name cluster.Name) []cluster.Name {
	e := l.entries[name]
	if e == nil {
		return nil
	}
	wakes := woken{}
	l.drop(e, wakes)
	delete(l.entries, name)
	return wakes.names()
}

// drop frees everything an entry has.
func (l *Ledger) drop(e *entry, wakes woken) {
	l.waiting.remove(e.service, e.last.waits)
	for _, address := range e.all() {
		l.removeHolder(address, e, wakes)
	}
	for _, address := range e.service.ClusterAddresses {
		l.unskipForService(address, e.service.Name, wakes)
	}
	l.passOn(e, wakes)
}

// addHolder makes an entry hold an address.
func (l *Ledger) addHolder(address netip.Addr, e *entry, wakes woken) {
	current, taken := l.holders[address]
	switch {
	case !taken:
		l.holders[address] = holders{first: e}
		l.occupy(address)
		l.waiting.all(waitKey{address: address}, wakes)
	case current.first != e && !slices.Contains(current.more, e):
		current.more = append(slices.Clone(current.more), e)
		l.holders[address] = current
	}
}

// removeHolder ends an entry's holding an address.
func (l *Ledger) removeHolder(address netip.Addr, e *entry, wakes woken) {
	current := l.holders[address]
	switch {
	case current.first == e && len(current.more) > 0:
		l.holders[address] = holders{first: current.more[0], more: current.more[1:]}
	case current.first == e:
		delete(l.holders, address)
		l.vacate(address, wakes)
	default:
		others := slices.DeleteFunc(slices.Clone(current.more), func(other *entry) bool { return other == e })
		l.holders[address] = holders{first: current.first, more: others}
		return
	}
	l.waiting.all(waitKey{address: address}, wakes) // to have it, or to be told who has it now (P8)
}

// occupy notes in the index that an address is held now.
func (l *Ledger) occupy(address netip.Addr) {
	if pool := l.pools.of(address); pool != nil {
		family := cluster.FamilyOf(address)
		pool.free(family).take(address)
		*pool.held(family)++
	}
}

// vacate notes in the index that nobody holds an address any more, and wakes who waits for one of its pool.
func (l *Ledger) vacate(address netip.Addr, wakes woken) {
	pool := l.pools.of(address)
	if pool == nil {
		return
	}
	*pool.held(cluster.FamilyOf(address))--
	l.offer(address, pool, wakes)
}

// offer makes an address free unless it is to be skipped, and wakes who waits for one of its pool.
func (l *Ledger) offer(address netip.Addr, pool *poolIndex, wakes woken) {
	family := cluster.FamilyOf(address)
	if l.skip.has(address) || pool.free(family).skips(address) {
		return
	}
	pool.free(family).give(address)
	wakes.add(l.waiting.first(waitKey{pool: pool.Name, family: family}))
}

// skipForService keeps a Service's own address from being handed out (rule A5). Who waits for it is told, also where only
// the Service to name changes.
func (l *Ledger) skipForService(address netip.Addr, name cluster.Name, wakes woken) {
	l.skip.addService(address, name)
	if pool := l.pools.of(address); pool != nil {
		pool.free(cluster.FamilyOf(address)).take(address)
	}
	l.waiting.all(waitKey{address: address}, wakes)
}

// unskipForService ends that.
func (l *Ledger) unskipForService(address netip.Addr, name cluster.Name, wakes woken) {
	nobodys := l.skip.removeService(address, name)
	_, taken := l.holders[address]
	if pool := l.pools.of(address); pool != nil && nobodys && !taken {
		l.offer(address, pool, wakes)
	}
	l.waiting.all(waitKey{address: address}, wakes)
}

// available is true if what the key stands for can be had.
func (l *Ledger) available(key waitKey) bool {
	if !key.address.IsValid() {
		pool := l.pools.byName[key.pool]
		return pool != nil && pool.free(key.family).any()
	}
	pool := l.pools.of(key.address)
	return pool != nil && pool.free(cluster.FamilyOf(key.address)).has(key.address)
}

// clone is a copy that can be changed.
func (l *Ledger) clone() *Ledger {
	copied := &Ledger{
		entries:    make(map[cluster.Name]*entry, len(l.entries)),
		holders:    make(map[netip.Addr]holders, len(l.holders)),
		waiting:    l.waiting.clone(),
		skip:       l.skip.clone(),
		pools:      l.pools.clone(),
		picture:    l.picture,
		namespaces: maps.Clone(l.namespaces),
	}
	fresh := make(map[*entry]*entry, len(l.entries))
	for name, e := range l.entries {
		twin := *e
		copied.entries[name] = &twin
		fresh[e] = &twin
	}
	for address, current := range l.holders {
		twins := holders{first: fresh[current.first]}
		for _, e := range current.more {
			twins.more = append(twins.more, fresh[e])
		}
		copied.holders[address] = twins
	}
	return copied
}
