package watch

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// The path over which n2 is asked, its hardware address, and another's.
func pathTo() Path {
	return Path{Link: 1, From: netip.MustParseAddr("192.0.2.1"), MAC: [6]byte{2, 0, 0, 0, 0, 2}, Address: netip.MustParseAddr("192.0.2.2")}
}

func secondPath() Path {
	return Path{Link: 5, From: netip.MustParseAddr("198.51.100.1"), MAC: [6]byte{2, 0, 0, 0, 0, 5}, Address: netip.MustParseAddr("198.51.100.2")}
}

// play runs a core that watches n2 for so long, and returns when it was first found down, and how often.
type play struct {
	paths    []Path
	length   time.Duration
	beats    func(at time.Duration) bool         // is a heartbeat heard then
	answers  func(at time.Duration, p Path) bool // does the kernel answer what is asked then
	mac      *[6]byte                            // answers with this hardware address
	standing func(at time.Duration) bool         // does this process stand still then
}

func (p *play) run(t *testing.T) (first time.Duration, count, asked int) {
	t.Helper()
	c := newCore()
	start := time.Unix(1_800_000_000, 0)
	c.set(start, []Target{{Node: "n2", Paths: p.paths}})
	due := start
	type answer struct {
		at   time.Duration
		path Path
	}
	var answers []answer
	for at := time.Duration(0); at < p.length; at += time.Millisecond {
		now := start.Add(at)
		if p.standing != nil && p.standing(at) {
			continue
		}
		if at%beatEvery == 0 && p.beats(at) {
			c.heard(now, "n2")
		}
		for len(answers) > 0 && answers[0].at <= at {
			one := answers[0]
			answers = answers[1:]
			mac := one.path.MAC
			if p.mac != nil {
				mac = *p.mac
			}
			c.answered(now, one.path.Link, one.path.Address, mac)
		}
		if now.Before(due) {
			continue
		}
		ask, down, next := c.step(now)
		if !next.After(now) {
			t.Fatalf("at %s: step wants to be called again at once", at)
		}
		due = next
		asked += len(ask)
		for _, path := range ask {
			if p.answers(at, path) {
				answers = append(answers, answer{at + time.Millisecond, path})
			}
		}
		if len(down) > 0 {
			if count == 0 {
				first = at
			}
			count++
		}
	}
	return first, count, asked
}

func before(end time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at < end }
}

func answersBefore(end time.Duration) func(time.Duration, Path) bool {
	return func(at time.Duration, _ Path) bool { return at < end }
}

