package main

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
)

// TestGatewaysAreReadNowAndThen: the kernel is asked once in half a minute, and what it said stays while it cannot be.
func TestGatewaysAreReadNowAndThen(t *testing.T) {
	t.Parallel()
	now, asked := time.Now(), 0
	one := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	answer, failure := one, error(nil)
	g := &gateways{log: logr.Discard(), list: func() ([]netip.Addr, error) { asked++; return answer, failure }}
	steps := []struct {
		reason string
		after  time.Duration
		edit   func()
		want   []netip.Addr
		asked  int
	}{
		{"the first time", 0, func() {}, one, 1},
		{"soon after", 29 * time.Second, func() { answer = nil }, one, 1},
		{"not readable", time.Second, func() { failure = errors.New("interrupted") }, one, 2},
		{"gone", 30 * time.Second, func() { failure = nil }, nil, 3},
		{"too many", 30 * time.Second, func() { answer = slices.Repeat(one, gatewaysCap+1) }, slices.Repeat(one, gatewaysCap), 4},
	}
	for _, step := range steps {
		step.edit()
		now = now.Add(step.after)
		got := g.current(now)
		if diff := cmp.Diff(step.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || asked != step.asked {
			t.Errorf("%s: asked %d times, want %d; %s", step.reason, asked, step.asked, diff)
		}
	}
}
