package l2_test

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthlb/berth/speaker/internal/l2"
)

// made is an announcement as the schedule asked for it.
type made struct {
	address netip.Addr
	at      time.Duration // since the start
}

// stage drives a schedule with a clock of its own.
type stage struct {
	schedule *l2.Schedule
	start    time.Time
	now      time.Time
	made     []made
}

func newStage(random func() float64) *stage {
	start := time.Unix(1_800_000_000, 0)
	return &stage{schedule: l2.NewSchedule(2, l2.NewLimiter(), random), start: start, now: start}
}

// run plays that much time, as a goroutine with a timer does: it asks for everything due, then waits until Wake.
func (s *stage) run(span time.Duration) {
	end := s.now.Add(span)
	for {
		for {
			address, ok := s.schedule.Next(s.now)
			if !ok {
				break
			}
			s.made = append(s.made, made{address, s.now.Sub(s.start)})
		}
		at, waits := s.schedule.Wake(s.now)
		if !waits || at.After(end) {
			s.now = end
			return
		}
		s.now = at
	}
}

// times are when an address was announced.
func (s *stage) times(address netip.Addr) []time.Duration {
	var times []time.Duration
	for _, m := range s.made {
		if m.address == address {
			times = append(times, m.at)
		}
	}
	return times
}

// addresses are so many, from 198.18.0.0 on.
func addresses(count int) []netip.Addr {
	list := []netip.Addr{netip.MustParseAddr("198.18.0.0")}
	for len(list) < count {
		list = append(list, list[len(list)-1].Next())
	}
	return list
}

// wanted wants addresses, all for one epoch.
func wanted(epoch uint64, addresses ...netip.Addr) map[netip.Addr]uint64 {
	all := map[netip.Addr]uint64{}
	for _, address := range addresses {
		all[address] = epoch
	}
	return all
}

func TestAnAddressIsAnnouncedSixTimes(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	cases := map[string]struct {
		reason string
		random float64
		want   []time.Duration
	}{
		"middle": {
			reason: "without jitter the times are those of rule L3",
			random: 0.5, want: []time.Duration{0, 100 * ms, 500 * ms, 1100 * ms, 2200 * ms, 4000 * ms},
		},
		"early": {
			reason: "a repetition is early by a fifth at most, the first one never",
			random: 0, want: []time.Duration{0, 80 * ms, 400 * ms, 880 * ms, 1760 * ms, 3200 * ms},
		},
		"late": {
			reason: "nor late by more than that",
			random: 1, want: []time.Duration{0, 120 * ms, 600 * ms, 1320 * ms, 2640 * ms, 4800 * ms},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(func() float64 { return c.random })
			s.schedule.Want(wanted(1, vip))
			s.run(time.Minute)
			near := func(a, b time.Duration) bool { return (a - b).Abs() < time.Microsecond }
			if got := s.times(vip); !slices.EqualFunc(got, c.want, near) {
				t.Errorf("%s: announced at %v, want %v", c.reason, got, c.want)
			}
		})
	}
}

func TestAnotherEpochAnnouncesAgain(t *testing.T) {
	t.Parallel()
	s := newStage(func() float64 { return 0.5 })
	s.schedule.Want(wanted(1, vip))
	s.run(time.Minute)
	s.schedule.Want(wanted(1, vip))
	s.run(time.Minute)
	if got := len(s.times(vip)); got != 6 {
		t.Errorf("the same epoch was announced %d times, want 6", got)
	}
	s.schedule.Want(wanted(2, vip))
	s.run(time.Second / 2)
	s.schedule.Want(wanted(3, vip))
	s.run(time.Minute)
	want := 6 + 3 + 6 // of epoch 2 those at 0, 0.1 and 0.5 s
	if got := len(s.times(vip)); got != want {
		t.Errorf("over three epochs announced %d times, want %d", got, want)
	}
}

