package watch_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/watch"
)

// kernel is the other node's kernel on a link: it answers what it is asked as long as it lives.
type kernel struct {
	mu      sync.Mutex
	dead    bool
	heard   chan netip.Addr
	watched []netip.Addr
	mac     [6]byte
	closed  bool
	full    bool // nothing can be sent
}

func (k *kernel) Watch(addresses []netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched = addresses
	return nil
}

func (k *kernel) Ask(to [6]byte, _, address netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.full {
		return errors.New("no room")
	}
	if k.dead || k.closed || to != k.mac {
		return nil
	}
	k.heard <- address
	return nil
}

func (k *kernel) Listen(heard func([6]byte, netip.Addr, netip.Addr, time.Time), _ func(string, int)) error {
	for address := range k.heard {
		heard(k.mac, address, netip.Addr{}, time.Now())
	}
	return nil
}

func (k *kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.closed = true
		close(k.heard)
	}
	return nil
}

func (k *kernel) die() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = true
}

// TestADeadNodeIsFoundDown: n1 watches n2, sends it heartbeats since it is watched by it, and finds it down when neither
// its heartbeats come nor its kernel answers (rule E4).
func TestADeadNodeIsFoundDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := map[string]*cluster.Member{"n1": on(1, "192.0.2.0/24"), "n2": on(2, "192.0.2.0/24")}
		n2 := &kernel{heard: make(chan netip.Addr, 10), mac: members["n2"].Links[0].MAC}
		down, beats := make(chan string, 10), make(chan string, 1000)
		w := watch.New(watch.Options{
			Node: "n1", Metrics: prometheus.NewRegistry(), Log: testr.New(t),
			Members: func() map[string]*cluster.Member { return members },
			Beat:    func(to []string) { beats <- to[0] },
			Down:    func(node string) { down <- node },
			Open: func(link cluster.Link, _ cluster.Family) (watch.Socket, error) {
				if link.Index != 1 {
					return nil, errors.New("no such link")
				}
				return n2, nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		w.Changed()
		for range 50 { // five seconds
			w.Heard("n2")
			time.Sleep(100 * time.Millisecond)
		}
		if len(down) != 0 || len(beats) < 45 || <-beats != "n2" {
			t.Errorf("while all is well: %d found down, %d heartbeats sent", len(down), len(beats))
		}
		died := time.Now()
		n2.die()
		if node := <-down; node != "n2" || time.Since(died) > 500*time.Millisecond {
			t.Errorf("%s is found down after %s", node, time.Since(died))
		}
		time.Sleep(time.Minute)
		if len(down) != 0 {
			t.Errorf("found down again, %d times, though nothing was heard of it", len(down))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestWhoCannotAskFindsNobodyDown: a socket of ours that hears nothing any more, or cannot send, says nothing about others,
// whose speakers may just be restarted (rules E4, P11).
func TestWhoCannotAskFindsNobodyDown(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*kernel){
		"hears no more": func(k *kernel) { _ = k.Close() },
		"cannot send": func(k *kernel) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.full = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				members := map[string]*cluster.Member{"n1": on(1, "192.0.2.0/24"), "n2": on(2, "192.0.2.0/24")}
				down := make(chan string, 10)
				var sockets []*kernel
				w := watch.New(watch.Options{
					Node: "n1", Metrics: prometheus.NewRegistry(), Log: testr.New(t),
					Members: func() map[string]*cluster.Member { return members },
					Beat:    func([]string) {},
					Down:    func(node string) { down <- node },
					Open: func(cluster.Link, cluster.Family) (watch.Socket, error) {
						k := &kernel{heard: make(chan netip.Addr, 10), mac: members["n2"].Links[0].MAC}
						k.dead = len(sockets) > 0 // after a flap a switch may pass nothing on for a while
						sockets = append(sockets, k)
						return k, nil
					},
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- w.Run(ctx) }()
				w.Changed()
				for range 50 { // five seconds
					w.Heard("n2")
					time.Sleep(100 * time.Millisecond)
				}
				fail(sockets[0])
				time.Sleep(5 * time.Second) // without a heartbeat
				if len(down) != 0 {
					t.Error("n2 is found down though it was not asked")
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if again := len(sockets) - 1; again > 1 || (name == "hears no more") != (again == 1) {
					t.Errorf("the socket was opened again %d times", again)
				}
			})
		})
	}
}
