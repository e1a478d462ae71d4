package assign

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
)

// The longest that an address cools down, as the pools' rule of form has it, and how often the clock is read while one
// does: the wall clock may be set, and a machine may sleep.
const (
	longestCooling = 24 * time.Hour
	alarmPeriod    = time.Minute
)

// alarm rings when an address may have cooled down (rule A9).
type alarm struct{ timer *time.Timer }

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// tick sets the ledger's clock, and wakes whom that helps. The wall clock counts, since what it says must mean the same
// after a restart. The caller holds the lock.
func (a *Assigner) tick() {
	a.wake(a.ledger.Tick(time.Now().Round(0)))
}

// setAlarm has the ledger's clock set when the next address has cooled down. The caller holds the lock.
func (a *Assigner) setAlarm() {
	a.alarm.stop()
	next, cools := a.ledger.NextExpiry()
	if !cools || a.ended {
		return
	}
	a.alarm.timer = time.AfterFunc(min(time.Until(next), alarmPeriod), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.tick()
		a.setAlarm()
		a.Changed()
	})
}

// coolings reads what the pools' statuses say is cooling down, from the API server: a cache may lag behind what the last
// leader wrote.
func (a *Assigner) coolings(ctx context.Context) ([]ipam.Cooling, error) {
	pools, err := a.Pools.Pools(ctx)
	if err != nil {
		return nil, err
	}
	var all []ipam.Cooling
	for i := range pools {
		all = append(all, readCoolings(pools[i].Status.Quarantine, time.Now())...)
	}
	return all, nil
}

// readCoolings reads a pool's list. What cannot be read is left out, and nothing is kept for longer than any pool may
// keep it.
func readCoolings(list []v1beta1.QuarantinedAddress, now time.Time) []ipam.Cooling {
	var read []ipam.Cooling
	for i := range list {
		address, err := netip.ParseAddr(list[i].Address)
		namespace, name, isName := strings.Cut(list[i].Service, "/")
		if err != nil || address.Zone() != "" || !isName {
			continue
		}
		until := list[i].Until.Time
		if latest := now.Add(longestCooling); until.After(latest) {
			until = latest
		}
		read = append(read, ipam.Cooling{
			Address: address.Unmap(), Service: cluster.Name{Namespace: namespace, Name: name}, Until: until.Round(0),
		})
	}
	return read
}
