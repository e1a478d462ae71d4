package ipam

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

// Ledger knows who holds what. It is not safe for concurrent use: decisions are serial (its owner holds a lock), writes
// of statuses are not. It keeps the Services it is given and never changes them.
type Ledger struct {
	entries    map[cluster.Name]*entry
	holders    map[netip.Addr]holders
	waiting    waiting
	keys       map[string]map[*entry]struct{} // sharing key → Services that have it
	used       map[place]int64                // how much of their quotas namespaces use
	cooling    cooling
	now        time.Time
	skip       skipped
	skippedIn  map[*poolIndex][]Skipped // as far as it was asked for, see skippedOf
	pools      pools
	picture    Cluster
	namespaces map[string]*cluster.Namespace
}

// Cluster is the part of the picture that the indexes are built from.
type Cluster struct {
	Pools        []*cluster.Pool
	Reservations []*cluster.Reservation
	Nodes        []*cluster.Node
	Gateways     []Gateway
	Namespaces   map[string]*cluster.Namespace
	ServiceCIDRs []netip.Prefix
}

// Gateway is a default gateway of a node, as its speaker reports it.
type Gateway struct {
	Address netip.Addr
	Node    string
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

// holders are the Services that hold an address, in the order in which they came: several where they share it, or where
// one of them still has it in its status and has to move.
type holders struct {
	first *entry // most addresses have one holder, and there are many addresses
	more  []*entry
}

// each are the holders.
func (h holders) each() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if h.first == nil || !yield(h.first) {
			return
		}
		for _, e := range h.more {
			if !yield(e) {
				return
			}
		}
	}
}

// has is true if the entry is one of them.
func (h holders) has(e *entry) bool { return h.first == e || slices.Contains(h.more, e) }

// without are the holders less one.
func (h holders) without(e *entry) holders {
	switch {
	case h.first != e:
		return holders{h.first, slices.DeleteFunc(slices.Clone(h.more), func(other *entry) bool { return other == e })}
	case len(h.more) > 0:
		return holders{h.more[0], h.more[1:]}
	default:
		return holders{}
	}
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
		entries:   map[cluster.Name]*entry{},
		holders:   map[netip.Addr]holders{},
		waiting:   waiting{},
		keys:      map[string]map[*entry]struct{}{},
		used:      map[place]int64{},
		cooling:   newCooling(),
		skippedIn: map[*poolIndex][]Skipped{},
		skip:      skipped{services: map[netip.Addr][]cluster.Name{}},
	}
}

