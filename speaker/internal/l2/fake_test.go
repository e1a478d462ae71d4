package l2_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/l2"
)

// sent is a frame that the responder has sent.
type sent struct {
	at      time.Time
	link    string
	index   int
	address netip.Addr
	to      netip.Addr // not valid for an announcement
}

// heardFunc and refusedFunc are what a port gives a link to call.
type (
	heardFunc   = func(sender [6]byte, source, target netip.Addr, at time.Time)
	refusedFunc = func(why string, frames int)
)

// host is the links of a node, in memory. It stands for the system, not for anything of ours.
type host struct {
	mu      sync.Mutex
	links   []cluster.Link
	routes  map[netip.Addr]int
	routed  int                // how often it was asked for a route
	sockets map[string]*socket // the open ones, by link name, and " IPv6" for that
	opened  int
	refuse  error // what opening a socket gives
	refuse6 error // in IPv6
	frames  []sent
}

// socket is an open socket on one of them.
type socket struct {
	host    *host
	link    cluster.Link
	name    string // in the host's map
	watched []netip.Addr
	refused chan refusedFunc
	heard   chan heardFunc // gives the callback once Listen runs
	broken  chan error
	closed  chan struct{}
	once    sync.Once
	refuse  error // what sending gives
}

func (h *host) Current() []cluster.Link {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.links)
}

func (h *host) RouteTo(address netip.Addr) (int, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.routed++
	index, ok := h.routes[address]
	return index, ok
}

func (h *host) open(link cluster.Link, family cluster.Family) (l2.Socket, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opened++
	name, refuse := link.Name, h.refuse
	if family == cluster.IPv6 {
		name, refuse = link.Name+" IPv6", h.refuse6
	}
	if refuse != nil {
		return nil, refuse
	}
	if h.sockets[name] != nil {
		return nil, errors.New("opened twice")
	}
	s := &socket{
		host: h, link: link, name: name, heard: make(chan heardFunc, 1), refused: make(chan refusedFunc, 1),
		broken: make(chan error, 1), closed: make(chan struct{}),
	}
	h.sockets[name] = s
	return s, nil
}

func (s *socket) Listen(heard heardFunc, refused refusedFunc) error {
	s.heard <- heard
	s.refused <- refused
	select {
	case err := <-s.broken:
		return err
	case <-s.closed:
		return nil
	}
}

func (s *socket) Watch(addresses []netip.Addr) error {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	s.watched = slices.Clone(addresses)
	return nil
}

func (s *socket) Close() error {
	s.once.Do(func() {
		s.host.mu.Lock()
		defer s.host.mu.Unlock()
		delete(s.host.sockets, s.name)
		close(s.closed)
	})
	return nil
}

func (s *socket) Reply(_ [6]byte, toAddress, address netip.Addr) error {
	return s.send(address, toAddress)
}
func (s *socket) Announce(address netip.Addr) error { return s.send(address, netip.Addr{}) }

func (s *socket) send(address, to netip.Addr) error {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	s.host.frames = append(s.host.frames, sent{time.Now(), s.name, s.link.Index, address, to})
	return nil
}

// set makes these the links.
func (h *host) set(links ...cluster.Link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.links = links
}

// eth0 is the open socket on eth0; nil if there is none.
func (h *host) eth0() *socket { return h.socket("eth0") }

// socket is an open socket; nil if there is none of that name.
func (h *host) socket(name string) *socket {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sockets[name]
}

// take gives the frames sent since it was last asked.
func (h *host) take() []sent {
	h.mu.Lock()
	defer h.mu.Unlock()
	frames := h.frames
	h.frames = nil
	return frames
}

// bench is a responder on such a host, inside a synctest bubble.
type bench struct {
	t *testing.T
	*host
	*l2.Responder
	registry *prometheus.Registry
	epoch    uint64
	cancel   func()
}

func eth(name string, index uint8, subnets ...string) cluster.Link {
	l := cluster.Link{Name: name, Index: int(index), MAC: [6]byte{2, 0, 0, 0, 0, index}, IPv4: true}
	for _, subnet := range subnets {
		l.Subnets = append(l.Subnets, netip.MustParsePrefix(subnet))
	}
	return l
}

// inBubble runs a test with a fake clock and a responder on eth0 that is confirmed now.
func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			t: t, host: &host{routes: map[netip.Addr]int{}, sockets: map[string]*socket{}}, registry: prometheus.NewRegistry(),
		}
		b.set(eth("eth0", 1, "192.0.2.0/24"))
		b.Responder = l2.New(l2.Options{Links: b.host, Open: b.open, Metrics: b.registry, Log: logr.Discard()})
		ctx, cancel := context.WithCancel(t.Context())
		b.cancel = cancel
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		test(b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(b.sockets) > 0 {
			t.Errorf("sockets left open: %v", slices.Sorted(maps.Keys(b.sockets)))
		}
	})
}

// claim sets claims with a new epoch, and lets the responder settle.
func (b *bench) claim(addresses ...netip.Addr) {
	b.epoch++
	var claims []announce.Claim
	for _, address := range addresses {
		claims = append(claims, announce.Claim{Address: address, Epoch: b.epoch})
	}
	b.Confirm()
	b.Set(claims)
	synctest.Wait()
}

// run lets time pass while an agent confirms.
func (b *bench) run(span time.Duration) {
	for end := time.Now().Add(span); time.Now().Before(end); {
		b.Confirm()
		b.pass(min(100*time.Millisecond, time.Until(end)))
	}
}

// pass lets time pass while nobody confirms.
func (b *bench) pass(span time.Duration) {
	<-time.After(span)
	synctest.Wait()
}

// ask has eth0 hear a request for an address from the client, which the kernel received some time ago.
func (b *bench) ask(address netip.Addr, ago time.Duration) {
	b.t.Helper()
	s := b.eth0()
	if s == nil {
		b.t.Fatal("no socket is open on eth0")
	}
	heard := <-s.heard
	s.heard <- heard
	heard([6]byte{2, 9}, client, address, time.Now().Add(-ago))
	synctest.Wait()
}

// dual has links use IPv6 too.
func dual(link cluster.Link) cluster.Link {
	link.LinkLocal = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: byte(link.Index)})
	return link
}

// answers are the frames to the client among some.
func answers(frames []sent) []sent {
	return slices.DeleteFunc(frames, func(f sent) bool { return f.to != client })
}
