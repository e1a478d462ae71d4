package announced

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLiving: who is alive, from what speakers say of each other.
func TestLiving(t *testing.T) {
	t.Parallel()
	all := []string{"n1", "n2", "n3"}
	cases := map[string]struct {
		reason string
		sees   map[string][]string
		want   []string
	}{
		"Alone":   {reason: "nobody else can tell", sees: map[string][]string{"n1": {"n1"}}, want: []string{"n1"}},
		"All":     {reason: "all see all", sees: map[string][]string{"n1": all, "n2": all, "n3": all}, want: all},
		"OneDied": {reason: "its own object still says that it sees all", sees: map[string][]string{"n1": all, "n2": {"n2", "n3"}, "n3": {"n2", "n3"}}, want: []string{"n2", "n3"}},
		"DeadBeforeTheLastJoined": {
			reason: "the dead n1 never saw n3, and has no say in who lives",
			sees:   map[string][]string{"n1": {"n1", "n2"}, "n2": {"n2", "n3"}, "n3": {"n2", "n3"}}, want: []string{"n2", "n3"},
		},
		"TwoOfThreeDied": {reason: "the last one goes on", sees: map[string][]string{"n1": all, "n2": all, "n3": {"n3"}}, want: []string{"n3"}},
		"CutInTwo":       {reason: "each of two goes on alone", sees: map[string][]string{"n1": {"n1"}, "n2": {"n2"}}, want: []string{"n1", "n2"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sees := map[string]map[string]bool{}
			for node, list := range c.sees {
				sees[node] = setOf(list)
			}
			if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(living(sees)))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}
