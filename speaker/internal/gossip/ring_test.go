package gossip_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/gossip"
)

// TestMain looks for goroutines left over. It looks twice: a probe that memberlist had in flight when it was shut down
// ends with its time-out, later than goleak waits.
func TestMain(m *testing.M) {
	code := m.Run()
	err := goleak.Find()
	if err != nil {
		err = goleak.Find()
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// cloud is some speakers in one process, on loopback addresses.
type cloud struct {
	t     *testing.T
	mu    sync.Mutex
	known map[string][]netip.AddrPort
}

// speaker is one of them.
type speaker struct {
	*gossip.Ring
	name  string
	woken chan struct{} // holds one
	stop  func()        // ends Run and waits
	link  *gossip.Cut
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	return &cloud{t: t, known: map[string][]netip.AddrPort{}}
}

// Known are the speakers of the cloud.
func (c *cloud) Known() map[string][]netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.known)
}

// add makes a speaker known.
func (c *cloud) add(name string, address netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[name] = []netip.AddrPort{address}
}

// options are those of the speaker with that number, at 127.0.0.number.
func (c *cloud) options(number byte) gossip.Options {
	return gossip.Options{
		Node:  fmt.Sprintf("n%d", number),
		Bind:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, number}), 0),
		Keys:  gossip.Keys{[]byte("0123456789abcdef0123456789abcdef")},
		Label: "cluster-uid",
		Log:   testr.New(c.t),
		Known: c.Known,
		Allowed: func(name string, address netip.Addr) bool {
			return slices.ContainsFunc(c.Known()[name], func(a netip.AddrPort) bool { return a.Addr() == address })
		},
	}
}

// start starts a speaker, makes it known, and has it speak.
func (c *cloud) start(options gossip.Options) *speaker {
	c.t.Helper()
	s := c.startSilent(options)
	s.Speak()
	return s
}

// startSilent starts a speaker that says nothing of itself yet.
func (c *cloud) startSilent(options gossip.Options) *speaker {
	c.t.Helper()
	s := &speaker{name: options.Node, woken: make(chan struct{}, 1), link: &gossip.Cut{}}
	options.Through(s.link)
	ring, err := gossip.New(options)
	if err != nil {
		c.t.Fatal(err)
	}
	s.Ring = ring
	c.add(options.Node, ring.Address())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := ring.Run(ctx, s.wake); err != nil {
			c.t.Error(err)
		}
	})
	s.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	c.t.Cleanup(s.stop)
	return s
}

func (s *speaker) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// await waits until the speaker is woken to a state that holds, and returns how long that took.
func (s *speaker) await(t *testing.T, what string, within time.Duration, holds func(*speaker) bool) time.Duration {
	t.Helper()
	began := time.Now()
	deadline := time.After(within)
	for !holds(s) {
		select {
		case <-s.woken:
		case <-deadline:
			t.Fatalf("%s: not within %s: %s; it has %v", s.name, within, what, s.names())
		}
	}
	return time.Since(began)
}

// keeps fails if what a speaker is woken to within some time does not hold.
func (s *speaker) keeps(t *testing.T, what string, length time.Duration, holds func(*speaker) bool) {
	t.Helper()
	end := time.After(length)
	for {
		if !holds(s) {
			t.Errorf("%s has not kept %s; it has %v", s.name, what, s.names())
			return
		}
		select {
		case <-s.woken:
		case <-end:
			return
		}
	}
}

