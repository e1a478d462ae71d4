package gossip

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/internal/cluster"
)

func everybody(string, netip.Addr) bool { return true }

// known are nodes that should have a speaker.
func known(names ...string) map[string][]netip.AddrPort {
	all := map[string][]netip.AddrPort{}
	for _, name := range names {
		all[name] = nil
	}
	return all
}

func address(number byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, number}), 7948)
}

// lively is a full member that does not restart.
func lively() cluster.Member {
	member := full()
	member.Restarting = false
	return member
}

// rosterWith has n1 living, which has said something at version 5.
func rosterWith() *roster {
	r := newRoster("self", 100)
	r.join("n1", address(1), 0)
	n := newsOf(lively(), 5)
	r.hear(&n)
	return r
}

// restart has a member say that it will be back.
func (r *roster) restart(node string, version uint64) {
	n := news{Node: node, Version: version, Restarting: true}
	r.hear(&n)
}

// pass has time pass.
func (r *roster) pass(length time.Duration) {
	now := r.now()
	r.now = func() time.Time { return now.Add(length) }
}

func (r *roster) names() []string { return slices.Sorted(maps.Keys(r.members(everybody))) }

func TestWhoIsAMember(t *testing.T) {
	t.Parallel()
	late := newsOf(cluster.Member{Node: "n2"}, 1)
	cases := map[string]struct {
		reason string
		do     func(*roster)
		want   []string
	}{
		"lives and speaks": {reason: "a member lives and has said something", do: func(*roster) {}, want: []string{"n1", "self"}},
		"silent": {
			reason: "one that has said nothing is not counted yet", want: []string{"n1", "self"},
			do: func(r *roster) { r.join("n2", address(2), 0) },
		},
		"speaks first": {reason: "nor is one that speaks before it lives", do: func(r *roster) { r.hear(&late) }, want: []string{"n1", "self"}},
		"then lives": {
			reason: "until it does", want: []string{"n1", "n2", "self"},
			do: func(r *roster) { r.hear(&late); r.join("n2", address(2), 0) },
		},
		"dead": {reason: "a dead one is none", do: func(r *roster) { r.leave("n1", 0) }, want: []string{"self"}},
		"back": {
			reason: "one that comes back has to speak again", want: []string{"self"},
			do: func(r *roster) { r.leave("n1", 0); r.join("n1", address(1), 0) },
		},
		"back and speaks": {
			reason: "for which the same news will do: it need not know that it was away", want: []string{"n1", "self"},
			do: func(r *roster) {
				r.leave("n1", 0)
				r.join("n1", address(1), 0)
				n := newsOf(lively(), 5)
				r.hear(&n)
			},
		},
		"back with older news": {
			reason: "but older news will not", want: []string{"self"},
			do: func(r *roster) {
				r.leave("n1", 0)
				r.join("n1", address(1), 0)
				n := newsOf(lively(), 4)
				r.hear(&n)
			},
		},
		"an old timer": {
			reason: "a memberlist that was replaced is not believed", want: []string{"n1", "self"},
			do: func(r *roster) { r.generation = 1; r.leave("n1", 0); r.join("n2", address(2), 0) },
		},
		"carried": {
			reason: "members the new one does not see in time are dropped", want: []string{"self"},
			do: func(r *roster) { r.generation = 1; r.dropCarried() },
		},
		"seen again": {
			reason: "those it does see stay, with what they said", want: []string{"n1", "self"},
			do: func(r *roster) { r.generation = 1; r.join("n1", address(1), 1); r.dropCarried() },
		},
		"down": {
			reason: "one that is found down is none", want: []string{"self"},
			do: func(r *roster) { r.hear(&news{Node: "n1", Version: 5, Down: true}) },
		},
		"refuted": {
			reason: "until it refutes that", want: []string{"n1", "self"},
			do: func(r *roster) {
				r.hear(&news{Node: "n1", Version: 5, Down: true})
				n := newsOf(lively(), 6)
				r.hear(&n)
			},
		},
		"not refuted": {
			reason: "which what it had said before does not", want: []string{"self"},
			do: func(r *roster) {
				r.hear(&news{Node: "n1", Version: 5, Down: true})
				n := newsOf(lively(), 5)
				r.hear(&n)
			},
		},
		"down before": {
			reason: "it has refuted that already", want: []string{"n1", "self"},
			do: func(r *roster) { r.hear(&news{Node: "n1", Version: 4, Down: true}) },
		},
		"down, dead and back": {
			reason: "memberlist has found the same, and that it lives again", want: []string{"n1", "self"},
			do: func(r *roster) {
				r.hear(&news{Node: "n1", Version: 5, Down: true})
				r.leave("n1", 0)
				r.join("n1", address(1), 0)
				n := newsOf(lively(), 5)
				r.hear(&n)
			},
		},
		"restarts": {
			reason: "one that said it would be back is held", want: []string{"n1", "self"},
			do: func(r *roster) { r.restart("n1", 6); r.leave("n1", 0); r.expire() },
		},
		"restarts too long": {
			reason: "for ten seconds", want: []string{"self"},
			do: func(r *roster) { r.restart("n1", 6); r.leave("n1", 0); r.pass(holds); r.expire() },
		},
		"lives, and restarts too long": {
			reason: "also if it is seen and says no more", want: []string{"self"},
			do: func(r *roster) { r.restart("n1", 6); r.pass(holds); r.expire() },
		},
		"back from a restart": {
			reason: "it is back in time", want: []string{"n1", "self"},
			do: func(r *roster) {
				r.restart("n1", 6)
				r.leave("n1", 0)
				r.join("n1", address(1), 0)
				n := news{Node: "n1", Version: 7}
				r.hear(&n)
				r.pass(holds)
				r.expire()
			},
		},
		"restarts, and its node goes": {
			reason: "whoever watches it finds that it will not be back", want: []string{"self"},
			do: func(r *roster) {
				r.restart("n1", 6)
				r.leave("n1", 0)
				r.hear(&news{Node: "n1", Version: 6, Down: true})
			},
		},
		"self": {
			reason: "about this node nobody else decides", want: []string{"n1", "self"},
			do: func(r *roster) { r.leave("self", 0); r.join("self", address(9), 0) },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rosterWith()
			c.do(r)
			if diff := cmp.Diff(c.want, r.names()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// TestNameAndAddressBelongTogether is rule E4.
func TestNameAndAddressBelongTogether(t *testing.T) {
	t.Parallel()
	r := rosterWith()
	allowed := func(name string, a netip.Addr) bool { return name == "n1" && a == address(1).Addr() }
	if _, counts := r.members(allowed)["n1"]; !counts {
		t.Error("n1 does not count from its own address")
	}
	r.leave("n1", 0)
	r.join("n1", address(66), 0)
	n := newsOf(lively(), 6)
	r.hear(&n)
	if _, counts := r.members(allowed)["n1"]; counts {
		t.Error("n1 counts from an address that is not its Node's")
	}
}

func TestWhatIsNews(t *testing.T) {
	t.Parallel()
	other := full()
	other.Stale = false
	moved := full()
	moved.Links[0].Index = 8
	cases := map[string]struct {
		reason  string
		news    news
		changed bool
		epoch   uint64 // by how much it grows
	}{
		"newer, the same": {reason: "nobody is woken for the same facts", news: newsOf(lively(), 6)},
		"newer, other":    {reason: "other facts are told", news: newsOf(other, 6), changed: true},
		"newer, links":    {reason: "another link is told, and may make announcements necessary", news: newsOf(moved, 6), changed: true, epoch: 1},
		"as old":          {reason: "what is known is not replaced", news: newsOf(other, 5)},
		"older":           {reason: "old news does not overwrite new", news: newsOf(other, 4)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rosterWith()
			before := r.epoch
			changed, repeat := r.hear(&c.news)
			if changed != c.changed || repeat || r.epoch-before != c.epoch {
				t.Errorf("%s: changed %v, repeat %v, epoch grew by %d", c.reason, changed, repeat, r.epoch-before)
			}
		})
	}
}

func TestOwnNews(t *testing.T) {
	t.Parallel()
	r := newRoster("self", 100)
	own := full()
	own.Stale = false
	if !r.setOwn(own) || r.setOwn(own) {
		t.Error("the first facts are news, the same again are not")
	}
	if r.own.Version != 101 || r.own.Node != "self" {
		t.Errorf("the facts are of %s at version %d, want self at 101", r.own.Node, r.own.Version)
	}
	echo := r.own
	if _, repeat := r.hear(&echo); repeat {
		t.Error("own news that comes back is said again, without end")
	}
	// Before this start, when the clock was ahead, we said something else.
	before := newsOf(cluster.Member{Node: "self", Stale: true}, 5000)
	if _, repeat := r.hear(&before); !repeat || r.own.Version != 5001 {
		t.Errorf("older facts of ours at version 5000: said again %v, at version %d, want 5001", repeat, r.own.Version)
	}
	if r.members(everybody)["self"].Stale {
		t.Error("somebody else said what this node says")
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	r := rosterWith()
	r.join("silent", address(2), 0)
	all := known("n1", "silent", "dead", "self")
	if diff := cmp.Diff([]string{"dead", "silent"}, r.missing(all)); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	r.generation = 1
	if diff := cmp.Diff([]string{"dead", "n1", "silent"}, r.missing(all)); diff != "" {
		t.Errorf("missing after a change of pace (-want +got):\n%s", diff)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	r := rosterWith()
	for _, name := range []string{"expected", "gone"} {
		n := newsOf(cluster.Member{Node: name}, 1)
		r.hear(&n)
	}
	r.forget(known("expected"))
	if diff := cmp.Diff([]string{"expected", "n1"}, slices.Sorted(maps.Keys(r.said))); diff != "" {
		t.Errorf("remembered (-want +got):\n%s", diff)
	}
}

// TestRostersAgree plays random changes and exchanges between three nodes, in any order and with losses: in the end, after
// everybody has met everybody, all know the newest of each.
func TestRostersAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := newTrio(t)
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			who, whom := name.Draw(t, "who"), name.Draw(t, "whom")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 4:
				if n, ok := all[who].declareDown(whom); ok {
					all[who].hear(&n)
				}
			case 0:
				all[who].setOwn(cluster.Member{Versions: []int{rapid.Int().Draw(t, "version")}})
			case 1:
				all[who].leave(whom, 0)
				all[who].join(whom, address(1), 0)
			default:
				all.exchange(who, whom)
			}
		}
		all.meet()
		for name, r := range all {
			if diff := cmp.Diff(all["a"].members(everybody), r.members(everybody)); diff != "" {
				t.Fatalf("a and %s disagree:\n%s", name, diff)
			}
			if got := all["a"].members(everybody)[name]; !cmp.Equal(got.Versions, r.own.Versions) {
				t.Fatalf("of %s a knows %v, it said %v", name, got.Versions, r.own.Versions)
			}
		}
	})
}

