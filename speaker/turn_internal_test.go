package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// freePort answers a number that names a turn nobody has: tests may run beside a speaker, or each other.
func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().(*net.TCPAddr).AddrPort().Port() //nolint:forcetypeassert // that is what listening on "tcp" answers
}

// TestTurnPasses shows that one speaker of a node has the turn, and that the next has it as soon as the first has ended.
func TestTurnPasses(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	name := turnName("n1", port)
	first, err := takeTurn(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeTurn(t.Context(), name); !errors.Is(err, errTaken) {
		t.Errorf("a second speaker was answered %v, want that another works", err)
	}
	other, err := takeTurn(t.Context(), turnName(strings.Repeat("long-name.", 25), port))
	if err != nil {
		t.Errorf("the speaker of another node: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	got := make(chan error, 1)
	go func() {
		second, err := awaitTurn(t.Context(), name)
		if err == nil {
			err = second.Close()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("the second speaker did not wait: %v", err)
	case <-time.After(3 * turnEvery):
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("the second speaker's turn did not come: %v", err)
	}
}

// TestProbe asks a speaker through the socket of its pod, in each of the states a probe may find it in.
func TestProbe(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		state  func(*speaker)
		ask    string
		want   string // of the error; empty if there is none
	}{
		"starting": {
			reason: "It lives, and has no picture yet.",
			state:  func(*speaker) {}, ask: "ready", want: "caches are not synced",
		},
		"alive": {reason: "A speaker that is not ready is not killed.", state: func(*speaker) {}, ask: "live"},
		"waiting, unidentified": {
			reason: "It has not shown yet that it could work, so the other one has to stay.",
			state:  func(s *speaker) { s.waiting.Store(true) }, ask: "ready", want: "caches are not synced",
		},
		"waiting": {
			reason: "It could work, and says so: upon that the other one is ended.",
			state:  func(s *speaker) { s.waiting.Store(true); s.identified.Store(true) }, ask: "ready",
		},
		"after its turn came": {
			reason: "From then on it is ready when it can announce.",
			state:  func(s *speaker) { s.identified.Store(true) }, ask: "ready", want: "caches are not synced",
		},
		"ready":   {reason: "It announces.", state: func(s *speaker) { s.synced.Store(true); s.joined.Store(true) }, ask: "ready"},
		"unknown": {reason: "A probe that asks for something else never succeeds.", state: func(*speaker) {}, ask: "lively", want: "usage"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "berth") //nolint:usetesting // a socket's path may have 107 bytes, which t.TempDir may exceed
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			s := &speaker{
				options:  &flags{healthSocket: filepath.Join(dir, "health.sock"), listen: "127.0.0.1:0"},
				log:      logr.Discard(),
				registry: prometheus.NewRegistry(),
			}
			tc.state(s)
			group, ctx := errgroup.WithContext(t.Context())
			if err := s.serveHealth(ctx, group); err != nil {
				t.Fatal(err)
			}
			err = probe(t.Context(), []string{"--health-socket", s.options.healthSocket, tc.ask})
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s\nthe probe says %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestWaitingSpeakerLeavesThePort shows that a speaker which waits does not ask for the port that the other has.
func TestWaitingSpeakerLeavesThePort(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	s := &speaker{options: &flags{listen: taken.Addr().String()}, log: logr.Discard(), registry: prometheus.NewRegistry()}
	s.waiting.Store(true)
	group, ctx := errgroup.WithContext(t.Context())
	if err := s.serveHealth(ctx, group); err != nil {
		t.Errorf("a waiting speaker: %v", err)
	}
	s.waiting.Store(false)
	if err := s.serveHealth(ctx, group); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("a speaker whose turn it is, with its port taken: %v, want an error that names --listen", err)
	}
}
