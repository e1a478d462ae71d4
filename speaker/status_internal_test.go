package main

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
)

// TestGatewaysAreReadNowAndThen: the kernel is asked once in half a minute, and what it said stays while it cannot be.
func TestGatewaysAreReadNowAndThen(t *testing.T) {
	t.Parallel()
	now, asked := time.Now(), 0
	answer, failure := []netip.Addr{netip.MustParseAddr("192.0.2.1")}, error(nil)
	g := gateways{log: logr.Discard(), list: func() ([]netip.Addr, error) { asked++; return answer, failure }}
	steps := []struct {
		reason string
		after  time.Duration
		edit   func()
		want   []string
		asked  int
	}{
		{"the first time", 0, func() {}, []string{"192.0.2.1"}, 1},
		{"soon after", 29 * time.Second, func() { answer = nil }, []string{"192.0.2.1"}, 1},
		{"not readable", time.Second, func() { failure = errors.New("interrupted") }, []string{"192.0.2.1"}, 2},
		{"gone", 30 * time.Second, func() { failure = nil }, nil, 3},
		{"too many", 30 * time.Second, func() { answer = make([]netip.Addr, 17) }, make([]string, 16), 4},
	}
	for _, step := range steps {
		step.edit()
		now = now.Add(step.after)
		got := g.texts(now)
		for i := range got {
			if len(got) == gatewaysCap {
				got[i] = "" // which ones is not the question
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" || asked != step.asked {
			t.Errorf("%s: asked %d times, want %d; %s", step.reason, asked, step.asked, diff)
		}
	}
}