func TestALostAddressIsNotAnnouncedAnyMore(t *testing.T) {
	t.Parallel()
	s := newStage(rand.Float64)
	all := addresses(500)
	s.schedule.Want(wanted(1, all...))
	s.run(100 * time.Millisecond) // some have been announced, some wait for their first time
	s.schedule.Want(wanted(1, all[1]))
	before := len(s.made)
	s.run(time.Minute)
	for _, m := range s.made[before:] {
		if m.address != all[1] {
			t.Fatalf("%s was announced at %s, after it was lost", m.address, m.at)
		}
	}
	if _, waits := s.schedule.Wake(s.now); waits {
		t.Error("the schedule waits for something although all is announced")
	}
}

func TestAThousandAddressesWithinASecond(t *testing.T) {
	t.Parallel()
	s := newStage(rand.Float64)
	old := addresses(1500)[1000:] // repetitions of these are due meanwhile
	s.schedule.Want(wanted(1, old...))
	s.run(900 * time.Millisecond)
	gained := addresses(1000)
	began := s.now.Sub(s.start)
	s.schedule.Want(wanted(1, append(gained, old...)...))
	s.run(10 * time.Second)
	for _, address := range gained {
		times := s.times(address)
		if len(times) != 6 {
			t.Fatalf("%s was announced %d times, want 6", address, len(times))
		}
		if first := times[0] - began; first > time.Second {
			t.Fatalf("the first announcement of %s came after %s", address, first)
		}
	}
	checkRate(t, s.made)
}

func TestAStormOfEpochsStarvesNobody(t *testing.T) {
	t.Parallel()
	s := newStage(rand.Float64)
	all := addresses(1000)
	for epoch := range uint64(100) {
		s.schedule.Want(wanted(epoch, all...))
		s.run(10 * time.Millisecond)
	}
	for _, address := range all {
		if times := s.times(address); len(times) == 0 {
			t.Fatalf("%s was not announced within a second", address)
		}
	}
	checkRate(t, s.made)
}

// checkRate checks that no second holds more than 2,000 frames and those that may go at once.
func checkRate(t rapid.TB, all []made) {
	t.Helper()
	const most, perAnnouncement = 2000 + 100, 2
	first := 0
	for i, m := range all {
		for all[first].at <= m.at-time.Second {
			first++
		}
		if frames := (i + 1 - first) * perAnnouncement; frames > most {
			t.Fatalf("%d frames in the second before %s, at most %d may be", frames, m.at, most)
		}
	}
}

// TestScheduleProperties plays random histories: only what is wanted is announced, never more often than the link may, and
// what stays wanted in one epoch is announced six times in all, the first time within a second for so few addresses.
func TestScheduleProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newStage(rand.Float64)
		all := addresses(40)
		var want map[netip.Addr]uint64
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			want = rapid.MapOf(rapid.SampledFrom(all), rapid.Uint64Range(1, 3)).Draw(t, "wanted")
			s.schedule.Want(want)
			before := len(s.made)
			s.run(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			for _, m := range s.made[before:] {
				if _, ok := want[m.address]; !ok {
					t.Fatalf("%s was announced and not wanted", m.address)
				}
			}
		}
		next := map[netip.Addr]uint64{}
		for address := range want {
			next[address] = want[address] + 1
		}
		before := len(s.made)
		s.schedule.Want(next)
		checkBursts(t, s, slices.Collect(maps.Keys(next)), before)
		checkRate(t, s.made)
	})
}

// checkBursts lets everything be announced, and checks that each address is six times from that announcement on, the first
// time within a second.
func checkBursts(t rapid.TB, s *stage, want []netip.Addr, before int) {
	t.Helper()
	began := s.now.Sub(s.start)
	s.run(time.Minute)
	later := stage{made: s.made[before:]}
	for _, address := range want {
		times := later.times(address)
		if len(times) != 6 || times[0]-began > time.Second {
			t.Fatalf("%s was announced at %v, want six times from %s on", address, times, began)
		}
	}
}
