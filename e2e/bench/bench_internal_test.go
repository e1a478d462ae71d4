package bench

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthlb/berth/e2e/gap"
	"github.com/berthlb/berth/e2e/lab/audit"
	"github.com/berthlb/berth/e2e/lab/frames"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	var hundred figures
	for i := 100; i > 0; i-- {
		hundred = append(hundred, time.Duration(i))
	}
	for name, test := range map[string]struct {
		reason  string
		figures figures
		percent int
		want    time.Duration
	}{
		"Median":      {"half of all do not exceed it", figures{30, 10, 20}, 50, 20},
		"MedianEven":  {"of two in the middle the lower one is it", figures{40, 10, 30, 20}, 50, 20},
		"Rare":        {"95 of 100 do not exceed it", hundred, 95, 95},
		"RareOfFew":   {"of ten it is the highest", figures{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 95, 10},
		"Highest":     {"none exceeds it", hundred, 100, 100},
		"Single":      {"one figure is all of them", figures{7}, 50, 7},
		"ZeroPercent": {"nothing lies below the lowest", figures{3, 2}, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.figures.percentile(test.percent); got != test.want {
				t.Errorf("%s: got %d, want %d", test.reason, got, test.want)
			}
		})
	}
}

func TestFirsts(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	a, b := netip.MustParseAddr("172.30.0.128"), netip.MustParseAddr("172.30.0.129")
	n1, n2 := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	gratuitous := func(ms int, address netip.Addr, from net.HardwareAddr, op frames.Op) frames.Frame {
		return frames.Frame{
			Time: start.Add(time.Duration(ms) * time.Millisecond), Source: from, SenderMAC: from,
			Op: op, Sender: address, Target: address,
		}
	}
	client := netip.MustParseAddr("172.30.0.100")
	question := frames.Frame{Time: start, Source: n2, Op: frames.Request, Sender: client, Target: a}
	answer := frames.Frame{Time: start, Source: n2, SenderMAC: n2, Op: frames.Reply, Sender: a, Target: client}
	own := gratuitous(1, a, n2, frames.Request)
	own.Outgoing = true
	notN1 := func(f frames.Frame) bool { return f.Source.String() != n1.String() }
	for name, test := range map[string]struct {
		reason string
		list   []frames.Frame
		want   map[netip.Addr]time.Duration
	}{
		"BothForms": {
			"of a burst the first frame counts, in whichever form",
			[]frames.Frame{gratuitous(5, a, n2, frames.Request), gratuitous(6, a, n2, frames.Reply), gratuitous(9, b, n2, frames.Reply)},
			map[netip.Addr]time.Duration{a: 5 * time.Millisecond, b: 9 * time.Millisecond},
		},
		"OutOfOrder": {
			"the earliest is the first, wherever it stands",
			[]frames.Frame{gratuitous(7, a, n2, frames.Request), gratuitous(3, a, n2, frames.Request)},
			map[netip.Addr]time.Duration{a: 3 * time.Millisecond},
		},
		"LostNode": {
			"what the lost node still said is no failover",
			[]frames.Frame{gratuitous(1, a, n1, frames.Request), gratuitous(8, a, n2, frames.Request)},
			map[netip.Addr]time.Duration{a: 8 * time.Millisecond},
		},
		"Asked": {
			"questions, and answers to them, announce nothing",
			[]frames.Frame{question, answer},
			map[netip.Addr]time.Duration{},
		},
		"OwnAndForeign": {
			"neither what the client sends, nor another address",
			[]frames.Frame{own, gratuitous(2, netip.MustParseAddr("172.30.0.200"), n2, frames.Request)},
			map[netip.Addr]time.Duration{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[netip.Addr]time.Duration{}
			for address, at := range firsts(test.list, []netip.Addr{a, b}, notN1) {
				got[address] = at.Sub(start)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

func TestBusiest(t *testing.T) {
	t.Parallel()
	a, b, c := netip.MustParseAddr("172.30.0.128"), netip.MustParseAddr("172.30.0.129"), netip.MustParseAddr("172.30.0.130")
	for name, test := range map[string]struct {
		reason string
		owners map[netip.Addr]string
		host   string
		owned  []netip.Addr
	}{
		"Most":  {"whoever owns most, whatever the name", map[netip.Addr]string{a: "n2", b: "n1", c: "n2"}, "n2", []netip.Addr{a, c}},
		"Equal": {"of equals the first by name, so that a run can be repeated", map[netip.Addr]string{a: "n2", b: "n1"}, "n1", []netip.Addr{b}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, owned := busiest(test.owners)
			if host != test.host {
				t.Errorf("%s: got %s, want %s", test.reason, host, test.host)
			}
			if diff := cmp.Diff(test.owned, owned, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	answered := time.Unix(1000, 0)
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)} }
	before := func(err error) gap.Attempt {
		return gap.Attempt{Begin: answered.Add(-time.Millisecond), Err: dial(err)}
	}
	after := func(err error) gap.Attempt { return gap.Attempt{Begin: answered.Add(time.Millisecond), Err: dial(err)} }
	for name, test := range map[string]struct {
		reason   string
		attempts []gap.Attempt
		answered time.Time
		want     failures
	}{
		"After": {
			"once somebody answers, each sort of failure counts",
			[]gap.Attempt{after(syscall.ECONNREFUSED), after(syscall.EHOSTUNREACH), after(syscall.ENETUNREACH)},
			answered, failures{refused: 1, unreachable: 2},
		},
		"Before": {
			"before that it cannot have come from who answers",
			[]gap.Attempt{before(syscall.EHOSTUNREACH), before(syscall.ETIMEDOUT)}, answered, failures{before: 2},
		},
		"Nobody": {
			"where nobody ever answered all came before",
			[]gap.Attempt{after(syscall.ENETUNREACH)}, time.Time{}, failures{before: 1},
		},
		"Lost": {
			"silence is no refusal",
			[]gap.Attempt{after(syscall.ETIMEDOUT), {Begin: answered, Err: context.DeadlineExceeded}}, answered, failures{lost: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got failures
			for _, attempt := range test.attempts {
				got.add(attempt, test.answered)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(failures{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

func TestAccount(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	write := func(ms int, resource, name string) audit.Write {
		return audit.Write{Time: begin.Add(time.Duration(ms) * time.Millisecond), Resource: resource, Name: name}
	}
	got := account([]audit.Write{
		write(100, "services/status", "bench-0"),
		write(110, "events", "bench-0.1"),
		write(120, "services/status", "bench-1"),
		write(130, "services/status", "bench-0"), // again: no first answer
		write(140, "events", "bench-1.1"),
	}, begin)
	want := allocation{first: 100 * time.Millisecond, last: 120 * time.Millisecond, statuses: 3, events: 2}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(allocation{})); diff != "" {
		t.Errorf("the last first answer ends the allocation; later writes count, but apart (-want +got):\n%s", diff)
	}
}

func TestTimeIn(t *testing.T) {
	t.Parallel()
	rest := " S 1 2 3 4 5 6 7 8 9 10 250 50 13 14"
	for name, test := range map[string]struct {
		reason string
		stat   string
		want   time.Duration
		fails  bool
	}{
		"Plain":   {"the 14th and 15th field, in hundredths of a second", "42 (speaker)" + rest, 3 * time.Second, false},
		"Name":    {"a process may call itself what it likes", "42 (a) S 9 9 (b)" + rest, 3 * time.Second, false},
		"Short":   {"what is cut off has none", "42 (speaker) S 1 2", 0, true},
		"Nothing": {"nor has nothing", "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := timeIn(test.stat)
			if (err != nil) != test.fails || got != test.want {
				t.Errorf("%s: got %s, %v, want %s", test.reason, got, err, test.want)
			}
		})
	}
}

func TestPlanFixture(t *testing.T) {
	t.Parallel()
	for name, services := range map[string]int{"Small": 100, "Whole": 10_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := planFixture{PlanLoad{Nodes: 100, Services: services}}
			locals, shared, seen := 0, 0, map[netip.Addr]bool{}
			for i := range services {
				if f.local(i) {
					locals++
				}
				if seen[f.address(i)] {
					shared++
				}
				seen[f.address(i)] = true
			}
			if locals != f.locals() {
				t.Errorf("%d Services are Local, of %d that should be", locals, f.locals())
			}
			if shared != services/planSharing {
				t.Errorf("%d of %d Services share an address", shared, services)
			}
		})
	}
}
