package scene

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Skip is a scene that was not run, and why.
type Skip struct{ Scene, Sentence string }

// Account is what was run: how often, how long, and what was not.
type Account struct {
	Ran   int
	Took  map[string]time.Duration
	Skips []Skip
}

func (a *Account) ran(name string, took time.Duration) {
	a.Ran++
	if a.Took == nil {
		a.Took = map[string]time.Duration{}
	}
	a.Took[name] = took
}

func (a *Account) skipped(name, sentence string) {
	a.Skips = append(a.Skips, Skip{Scene: name, Sentence: sentence})
}

func (a *Account) clone() Account {
	return Account{Ran: a.Ran, Took: maps.Clone(a.Took), Skips: slices.Clone(a.Skips)}
}

const slowestShown = 10

// Slowest lists the scenes that took longest, with seconds.
func (a *Account) Slowest() string {
	names := slices.SortedFunc(maps.Keys(a.Took), func(x, y string) int {
		if a.Took[x] != a.Took[y] {
			return int(a.Took[y] - a.Took[x])
		}
		return strings.Compare(x, y)
	})
	var out strings.Builder
	for _, name := range names[:min(slowestShown, len(names))] {
		fmt.Fprintf(&out, "%6.1f s  %s\n", a.Took[name].Seconds(), name)
	}
	return out.String()
}

// Unlisted answers the skips that the list does not allow. A scene's name in the list may hold *.
func (a *Account) Unlisted(allowed []Skip) []Skip {
	var unlisted []Skip
	for _, skip := range a.Skips {
		listed := slices.ContainsFunc(allowed, func(rule Skip) bool {
			name, _, _ := strings.Cut(skip.Scene, "#")
			matches, err := path.Match(rule.Scene, name)
			return err == nil && matches && strings.Contains(skip.Sentence, rule.Sentence)
		})
		if !listed {
			unlisted = append(unlisted, skip)
		}
	}
	return unlisted
}
