package demo

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		body   string
		want   page
		fails  bool
	}{
		"IPv4":    {"the port is left out", "pod=web-1 node=n2 src=172.30.0.100:4711\n", page{"web-1", "n2", "172.30.0.100"}, false},
		"IPv6":    {"so are the brackets", "pod=web-1 node=n2 src=[fd00:30::100]:4711\n", page{"web-1", "n2", "fd00:30::100"}, false},
		"Foreign": {"another server's page is no answer of the Service", "It works!", page{}, true},
		"NoPort":  {"an answer that is cut off is none", "pod=web-1 node=n2 src=172", page{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parsePage(test.body)
			if (err != nil) != test.fails {
				t.Fatalf("%s: error %v, want one: %t", test.reason, err, test.fails)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(page{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

func TestStepsAreShort(t *testing.T) {
	t.Parallel()
	const width = 110
	for _, step := range (&demo{}).steps() {
		for line := range strings.Lines(step.title + "\n" + step.why) {
			if len(line) > width {
				t.Errorf("a line of step %q has %d characters, more than %d: %s", step.title, len(line), width, line)
			}
		}
	}
}

func TestUntilTellsWhatWasSeenInstead(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	err := until(ctx, func(ctx context.Context) error {
		looks++
		if looks == 2 {
			cancel()
			return ctx.Err()
		}
		return errors.New("two hosts answer")
	})
	if err == nil || !strings.Contains(err.Error(), "two hosts answer") {
		t.Errorf("until answered %v, want what was seen before the time was up", err)
	}
}