// TestARecordedBeatIsNone: whoever sends a heartbeat again that he has recorded does not keep a dead node alive.
func TestARecordedBeatIsNone(t *testing.T) {
	t.Parallel()
	r := rosterWith()
	for _, step := range []struct {
		node   string
		number uint64
		want   bool
	}{{"n1", 7, true}, {"n1", 7, false}, {"n1", 6, false}, {"n1", 8, true}, {"n2", 9, false}} {
		if got := r.heardBeat(beat{Node: step.node, Number: step.number}); got != step.want {
			t.Errorf("beat %d of %s counts: %t", step.number, step.node, got)
		}
	}
}

// TestDownIsRefuted: a node that hears that it is held for down says the same again with a higher version, and what is its
// own is announced again.
func TestDownIsRefuted(t *testing.T) {
	t.Parallel()
	r := newRoster("self", 100)
	epoch := r.epoch
	if _, repeat := r.hear(&news{Node: "self", Version: 99, Down: true}); repeat || r.epoch == epoch {
		t.Errorf("held for down by one who has not heard the newest: repeat %t, the epoch grew %t", repeat, r.epoch > epoch)
	}
	epoch = r.epoch
	if _, repeat := r.hear(&news{Node: "self", Version: 100, Down: true}); !repeat || r.own.Version != 101 || r.epoch == epoch {
		t.Errorf("does not refute: repeat %t, version %d", repeat, r.own.Version)
	}
}

