package ipam

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/btree"

	"github.com/berthlb/berth/internal/cluster"
)

// Cooling is an address that was freed and is kept from all but the Service that had it (rule A9, releaseDelay of pools).
type Cooling struct {
	Address netip.Addr
	Service cluster.Name
	Until   time.Time
}

// cooling is every address that cools down, by address, by Service and by when it has.
type cooling struct {
	byAddress map[netip.Addr]Cooling
	byService map[cluster.Name][]netip.Addr
	byEnd     *btree.BTreeG[Cooling]
}

func newCooling() cooling {
	less := func(a, b Cooling) bool { return cmp.Or(a.Until.Compare(b.Until), a.Address.Compare(b.Address)) < 0 }
	return cooling{
		byAddress: map[netip.Addr]Cooling{},
		byService: map[cluster.Name][]netip.Addr{},
		byEnd:     btree.NewG(degree, less),
	}
}

func (c *cooling) add(one Cooling) {
	c.remove(one.Address)
	c.byAddress[one.Address] = one
	c.byService[one.Service] = append(slices.Clip(c.byService[one.Service]), one.Address)
	c.byEnd.ReplaceOrInsert(one)
}

func (c *cooling) remove(address netip.Addr) {
	one, has := c.byAddress[address]
	if !has {
		return
	}
	delete(c.byAddress, address)
	c.byEnd.Delete(one)
	rest := slices.DeleteFunc(slices.Clone(c.byService[one.Service]), func(a netip.Addr) bool { return a == address })
	if c.byService[one.Service] = rest; len(rest) == 0 {
		delete(c.byService, one.Service)
	}
}

// clone is a copy that can be changed.
func (c *cooling) clone() cooling {
	return cooling{
		byAddress: maps.Clone(c.byAddress),
		byService: maps.Clone(c.byService), // the lists themselves are never changed
		byEnd:     c.byEnd.Clone(),
	}
}

// AdoptCooling takes over what the pools' statuses say is cooling down, before Adopt.
func (l *Ledger) AdoptCooling(list []Cooling) {
	for _, one := range list {
		l.cooling.add(one)
		l.keepFree(one.Address)
	}
}

// Tick sets the ledger's clock. What has cooled down by then is free for everybody; the Services that this may help are
// returned. The clock is wall time: it has to mean the same after a restart.
func (l *Ledger) Tick(now time.Time) []cluster.Name {
	l.now = now
	wakes := woken{}
	for {
		first, cools := l.cooling.byEnd.Min()
		if !cools || first.Until.After(now) {
			return wakes.names()
		}
		l.cooling.remove(first.Address)
		l.offer(first.Address, wakes)
		l.waiting.all(waitKey{address: first.Address}, wakes)
	}
}

// NextExpiry is when the next address has cooled down; false if none is cooling.
func (l *Ledger) NextExpiry() (time.Time, bool) {
	first, cools := l.cooling.byEnd.Min()
	return first.Until, cools
}

// cool keeps a freed address from others if its pool says so.
func (l *Ledger) cool(address netip.Addr, had cluster.Name) {
	if pool := l.pools.of(address); pool != nil && pool.ReleaseDelay > 0 {
		l.cooling.add(Cooling{Address: address, Service: had, Until: l.now.Add(pool.ReleaseDelay)})
	}
}

// fromCooling gives a Service back what it had, where that is cooling down and it may have it; with reserved, only what
// is reserved for it.
func (l *Ledger) fromCooling(service *cluster.Service, a *answer, reserved bool) bool {
	var back held
	for _, address := range l.cooling.byService[service.Name] {
		at := l.pools.at(address)
		switch {
		case at == nil, cluster.FamilyOf(address) != a.family, reserved && at.corner == nil, !l.joinable(service, address, at.pool):
		case !back.address.IsValid() || address.Less(back.address):
			back = held{address, at.pool.Name}
		}
	}
	if !back.address.IsValid() {
		return false
	}
	a.chosen = back
	return true
}
