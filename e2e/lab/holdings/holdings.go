// Package holdings keeps account of which Services hold which addresses, from one state of the API server to the next: a
// look at the end cannot show what two Services held for a moment.
package holdings

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is a Service as it is from one moment on.
type State struct {
	Name      string // namespace/name
	UID       string
	Key       string // those with the same one may hold one address; empty: nobody
	Addresses []string
}

// Account follows Services. It is for one goroutine.
type Account struct {
	services map[string]State
	shared   map[pair]time.Time // since when two hold an address that they do not share
	breaches []string

	given, moved, lost, twice int
}

// pair is two Services on one address.
type pair struct{ address, first, second string }

// New makes an account of no Services.
func New() *Account {
	return &Account{services: map[string]State{}, shared: map[pair]time.Time{}}
}

// Set takes in a Service that is new or has changed.
func (a *Account) Set(now State, at time.Time) {
	before := a.services[now.Name]
	if before.UID != now.UID {
		before = State{}
	}
	a.services[now.Name] = now
	a.count(before, now)
	a.compare(at)
}

// Remove takes out a Service that is gone.
func (a *Account) Remove(name string, at time.Time) {
	delete(a.services, name)
	a.compare(at)
}

// count notes what became of a Service's own addresses.
func (a *Account) count(before, now State) {
	switch {
	case slices.Equal(before.Addresses, now.Addresses):
	case len(before.Addresses) == 0:
		a.given++
	case len(now.Addresses) == 0:
		a.lost++
		a.notef("lost %s %s", now.Name, strings.Join(before.Addresses, ","))
	default:
		a.moved++
		a.notef("moved %s %s to %s", now.Name, strings.Join(before.Addresses, ","), strings.Join(now.Addresses, ","))
	}
}

// compare notes where two Services have come to hold one address, and where they do not any more.
func (a *Account) compare(at time.Time) {
	holders := map[string][]string{}
	for name := range a.services {
		for _, address := range a.services[name].Addresses {
			holders[address] = append(holders[address], name)
		}
	}
	current := map[pair]bool{}
	for address, names := range holders {
		slices.Sort(names)
		for i, first := range names {
			for _, second := range names[i+1:] {
				if key := a.services[first].Key; key == "" || key != a.services[second].Key {
					current[pair{address, first, second}] = true
				}
			}
		}
	}
	for p, since := range a.shared {
		if !current[p] {
			a.notef("twice %s %s %s for %s", p.address, p.first, p.second, at.Sub(since).Round(time.Millisecond))
			delete(a.shared, p)
		}
	}
	for p := range current {
		if _, known := a.shared[p]; !known {
			a.shared[p] = at
			a.twice++
		}
	}
}

func (a *Account) notef(format string, args ...any) {
	a.breaches = append(a.breaches, fmt.Sprintf(format, args...))
}

// Lines tell, one each, of every address that was moved, taken away, or held by two; the last line counts.
func (a *Account) Lines() []string {
	lines := slices.Clone(a.breaches)
	for p := range a.shared {
		lines = append(lines, fmt.Sprintf("twice %s %s %s to the end", p.address, p.first, p.second))
	}
	slices.Sort(lines[len(a.breaches):])
	return append(lines, fmt.Sprintf("given=%d moved=%d lost=%d twice=%d", a.given, a.moved, a.lost, a.twice))
}