// names are the members a speaker sees.
func (s *speaker) names() []string {
	var names []string
	for name := range s.Members() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// sees is true if a speaker's members are just these.
func sees(names ...string) func(*speaker) bool {
	return func(s *speaker) bool { return slices.Equal(s.names(), names) }
}

// meet starts so many speakers and waits until all see all.
func (c *cloud) meet(count byte) []*speaker {
	c.t.Helper()
	var all []*speaker
	var names []string
	for i := range count {
		all = append(all, c.start(c.options(i+1)))
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	for _, s := range all {
		c.t.Logf("%s saw all after %s", s.name, s.await(c.t, "all met", 10*time.Second, sees(names...)))
	}
	return all
}

// said is what a member says in these tests.
func said(node string) cluster.Member {
	return cluster.Member{
		Node: node, ProxyReady: true, Stale: true, Versions: []int{1, 2},
		Links: []cluster.Link{{
			Name: "eth0", Index: 7, MAC: [6]byte{2, 0, 0, 0, 0, 1}, IPv4: true,
			Subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		}},
	}
}

// hears is true if a speaker has heard of a member what it said.
func hears(want cluster.Member) func(*speaker) bool {
	return func(s *speaker) bool {
		return cmp.Equal(s.Members()[want.Node], &want, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}))
	}
}

func TestFactsSpread(t *testing.T) {
	t.Parallel()
	all := newCloud(t).meet(5)
	facts := said("n2")
	all[1].SetFacts(facts)
	for _, s := range all {
		t.Logf("%s heard n2 after %s", s.name, s.await(t, "what n2 says", time.Second, hears(facts)))
	}
	epoch := all[0].Epoch()
	facts.Links = nil
	all[1].SetFacts(facts)
	all[0].await(t, "that n2 has no link", time.Second, hears(facts))
	if all[0].Epoch() == epoch {
		t.Error("the epoch did not grow although n2 lost its link")
	}
}

// TestFactsTooLargeForADatagram has a node with more links than fit into one.
func TestFactsTooLargeForADatagram(t *testing.T) {
	t.Parallel()
	all := newCloud(t).meet(3)
	facts := said("n1")
	for i := range 100 {
		link := facts.Links[0]
		link.Name = fmt.Sprintf("bond%d", i)
		facts.Links = append(facts.Links, link)
	}
	all[0].SetFacts(facts)
	for _, s := range all {
		s.await(t, "what n1 says", time.Second, hears(facts))
	}
}

func TestADeathIsNoticed(t *testing.T) {
	t.Parallel()
	all := newCloud(t).meet(5)
	epoch := all[0].Epoch()
	all[4].link.Set(true) // else it would say that it will be back
	all[4].stop()
	for _, s := range all[:4] {
		t.Logf("%s noticed after %s", s.name, s.await(t, "n5 is dead", 5*time.Second, sees("n1", "n2", "n3", "n4")))
	}
	if all[0].Epoch() == epoch {
		t.Error("the epoch did not grow over a death")
	}
}

// TestDownIsHeardByAll is rule E4: whoever watches a node says that it is down, and all hold it for that, long before
// memberlist would; until it is heard of again.
func TestDownIsHeardByAll(t *testing.T) {
	t.Parallel()
	cloud := newCloud(t)
	var all []*speaker
	for i := range byte(3) {
		options := cloud.options(i + 1)
		options.Patient()
		all = append(all, cloud.start(options))
	}
	for _, s := range all {
		s.await(t, "all met", 10*time.Second, sees("n1", "n2", "n3"))
	}
	all[2].link.Set(true)
	all[0].Down("n3")
	for _, s := range all[:2] {
		t.Logf("%s heard after %s", s.name, s.await(t, "n3 is down", 5*time.Second, sees("n1", "n2")))
	}
	epoch := all[2].Epoch()
	all[2].link.Set(false)
	all[2].SetFacts(said("n3")) // it has something new to say, and so a higher version
	for _, s := range all {
		s.await(t, "n3 is back", 5*time.Second, sees("n1", "n2", "n3"))
	}
	all[0].Down("n3")
	all[2].await(t, "n3 has heard that it is held for down", 5*time.Second, func(s *speaker) bool { return s.Epoch() > epoch })
	for _, s := range all {
		s.await(t, "n3 has refuted that", 5*time.Second, sees("n1", "n2", "n3"))
	}
}

