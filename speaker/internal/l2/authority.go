package l2

import (
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
	owned     atomic.Pointer[map[netip.Addr]struct{}]
}

func newAuthority() *authority {
	a := &authority{start: time.Now()}
	a.confirmed.Store(-1)
	a.own(nil)
	return a
}

// own makes the addresses of the claims the owned ones.
func (a *authority) own(claims []announce.Claim) {
	owned := make(map[netip.Addr]struct{}, len(claims))
	for _, claim := range claims {
		owned[claim.Address] = struct{}{}
	}
	a.owned.Store(&owned)
}

// confirm notes that the agent has just confirmed what is owned.
func (a *authority) confirm() { a.confirmed.Store(int64(time.Since(a.start))) }

// current is true while the last confirmation holds.
func (a *authority) current() bool {
	confirmed := a.confirmed.Load()
	return confirmed >= 0 && time.Since(a.start)-time.Duration(confirmed) <= confirmedFor
}

// owns is true if the newest claims hold the address.
func (a *authority) owns(address netip.Addr) bool {
	_, owns := (*a.owned.Load())[address]
	return owns
}
