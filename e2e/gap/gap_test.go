package gap_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/e2e/gap"
)

func TestAfter(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	ok := func(begin int) gap.Attempt { return gap.Attempt{Begin: at(begin), End: at(begin + 1)} }
	failed := func(begin int) gap.Attempt {
		return gap.Attempt{Begin: at(begin), End: at(begin + 900), Err: errors.New("timeout")}
	}
	const cause = 100
	for name, test := range map[string]struct {
		reason string
		record gap.Record
		want   gap.Gap
	}{
		"None": {
			"where nothing failed there is no gap",
			gap.Record{ok(80), ok(100), ok(120)},
			gap.Gap{},
		},
		"Whole": {
			"from the beginning of the first failure to the end of the first success",
			gap.Record{ok(80), ok(100), failed(120), failed(140), ok(160), ok(180)},
			gap.Gap{Begin: at(120), End: at(161), Failed: 2},
		},
		"Earlier": {
			"a failure before the cause is not the cause's",
			gap.Record{failed(60), ok(80), failed(120), ok(140)},
			gap.Gap{Begin: at(120), End: at(141), Failed: 1},
		},
		"Open": {
			"a gap that no success has ended has no end",
			gap.Record{ok(80), failed(120), failed(140)},
			gap.Gap{Begin: at(120), Failed: 2},
		},
		"Overtaken": {
			"the first success is the one that ended first",
			gap.Record{failed(120), {Begin: at(140), End: at(170)}, {Begin: at(160), End: at(162)}},
			gap.Gap{Begin: at(120), End: at(162), Failed: 1},
		},
		"Relapse": {
			"failures after the first success are counted apart",
			gap.Record{failed(120), ok(140), failed(160), ok(180), failed(200)},
			gap.Gap{Begin: at(120), End: at(141), Failed: 1, Relapses: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, test.record.After(at(cause))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}