// TestBeats: a heartbeat reaches the members it is sent to, and no others.
func TestBeats(t *testing.T) {
	t.Parallel()
	cloud := newCloud(t)
	beats := make(chan string, 10)
	var all []*speaker
	for i := range byte(3) {
		options := cloud.options(i + 1)
		options.Beat = func(node string) { beats <- node + " to " + options.Node }
		all = append(all, cloud.start(options))
	}
	for _, s := range all {
		s.await(t, "all met", 10*time.Second, sees("n1", "n2", "n3"))
	}
	all[0].SendBeat([]string{"n2"})
	all[2].SendBeat([]string{"n2"})
	got := []string{<-beats, <-beats}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"n1 to n2", "n3 to n2"}, got); diff != "" {
		t.Errorf("beats (-want +got):\n%s", diff)
	}
}

// TestARestartIsHeld is rule E5: a speaker that ends is held for a member, with what it said, until it speaks again.
func TestARestartIsHeld(t *testing.T) {
	t.Parallel()
	cloud := newCloud(t)
	all := cloud.meet(3)
	facts := said("n3")
	all[2].SetFacts(facts)
	all[0].await(t, "what n3 says", time.Second, hears(facts))
	bind := all[2].Address()
	all[2].stop()
	restarting := facts
	restarting.Restarting = true
	all[0].await(t, "that n3 will be back", time.Second, hears(restarting))
	for _, s := range all[:2] { // memberlist finds it dead meanwhile
		s.keeps(t, "what n3 said", 2*time.Second, hears(restarting))
	}
	options := cloud.options(3)
	options.Bind = bind
	again := cloud.startSilent(options)
	again.await(t, "that it is back", 5*time.Second, func(s *speaker) bool { return s.Returned() != nil })
	if !hears(restarting)(all[0]) {
		t.Errorf("n3 has not spoken yet, and n1 knows %v", all[0].Members()["n3"])
	}
	now := said("n3")
	now.Stale = false
	again.SetFacts(now)
	again.Speak()
	all[0].await(t, "what n3 says now", time.Second, hears(now))
}

func TestLeavingIsHeardAtOnce(t *testing.T) {
	t.Parallel()
	all := newCloud(t).meet(3)
	if err := all[2].Leave(time.Second); err != nil {
		t.Fatal(err)
	}
	for _, s := range all[:2] {
		t.Logf("%s heard after %s", s.name, s.await(t, "n3 has left", 700*time.Millisecond, sees("n1", "n2")))
	}
	all[2].stop()
}

// TestAPartitionHeals is rule E4: memberlist alone never joins again whom it holds for dead.
func TestAPartitionHeals(t *testing.T) {
	t.Parallel()
	all := newCloud(t).meet(5)
	facts := said("n5")
	all[4].SetFacts(facts)
	for _, s := range all {
		s.await(t, "what n5 says", time.Second, hears(facts))
	}
	all[4].link.Set(true)
	for _, s := range all[:4] {
		s.await(t, "n5 is dead", 10*time.Second, sees("n1", "n2", "n3", "n4"))
	}
	all[4].await(t, "it is alone", 20*time.Second, sees("n5"))
	epoch := all[4].Epoch()
	all[4].link.Set(false)
	for _, s := range all {
		t.Logf("%s saw all after %s", s.name, s.await(t, "all are together", 10*time.Second, sees("n1", "n2", "n3", "n4", "n5")))
		s.await(t, "n5 says what it said before", time.Second, hears(facts))
	}
	if all[4].Epoch() == epoch {
		t.Error("the epoch of who was away did not grow: it would not announce again what moved and came back")
	}
}

// TestARestartedSpeakerSpeaksForItself: what the process before it said is gone, also if its clock was ahead.
func TestARestartedSpeakerSpeaksForItself(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	all := c.meet(3)
	all[2].SetFacts(said("n3"))
	all[0].await(t, "what n3 says", time.Second, hears(said("n3")))
	all[2].stop()
	options := c.options(3)
	options.Bind = all[2].Address()
	again := c.start(options)
	facts := cluster.Member{Node: "n3", Versions: []int{9}}
	again.SetFacts(facts)
	for _, s := range []*speaker{all[0], all[1], again} {
		t.Logf("%s heard after %s", s.name, s.await(t, "what n3 says now", 5*time.Second, hears(facts)))
	}
}