// TestWatch is the fast part of rule E4: when a node is found down, and when not. Everything ends at 10 s.
func TestWatch(t *testing.T) {
	t.Parallel()
	const end = 10 * time.Second
	always, never := before(time.Hour), before(0)
	other := [6]byte{2, 0, 0, 0, 0, 9}
	cases := map[string]struct {
		reason string
		play   play
		down   bool // within half a second of end, once
	}{
		"Dead":        {reason: "neither speaker nor kernel", play: play{beats: before(end), answers: answersBefore(end)}, down: true},
		"Alive":       {reason: "both", play: play{beats: always, answers: answersBefore(time.Hour)}},
		"SpeakerDead": {reason: "the kernel answers: the node forwards still", play: play{beats: before(end), answers: answersBefore(time.Hour)}},
		"KernelMute":  {reason: "the speaker is heard", play: play{beats: always, answers: answersBefore(end)}},
		"Unarmed":     {reason: "a kernel that never answered proves nothing by not answering", play: play{beats: before(end), answers: answersBefore(0)}},
		"ProxyARP":    {reason: "nor one for which somebody else answers", play: play{beats: before(end), answers: answersBefore(end), mac: &other}},
		"SecondLink": {
			reason: "one of two links answers", play: play{
				paths: []Path{pathTo(), secondPath()}, beats: before(end),
				answers: func(at time.Duration, p Path) bool { return at < end || p.Link == 5 },
			},
		},
		"SecondLinkUnarmed": {
			reason: "a link that never answered does not hold it up", down: true, play: play{
				paths: []Path{pathTo(), secondPath()}, beats: before(end),
				answers: func(at time.Duration, p Path) bool { return at < end && p.Link == 1 },
			},
		},
		"OneBeatLost": {reason: "a lost heartbeat", play: play{
			beats: func(at time.Duration) bool { return at%time.Second != 0 }, answers: answersBefore(time.Hour),
		}},
		"BeatBetween": {
			reason: "one heartbeat of three comes through, and no answer: it lives",
			play:   play{beats: func(at time.Duration) bool { return at < end || at%(300*time.Millisecond) == 0 }, answers: answersBefore(end)},
		},
		"AnswerBetween": {
			reason: "one answer of three comes through: it lives",
			play: play{beats: before(end), answers: func(at time.Duration, _ Path) bool {
				return at < end || (at/(100*time.Millisecond))%3 == 0
			}},
		},
		"Paused": {
			reason: "this process stood still for a second, and heard nothing meanwhile", play: play{
				beats: always, answers: answersBefore(time.Hour),
				standing: func(at time.Duration) bool { return at > end && at < end+time.Second },
			},
		},
		"Nothing": {reason: "never heard, never answered", play: play{beats: never, answers: answersBefore(0)}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.play.length = end + 5*time.Second
			if c.play.paths == nil {
				c.play.paths = []Path{pathTo()}
			}
			first, count, _ := c.play.run(t)
			switch {
			case !c.down && count > 0:
				t.Errorf("%s: found down at %s, %d times", c.reason, first, count)
			case c.down && (count != 1 || first < end || first > end+500*time.Millisecond):
				t.Errorf("%s: found down %d times, first at %s", c.reason, count, first)
			}
		})
	}
}

// TestWatchingCostsLittle: while all is well the kernel is asked every 20 s, eagerly only at first.
func TestWatchingCostsLittle(t *testing.T) {
	t.Parallel()
	calm := play{paths: []Path{pathTo()}, length: 70 * time.Second, beats: before(time.Hour), answers: answersBefore(time.Hour)}
	if _, _, asked := calm.run(t); asked != 4 {
		t.Errorf("asked %d times in 70 s, want 4", asked)
	}
	mute := play{paths: []Path{pathTo()}, length: 70 * time.Second, beats: before(time.Hour), answers: answersBefore(0)}
	if _, _, asked := mute.run(t); asked > 14 {
		t.Errorf("asked a kernel that does not answer %d times in 70 s", asked)
	}
}

// TestSetKeepsWhatIsKnown: a change of members does not disarm the links of those that stay, and ends the watch of those
// that go.
func TestSetKeepsWhatIsKnown(t *testing.T) {
	t.Parallel()
	c, now := newCore(), time.Unix(1_800_000_000, 0)
	c.set(now, []Target{{Node: "n2", Paths: []Path{pathTo()}}, {Node: "n3", Paths: []Path{secondPath()}}})
	c.step(now)
	c.answered(now, 1, pathTo().Address, pathTo().MAC)
	c.set(now, []Target{{Node: "n2", Paths: []Path{pathTo()}}})
	if len(c.watches) != 1 || !c.watches["n2"].paths[pathTo()].armed(now) {
		t.Errorf("watches %v", c.watches)
	}
	other := pathTo()
	other.MAC = [6]byte{2, 0, 0, 0, 0, 3}
	c.set(now, []Target{{Node: "n2", Paths: []Path{other}}})
	if state := c.watches["n2"].paths; len(state) != 1 || state[other] == nil || state[other].armed(now) {
		t.Error("a link with another hardware address is still armed")
	}
	if !slices.Equal([]string{"n2"}, keys(c.watches)) {
		t.Errorf("watches %v", keys(c.watches))
	}
}

func keys(m map[string]*watched) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