// SetCluster takes in the pools, nodes, namespaces and networks. It rebuilds the indexes where one of them changed and
// moves nothing; Plan says who has another answer now.
func (l *Ledger) SetCluster(picture Cluster) {
	same := slices.Equal(l.picture.Pools, picture.Pools) && slices.Equal(l.picture.Reservations, picture.Reservations) &&
		slices.Equal(l.picture.Nodes, picture.Nodes) && slices.Equal(l.picture.Gateways, picture.Gateways) &&
		slices.Equal(l.picture.ServiceCIDRs, picture.ServiceCIDRs)
	l.picture = picture
	l.namespaces = picture.Namespaces
	if same {
		return
	}
	l.skip.setCluster(picture.Nodes, picture.Gateways, picture.ServiceCIDRs)
	l.pools = newPools(picture.Pools, picture.Reservations, &l.skip)
	for address := range l.holders {
		l.occupy(address)
	}
	for address := range l.cooling.byAddress {
		l.keepFree(address)
	}
	l.skippedIn = map[*poolIndex][]Skipped{}
	l.recountQuotas()
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
	l.index(e)
	switch {
	case len(own) == 0 && len(lost) == 0 && service.Ours && !service.Recorded.ByUs && l.isForeign(service):
		e.foreign = slices.Clone(service.Recorded.Addresses)
	case service.Ours || service.Recorded.ByUs:
		e.maybe = slices.Clone(service.Recorded.Addresses)
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
	var before []held // nobody has heard of what a Service comes with
	if e == nil {
		e = l.enter(service, wakes)
		l.entries[service.Name] = e
	} else {
		before = e.wanted
	}
	l.replaceService(e, service, wakes)
	l.want(e, decision, wakes)
	l.invite(e, before, wakes)
	l.giveWay(e)
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

// invite wakes those of the same key, where the Service has come to a right to an address that they might share, and those
// that share it already.
func (l *Ledger) invite(e *entry, before []held, wakes woken) {
	for _, one := range e.wanted {
		if contains(before, one.address) {
			continue
		}
		if key := e.service.SharingKey; key != "" {
			l.waiting.all(waitKey{sharingKey: key}, wakes)
		}
		l.reconsider(one.address, wakes)
	}
}

// inviteTo wakes those of the same key as the holders of an address that they might share now.
func (l *Ledger) inviteTo(current holders, wakes woken) {
	for e := range current.each() {
		if key := e.service.SharingKey; key != "" {
			l.waiting.all(waitKey{sharingKey: key}, wakes)
		}
	}
}

// giveWay makes what the Service has in its status, and cannot have together with others any more, something that it
// merely still has: were the write refused, it would not be its own again.
func (l *Ledger) giveWay(e *entry) {
	lost := func(one held) bool { return !contains(e.wanted, one.address) && l.rival(e.service, one.address) != nil }
	for _, one := range e.stored {
		if lost(one) && !slices.Contains(e.maybe, one.address) {
			e.maybe = append(slices.Clip(e.maybe), one.address)
		}
	}
	e.stored = slices.DeleteFunc(slices.Clone(e.stored), lost)
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
	l.unindex(e)
	e.service = service
	l.index(e)
	l.waiting.add(service, e.last.waits)
	if !sameSharing(old, service) {
		l.waiting.all(waitKey{sharingKey: service.SharingKey}, wakes)
		l.tell(e, wakes)
	}
	if !old.Recorded.Since.Equal(service.Recorded.Since) { // another one may have come first now
		for _, address := range e.all() {
			l.reconsider(address, wakes)
			if len(l.holders[address].more) > 0 {
				l.waiting.all(waitKey{address: address}, wakes) // they are told whose it is
			}
		}
	}
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

// tell wakes those whose answer may depend on how the Service shares what it holds: who waits for it, and who holds it too.
func (l *Ledger) tell(e *entry, wakes woken) {
	for _, address := range e.all() {
		l.waiting.all(waitKey{address: address}, wakes)
		for other := range l.holders[address].each() {
			if other != e {
				wakes.add(other.service)
			}
		}
	}
}

// index notes whose key the Service has.
func (l *Ledger) index(e *entry) {
	key := e.service.SharingKey
	if key == "" {
		return
	}
	if l.keys[key] == nil {
		l.keys[key] = map[*entry]struct{}{}
	}
	l.keys[key][e] = struct{}{}
}

// unindex ends that.
func (l *Ledger) unindex(e *entry) {
	key := e.service.SharingKey
	delete(l.keys[key], e)
	if len(l.keys[key]) == 0 {
		delete(l.keys, key)
	}
}

// Settle notes what became of the write of the last decision about a Service.
func (l *Ledger) Settle(name cluster.Name, outcome Outcome) []cluster.Name {
	e := l.entries[name]
	if e == nil || outcome == Unknown {
		return nil
	}
	before, wanted := e.all(), e.wanted
	published := slices.Concat(e.maybe, addressesOf(e.stored))
	if outcome == Written {
		e.stored, e.maybe = e.wanted, nil
	} else {
		e.wanted = e.stored
	}
	wakes := woken{}
	l.invite(e, wanted, wakes)
	after := e.all()
	for _, address := range before {
		if !slices.Contains(after, address) {
			l.removeHolder(address, e, slices.Contains(published, address), wakes)
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
	return wakes.names()
}

// drop ends an entry and frees everything it has.
func (l *Ledger) drop(e *entry, wakes woken) {
	delete(l.entries, e.service.Name)
	l.waiting.remove(e.service, e.last.waits)
	for _, address := range e.all() {
		l.removeHolder(address, e, true, wakes)
	}
	l.unindex(e)
	for _, address := range e.service.ClusterAddresses {
		l.unskipForService(address, e.service.Name, wakes)
	}
	l.passOn(e, wakes)
}

// addHolder makes an entry hold an address.
func (l *Ledger) addHolder(address netip.Addr, e *entry, wakes woken) {
	current := l.holders[address]
	if current.has(e) {
		return
	}
	l.countForQuota(address, e, +1, wakes)
	if current.first == nil {
		l.holders[address] = holders{first: e}
		l.cooling.remove(address)
		l.occupy(address)
	} else {
		current.more = append(slices.Clone(current.more), e)
		l.holders[address] = current
	}
	l.waiting.all(waitKey{address: address}, wakes)
	l.waiting.all(waitKey{company: address}, wakes)
}

// removeHolder ends an entry's holding an address. published is true if it may have been in the Service's status.
func (l *Ledger) removeHolder(address netip.Addr, e *entry, published bool, wakes woken) {
	rest := l.holders[address].without(e)
	if rest.first == nil {
		delete(l.holders, address)
	} else {
		l.holders[address] = rest
	}
	l.countForQuota(address, e, -1, wakes)
	l.inviteTo(rest, wakes)
	l.reconsider(address, wakes)
	if rest.first == nil {
		l.vacate(address, e.service.Name, published, wakes)
	}
	l.waiting.all(waitKey{address: address}, wakes) // to have it, or to be told who has it now (P8)
}

// occupy notes in the index that an address is held now.
func (l *Ledger) occupy(address netip.Addr) {
	if at := l.pools.at(address); at != nil {
		family := cluster.FamilyOf(address)
		at.stock().free(family).take(address)
		*at.pool.held(family)++
	}
}

// keepFree notes in the index that an address that nobody holds is not to be given to everybody.
func (l *Ledger) keepFree(address netip.Addr) {
	if at := l.pools.at(address); at != nil {
		at.stock().free(cluster.FamilyOf(address)).take(address)
	}
}

// vacate notes in the index that nobody holds an address any more, and wakes who waits for one of its pool, unless it has
// to cool down first.
func (l *Ledger) vacate(address netip.Addr, had cluster.Name, published bool, wakes woken) {
	if pool := l.pools.of(address); pool != nil {
		*pool.held(cluster.FamilyOf(address))--
	}
	if published {
		l.cool(address, had)
	}
	l.offer(address, wakes)
}

// offer makes an address free unless it is held, cools down or is to be skipped, and wakes who waits for one of its pool,
// or for this one because it is reserved, was its own, or may share it.
func (l *Ledger) offer(address netip.Addr, wakes woken) {
	at := l.pools.at(address)
	family := cluster.FamilyOf(address)
	if at == nil || l.skip.has(address) || at.pool.free(family).skips(address) {
		return
	}
	if current := l.holders[address]; current.first != nil {
		l.inviteTo(current, wakes)
		return
	}
	if one, cools := l.cooling.byAddress[address]; cools { // only who had it may have it again
		if e := l.entries[one.Service]; e != nil && len(e.last.waits) > 0 {
			wakes.add(e.service)
		}
		return
	}
	at.stock().free(family).give(address)
	key := waitKey{place: place{pool: at.pool.Name, family: family}}
	if at.corner != nil {
		key = waitKey{reservedFor: at.corner.reservation.Service}
	}
	wakes.add(l.waiting.first(key))
}

// skipForService keeps a Service's own address from being handed out (rule A5). Who waits for it is told, also where only
// the Service to name changes.
func (l *Ledger) skipForService(address netip.Addr, name cluster.Name, wakes woken) {
	l.skip.addService(address, name)
	delete(l.skippedIn, l.pools.of(address))
	l.keepFree(address)
	if at := l.pools.at(address); at != nil && at.corner != nil {
		wakes.add(l.waiting.first(waitKey{reservedFor: at.corner.reservation.Service}))
	}
	l.waiting.all(waitKey{address: address}, wakes)
}

// unskipForService ends that.
func (l *Ledger) unskipForService(address netip.Addr, name cluster.Name, wakes woken) {
	delete(l.skippedIn, l.pools.of(address))
	if l.skip.removeService(address, name) {
		l.offer(address, wakes)
	}
	l.waiting.all(waitKey{address: address}, wakes)
}

// available is true if what the key stands for can be had, by the next in line as well.
func (l *Ledger) available(key waitKey) bool {
	switch {
	case key.address.IsValid():
		at := l.pools.at(key.address)
		return at != nil && at.stock().free(cluster.FamilyOf(key.address)).has(key.address)
	case key.place.namespace != "":
		pool := l.pools.byName[key.place.pool]
		return pool != nil && l.used[key.place] < pool.QuotaPerNamespace
	case key.place.pool != "":
		pool := l.pools.byName[key.place.pool]
		return pool != nil && pool.free(key.place.family).any()
	default: // all who wait for company or a key are woken, and nobody else waits for what is reserved
		return false
	}
}

// clone is a copy that can be changed.
func (l *Ledger) clone() *Ledger {
	copied := &Ledger{
		entries:    make(map[cluster.Name]*entry, len(l.entries)),
		holders:    make(map[netip.Addr]holders, len(l.holders)),
		waiting:    l.waiting.clone(),
		keys:       make(map[string]map[*entry]struct{}, len(l.keys)),
		used:       maps.Clone(l.used),
		cooling:    l.cooling.clone(),
		now:        l.now,
		skippedIn:  map[*poolIndex][]Skipped{},
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
		copied.index(&twin)
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