func TestWhoIsNotLetIn(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(c *cloud, o *gossip.Options)
	}{
		"wrong key":     {reason: "another key", change: func(_ *cloud, o *gossip.Options) { o.Keys = gossip.Keys{make([]byte, 32)} }},
		"other cluster": {reason: "another cluster on the same network", change: func(_ *cloud, o *gossip.Options) { o.Label = "other" }},
		"wrong address": {reason: "an address that is not the node's", change: func(_ *cloud, o *gossip.Options) {
			o.Bind = netip.MustParseAddrPort("127.0.0.66:0")
			allowed := o.Allowed
			o.Allowed = func(name string, a netip.Addr) bool { return a.String() == "127.0.0.66" || allowed(name, a) }
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := newCloud(t)
			options := cloud.options(1)
			options.Allowed = func(_ string, a netip.Addr) bool { return a != netip.MustParseAddr("127.0.0.66") }
			n1 := cloud.start(options)
			options = cloud.options(2)
			c.change(cloud, &options)
			stranger := cloud.start(options)
			stranger.SetFacts(said("n2"))
			n3 := cloud.start(cloud.options(3)) // whoever is let in is seen before this one
			n3.SetFacts(said("n3"))
			n1.await(t, "n3 is let in", 10*time.Second, hears(said("n3")))
			if _, in := n1.Members()["n2"]; in {
				t.Errorf("%s was let in", c.reason)
			}
		})
	}
}

// TestKeysAreRotated: the new key is added everywhere, then used, then the old one is taken away.
func TestKeysAreRotated(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	first, second := []byte("0123456789abcdef0123456789abcdef"), []byte("another key, of thirty-two bytes")
	before, after := c.options(1), c.options(2)
	before.Keys, after.Keys = gossip.Keys{first, second}, gossip.Keys{second, first}
	n1, n2 := c.start(before), c.start(after)
	n1.await(t, "both", 5*time.Second, sees("n1", "n2"))
	n2.await(t, "both", 5*time.Second, sees("n1", "n2"))
	text := fmt.Sprintf("%v %+v %#v %s", before.Keys, before, before, before.Keys)
	if strings.Contains(text, "0123456789") || strings.Contains(text, "48 49") || strings.Contains(text, "0x30, 0x31") {
		t.Errorf("the key is printed: %s", text)
	}
}

func TestThePortIsInUse(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	n1 := c.start(c.options(1))
	options := c.options(1)
	options.Bind = n1.Address()
	_, err := gossip.New(options)
	if err == nil {
		t.Fatal("two speakers share a port")
	}
	for _, want := range []string{strconv.Itoa(int(n1.Address().Port())), "127.0.0.1", "--gossip-port", "in use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q: %v", want, err)
		}
	}
}

// TestAChangeOfPaceIsNotNoticed: a new memberlist takes the place of the old one, and nobody is missed meanwhile.
func TestAChangeOfPaceIsNotNoticed(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	var all []*speaker
	for i := range byte(3) {
		options := c.options(i + 1)
		options.PaceBy(3)
		all = append(all, c.start(options))
	}
	for i, s := range all {
		s.SetFacts(said(fmt.Sprintf("n%d", i+1)))
	}
	for _, s := range all {
		s.await(t, "all met", 5*time.Second, sees("n1", "n2", "n3"))
	}
	c.add("n4", netip.MustParseAddrPort("127.0.0.4:9")) // known, and never there: now there are four
	missed := time.After(6 * time.Second)               // three for which members are carried over, and some
	for {
		for _, s := range all {
			if !sees("n1", "n2", "n3")(s) {
				t.Fatalf("%s sees %v only", s.name, s.names())
			}
		}
		select {
		case <-missed:
			facts := said("n1")
			facts.Stale = false
			all[0].SetFacts(facts)
			all[2].await(t, "what n1 says now", time.Second, hears(facts))
			return
		case <-all[0].woken:
		case <-all[1].woken:
		case <-all[2].woken:
		}
	}
}
