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

func TestRate(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(ms ...int) (r gap.Record) {
		for _, m := range ms {
			r = append(r, gap.Attempt{Begin: start.Add(time.Duration(m) * time.Millisecond)})
		}
		return r
	}
	for name, test := range map[string]struct {
		reason string
		record gap.Record
		want   float64
	}{
		"Full":   {"one attempt every 20 ms is all that was due", at(0, 20, 40, 60), 1},
		"Jitter": {"late ones are not missed ones", at(0, 29, 41, 69), 1},
		"Half":   {"a client that was held up made fewer", at(0, 20, 140), 0.375},
		"One":    {"a single attempt says nothing about the rate", at(0), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.record.Rate(); got != test.want {
				t.Errorf("%s: rate %v, want %v", test.reason, got, test.want)
			}
		})
	}
}

func TestSteady(t *testing.T) {
	t.Parallel()
	good := make(gap.Record, 25)
	bad := append(gap.Record{{Err: errors.New("refused")}}, good...)
	for name, test := range map[string]struct {
		reason string
		record gap.Record
		steady bool
	}{
		"Enough": {"half a second without a failure", good, true},
		"Few":    {"too few attempts show nothing", good[1:], false},
		"Old":    {"a failure that is long ago does not count", bad, true},
		"Recent": {"one of the last does", bad[:25], false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := test.record.Steady(); (err == nil) != test.steady {
				t.Errorf("%s: Steady answers %v", test.reason, err)
			}
		})
	}
}