// TestReturned: a speaker that was restarted learns what it had said from those who hold its rank, unless it has spoken since.
func TestReturned(t *testing.T) {
	t.Parallel()
	before := newsOf(cluster.Member{Node: "self", Restarting: true, Settled: true}, 50)
	cases := map[string]struct {
		reason string
		said   news
		silent bool
		want   bool
	}{
		"Restarted": {reason: "it said that it would be back", said: before, silent: true, want: true},
		"Crashed":   {reason: "it did not", said: newsOf(cluster.Member{Node: "self", Settled: true}, 50), silent: true},
		"Spoken":    {reason: "it has spoken already", said: before},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoster("self", 100)
			r.silent = c.silent
			if _, repeat := r.hear(&c.said); repeat || (r.returned != nil) != c.want {
				t.Errorf("%s: returned %v, repeat %t", c.reason, r.returned, repeat)
			}
			if len(r.state()) != 1 && !c.silent {
				t.Errorf("%s: says %v", c.reason, r.state())
			}
			if len(r.state()) != 0 && c.silent {
				t.Errorf("%s: silent, and says %v", c.reason, r.state())
			}
		})
	}
}

// trio are three rosters whose nodes hold each other for alive.
type trio map[string]*roster

func newTrio(t *rapid.T) trio {
	all := trio{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = newRoster(name, rapid.Uint64Range(1, 1000).Draw(t, "start"))
		for _, other := range []string{"a", "b", "c"} {
			all[name].join(other, address(1), 0)
		}
	}
	return all
}

