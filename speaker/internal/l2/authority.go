package l2

import (
	"maps"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/berthlb/berth/internal/announce"
)

// confirmedFor is how long the agent's word that its claims are right holds (rule P1). A process that was stopped and runs
// again is silent until its agent has looked again.
const confirmedFor = time.Second

// authority says whether a frame for an address may be sent at this moment. It is safe for concurrent use, and asked for
// every frame: nothing waits on anything.
type authority struct {
	start     time.Time    // times below count from here, on the monotonic clock
	confirmed atomic.Int64 // the last confirmation in nanoseconds; negative: none yet
	held      atomic.Pointer[map[netip.Addr]standing]
}

// standing is how this node stands to an address of its claims.
type standing int

const (
	owner  standing = iota + 1
	handed          // it answers until it hears the new owner
	silent          // it has
)

func newAuthority() *authority {
	a := &authority{start: time.Now()}
	a.confirmed.Store(-1)
	a.own(nil)
	return a
}

// own makes the addresses of the claims those that may be answered for. One whose new owner was heard stays silent for as
// long as it is handed over.
func (a *authority) own(claims []announce.Claim) {
	for {
		before := a.held.Load()
		held := make(map[netip.Addr]standing, len(claims))
		for _, claim := range claims {
			switch {
			case !claim.HandedOver:
				held[claim.Address] = owner
			case before != nil && (*before)[claim.Address] == silent:
				held[claim.Address] = silent
			default:
				held[claim.Address] = handed
			}
		}
		if a.held.CompareAndSwap(before, &held) {
			return
		}
	}
}

// heard takes in that another node says it has an address.
func (a *authority) heard(address netip.Addr) {
	for {
		before := a.held.Load()
		if (*before)[address] != handed {
			return
		}
		held := maps.Clone(*before)
		held[address] = silent
		if a.held.CompareAndSwap(before, &held) {
			return
		}
	}
}

// confirm notes that the agent has just confirmed what is owned.
func (a *authority) confirm() { a.confirmed.Store(int64(time.Since(a.start))) }

// current is true while the last confirmation holds.
func (a *authority) current() bool {
	confirmed := a.confirmed.Load()
	return confirmed >= 0 && time.Since(a.start)-time.Duration(confirmed) <= confirmedFor
}

// owns is true if the newest claims hold the address, and it is not handed over.
func (a *authority) owns(address netip.Addr) bool { return (*a.held.Load())[address] == owner }

// answers is true if requests for the address are answered.
func (a *authority) answers(address netip.Addr) bool {
	standing := (*a.held.Load())[address]
	return standing == owner || standing == handed
}
