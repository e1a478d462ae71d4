package lab

import (
	"testing"
	"time"
)

func TestLongestGap(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	at := func(ms ...int) []time.Time {
		var all []time.Time
		for _, m := range ms {
			all = append(all, begin.Add(time.Duration(m)*time.Millisecond))
		}
		return all
	}
	for name, test := range map[string]struct {
		reason    string
		answers   []time.Time
		gap, from time.Duration
	}{
		"Middle":   {"the longest of all", at(10, 20, 500, 510, 991), 481 * time.Millisecond, 510 * time.Millisecond},
		"Unsorted": {"answers may overtake each other", at(500, 10, 991, 20, 510), 481 * time.Millisecond, 510 * time.Millisecond},
		"Open":     {"a gap that was not closed counts to the end", at(10, 20), 980 * time.Millisecond, 20 * time.Millisecond},
		"None":     {"no answer at all is one gap", nil, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gap, from := longestGap(begin, begin.Add(time.Second), test.answers)
			if gap != test.gap || from != test.from {
				t.Errorf("%s: %s from %s, want %s from %s", test.reason, gap, from, test.gap, test.from)
			}
		})
	}
}