// exchange has one hear all that another knows.
func (all trio) exchange(from, to string) {
	for _, n := range all[from].state() {
		all[to].hear(&n)
	}
}

// meet has everybody hear everybody, until it has gone round.
func (all trio) meet() {
	for range 3 { // what is said, that it is refuted, and the refutation
		for from := range all {
			for to := range all {
				all.exchange(from, to)
			}
		}
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	now := paceOf(pace{}, 0)
	fast := now
	if fast.probe != 200*time.Millisecond {
		t.Errorf("a ring begins with a probe every %s", fast.probe)
	}
	for _, step := range []struct {
		members int
		fast    bool
	}{{50, true}, {51, false}, {50, false}, {41, false}, {40, true}, {50, true}, {500, false}} {
		now = paceOf(now, step.members)
		if (now == fast) != step.fast {
			t.Errorf("with %d members the pace is %v", step.members, now)
		}
	}
}

// times of a process, in milliseconds since it started.
func at(ms int) time.Time {
	return time.Unix(1_800_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

func newTouch() *touch { return &touch{limit: 800 * time.Millisecond, last: at(0)} }

func TestASteadyProcessIsInTouch(t *testing.T) {
	t.Parallel()
	steady := newTouch()
	for ms := 100; ms < 5000; ms += 100 {
		if steady.tick(at(ms)) || !steady.in(at(ms)) {
			t.Fatalf("out of touch after %d ms", ms)
		}
	}
	if steady.exchanged(at(5000)) {
		t.Error("an exchange without a pause ends one")
	}
}

func TestAPausedProcessIsOutOfTouchUntilItExchangesState(t *testing.T) {
	t.Parallel()
	paused := newTouch()
	if !paused.in(at(800)) || paused.in(at(801)) {
		t.Error("in touch must end with the limit, before any tick")
	}
	if paused.exchanged(at(3000)) {
		t.Error("an exchange that ends before the pause was noticed counts")
	}
	if !paused.tick(at(3000)) {
		t.Error("the tick does not see the pause")
	}
	if paused.in(at(3100)) {
		t.Error("in touch without an exchange")
	}
	if !paused.exchanged(at(3100)) || !paused.in(at(3100)) {
		t.Error("not in touch after an exchange")
	}
}

func TestAProcessAloneIsOutOfTouchForTwoSeconds(t *testing.T) {
	t.Parallel()
	alone := newTouch()
	for ms := 3000; ms <= 6000; ms += 100 {
		alone.tick(at(ms))
		if want := ms >= 5000; alone.in(at(ms)) != want {
			t.Errorf("in touch %v %d ms after a pause", !want, ms-3000)
		}
	}
}

// TestAHoldIsNotProlonged: what a node said when it was to restart holds its rank once, also where another speaker that
// heard it later says it again: else two that tell each other would hold for ever the rank of a node whose new speaker
// lives and never speaks (rules P2, E5).
func TestAHoldIsNotProlonged(t *testing.T) {
	t.Parallel()
	a, b := rosterWith(), rosterWith()
	a.restart("n1", 6)
	b.pass(5 * time.Second)
	a.pass(5 * time.Second)
	b.restart("n1", 6)
	for range 10 {
		for _, r := range []*roster{a, b} {
			r.pass(5 * time.Second)
			r.expire()
		}
		for _, pair := range [][2]*roster{{a, b}, {b, a}} {
			for _, n := range pair[0].state() {
				pair[1].hear(&n)
			}
		}
	}
	for _, r := range []*roster{a, b} {
		if slices.Contains(r.names(), "n1") {
			t.Error("the rank is held after 55 seconds")
		}
		n := newsOf(lively(), 7)
		r.hear(&n)
		if !slices.Contains(r.names(), "n1") {
			t.Error("it has spoken, and is no member")
		}
	}
}
