package holdings_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/e2e/lab/holdings"
)

// service is a Service that holds addresses.
func service(name, uid string, addresses ...string) holdings.State {
	return holdings.State{Name: name, UID: uid, Addresses: addresses}
}

// sharer is one with a sharing key.
func sharer(name string, addresses ...string) holdings.State {
	return holdings.State{Name: name, UID: "1", Key: "key", Addresses: addresses}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		states []holdings.State // a second apart; without a UID it is gone
		want   []string
	}{
		"Given": {
			"two addresses are given, and stay",
			[]holdings.State{service("a", "1"), service("a", "1", "192.0.2.1"), service("b", "2", "192.0.2.2"), service("a", "1", "192.0.2.1")},
			[]string{"given=2 moved=0 lost=0 twice=0"},
		},
		"Moved": {
			"a Service has another address, then none",
			[]holdings.State{service("a", "1", "192.0.2.1"), service("a", "1", "192.0.2.2"), service("a", "1")},
			[]string{"moved a 192.0.2.1 to 192.0.2.2", "lost a 192.0.2.2", "given=1 moved=1 lost=1 twice=0"},
		},
		"Anew": {
			"a Service that was deleted and made again has lost nothing",
			[]holdings.State{service("a", "1", "192.0.2.1"), service("a", ""), service("a", "2"), service("a", "3", "192.0.2.2")},
			[]string{"given=2 moved=0 lost=0 twice=0"},
		},
		"Twice": {
			"two Services hold one address for a second: the end alone would not show it",
			[]holdings.State{service("a", "1", "192.0.2.1"), service("b", "2", "192.0.2.1"), service("b", "2", "192.0.2.2")},
			[]string{"moved b 192.0.2.1 to 192.0.2.2", "twice 192.0.2.1 a b for 1s", "given=2 moved=1 lost=0 twice=1"},
		},
		"ToTheEnd": {
			"two Services hold one address, and that has no end",
			[]holdings.State{service("a", "1", "192.0.2.1"), sharer("b", "192.0.2.1")},
			[]string{"twice 192.0.2.1 a b to the end", "given=2 moved=0 lost=0 twice=1"},
		},
		"Deleted": {
			"what a Service had that is gone can be given to another",
			[]holdings.State{service("a", "1", "192.0.2.1"), service("a", ""), service("b", "2", "192.0.2.1")},
			[]string{"given=2 moved=0 lost=0 twice=0"},
		},
		"Shared": {
			"those of one key may hold one address",
			[]holdings.State{sharer("a", "192.0.2.1"), sharer("b", "192.0.2.1")},
			[]string{"given=2 moved=0 lost=0 twice=0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := holdings.New()
			at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			for _, state := range test.states {
				at = at.Add(time.Second)
				if state.UID == "" {
					account.Remove(state.Name, at)
				} else {
					account.Set(state, at)
				}
			}
			if diff := cmp.Diff(test.want, account.Lines()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}
