package l2_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/internal/announce"
)

func TestAnswersWhatItOwns(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		other := vip.Next()
		b.claim(vip)
		b.run(10 * time.Second) // all is announced
		b.take()
		b.ask(vip, 0)
		b.ask(other, 0)
		want := []sent{{time.Now(), "eth0", 1, vip, client}}
		if diff := cmp.Diff(want, b.take(), alike()); diff != "" {
			t.Errorf("asked for %s and %s (-want +got):\n%s", vip, other, diff)
		}
		if diff := cmp.Diff([]netip.Addr{vip}, b.Have(), alike()); diff != "" {
			t.Errorf("Have (-want +got):\n%s", diff)
		}
	})
}

func alike() cmp.Option {
	return cmp.Options{
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
		cmp.AllowUnexported(sent{}),
	}
}

func TestSilentUnlessConfirmedWithinASecond(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		b.run(10 * time.Second)
		b.take()
		b.Confirm()
		b.pass(time.Second)
		b.ask(vip, 0)
		if got := answers(b.take()); len(got) != 1 {
			t.Errorf("a second after the confirmation %d answers, want 1", len(got))
		}
		b.pass(time.Millisecond)
		b.ask(vip, 0)
		if got := b.take(); len(got) != 0 {
			t.Errorf("later than that the responder sent %v", got)
		}
		if have := b.Have(); len(have) != 0 {
			t.Errorf("and it says that it answers for %v", have)
		}
		b.Confirm()
		b.ask(vip, 0)
		if got := answers(b.take()); len(got) != 1 {
			t.Errorf("confirmed again %d answers, want 1", len(got))
		}
	})
}

func TestNeverConfirmedIsSilent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.Set([]announce.Claim{{Address: vip, Epoch: 1}})
		b.pass(200 * time.Millisecond)
		b.ask(vip, 0)
		if got := b.take(); len(got) != 0 {
			t.Errorf("without any confirmation the responder sent %v", got)
		}
	})
}

func TestAnnouncementsWaitForAConfirmation(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		b.pass(1500 * time.Millisecond) // those at 0, 0.1, 0.5 s may go; that at 1.1 s may not, jitter aside
		b.take()
		b.pass(10 * time.Second) // the process hangs
		if got := b.take(); len(got) != 0 {
			t.Errorf("unconfirmed, the responder announced %v", got)
		}
		b.run(5 * time.Second)
		if got := b.take(); len(got) < 2 {
			t.Errorf("confirmed again it made %d announcements, want the rest", len(got))
		}
	})
}

func TestAnOldRequestIsDropped(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		b.run(10 * time.Second)
		b.take()
		b.ask(vip, 200*time.Millisecond)
		if got := answers(b.take()); len(got) != 1 {
			t.Errorf("a request 200 ms old got %d answers, want 1", len(got))
		}
		b.ask(vip, 201*time.Millisecond)
		if got := b.take(); len(got) != 0 {
			t.Errorf("one that is older was answered: %v", got)
		}
		b.wantMetric("berth_l2_stale_requests_total", `{family="IPv4",link="eth0"} 1`)
	})
}

// TestLossIsSilenceAtOnce is F80: the announcements that wait are not made any more, nor is anybody answered.
func TestLossIsSilenceAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		kept := vip.Next()
		b.claim(vip, kept)
		b.run(50 * time.Millisecond)
		b.take()
		b.Set([]announce.Claim{{Address: kept, Epoch: b.epoch}}) // the loop has not run yet
		b.ask(vip, 0)
		b.run(10 * time.Second)
		frames := b.take()
		if len(frames) == 0 {
			t.Error("the address that was kept is not announced any more")
		}
		for _, frame := range frames {
			if frame.address != kept {
				t.Errorf("a frame for %s was sent %s after it was lost", frame.address, time.Since(frame.at))
			}
		}
	})
}

// TestHandingOver is rule E6: what is handed over is answered for, never announced, until the new owner is heard; and
// announced again if it comes back, although no epoch has changed.
func TestHandingOver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		b.run(50 * time.Millisecond)
		b.take()
		handed := []announce.Claim{{Address: vip, Epoch: b.epoch, HandedOver: true}}
		b.Set(handed)
		b.run(300 * time.Millisecond)
		b.ask(vip, 0)
		if got := b.take(); len(got) != 1 || got[0].to != client {
			t.Errorf("handing over it sent %v, want one answer", got)
		}
		if have := b.Have(); len(have) != 0 {
			t.Errorf("handing over it says that it answers for %v", have)
		}
		heard := <-b.eth0().heard
		b.eth0().heard <- heard
		heard([6]byte{2, 9}, vip, vip, time.Now())
		b.Set(handed) // the agent has run once more
		b.ask(vip, 0)
		if got := b.take(); len(got) != 0 {
			t.Errorf("after the new owner was heard it sent %v", got)
		}
		b.Set([]announce.Claim{{Address: vip, Epoch: b.epoch}})
		b.run(10 * time.Second)
		if got := b.take(); len(got) != 6 {
			t.Errorf("back again it announced %d times, want 6", len(got))
		}
	})
}

func TestAnnouncementsOfOthersAreNotAnswered(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.set(eth("eth0", 1, "192.0.2.0/24"), eth("eth1", 2, "192.0.2.0/24"))
		b.claim(vip)
		b.run(10 * time.Second)
		b.take()
		heard := <-b.eth0().heard
		heard([6]byte{2, 9}, vip, vip, time.Now())                     // as a request
		heard([6]byte{2, 9}, vip, netip.Addr{}, time.Now())            // as a reply
		heard([6]byte{2, 0, 0, 0, 0, 2}, vip, vip, time.Now())         // by our own eth1
		heard([6]byte{2, 9}, client, vip.Next(), time.Now())           // about an address that is not ours
		heard([6]byte{2, 9}, vip, client, time.Now())                  // about another, from ours
		heard([6]byte{2, 9}, netip.IPv4Unspecified(), vip, time.Now()) // a probe (RFC 5227) does want an answer
		synctest.Wait()
		if got := b.take(); len(got) != 1 || got[0].to != netip.IPv4Unspecified() {
			t.Errorf("sent %v, want the answer to the probe only", got)
		}
		b.wantMetric("berth_l2_rival_claims_total", `{family="IPv4",link="eth0"} 3`)
	})
}

func TestALinkThatComesBackIsAnnouncedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		b.run(10 * time.Second)
		b.take()
		b.set()
		b.LinksChanged()
		b.run(time.Second)
		if got := b.take(); len(got) != 0 || b.eth0() != nil {
			t.Errorf("on a link that is gone the responder sent %v", got)
		}
		if have := b.Have(); len(have) != 0 {
			t.Errorf("and it says that it answers for %v", have)
		}
		back := eth("eth0", 7, "192.0.2.0/24")
		b.set(back)
		b.LinksChanged()
		b.run(10 * time.Second)
		got := b.take()
		if len(got) != 6 || slices.ContainsFunc(got, func(f sent) bool { return f.index != 7 }) {
			t.Errorf("on the link made anew the responder sent %v, want 6 announcements", got)
		}
	})
}

func TestAnotherEpochIsAnnouncedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		b.run(10 * time.Second)
		b.claim(vip)
		b.run(10 * time.Second)
		if got := b.take(); len(got) != 12 {
			t.Errorf("two epochs made %d announcements, want 12", len(got))
		}
		b.wantMetric("berth_l2_gratuitous_frames_total", `{family="IPv4",link="eth0"} 24`)
	})
}

func TestASocketThatBreaksIsOpenedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		b.run(time.Second)
		b.eth0().broken <- errors.New("network is down")
		b.run(time.Second)
		b.take()
		b.ask(vip, 0)
		if got := answers(b.take()); len(got) != 1 {
			t.Errorf("after the socket broke %d answers, want 1", len(got))
		}
		b.wantMetric("berth_l2_errors_total", `{at="receive",family="IPv4",link="eth0"} 1`)
	})
}

func TestALinkThatCannotBeOpenedIsTriedLessAndLessOften(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.refuse = errors.New("operation not permitted")
		b.claim(vip)
		b.run(time.Minute)
		if b.opened < 10 || b.opened > 25 {
			t.Errorf("in a minute it was tried %d times", b.opened)
		}
		b.refuse = nil
		b.run(6 * time.Second)
		if b.eth0() == nil {
			t.Error("it was not tried again")
		}
		tries := b.opened
		b.claim() // with nothing to answer there is nothing to open either
		b.set()
		b.LinksChanged()
		b.run(time.Second)
		b.set(eth("eth0", 1, "192.0.2.0/24"))
		b.LinksChanged()
		b.run(time.Minute)
		if b.opened != tries {
			t.Error("a socket was opened for nothing")
		}
	})
}

func TestAFailureOnOneLinkDoesNotTouchAnother(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.set(eth("eth0", 1, "192.0.2.0/24"), eth("eth1", 2, "198.51.100.0/24"))
		b.claim(vip)
		b.eth0().refuse = errors.New("no buffer space available")
		b.take()
		b.claim(vip)
		b.run(10 * time.Second)
		for _, frame := range b.take() {
			if frame.link != "eth1" {
				t.Errorf("a frame was sent on %s", frame.link)
			}
		}
		b.wantMetric("berth_l2_gratuitous_frames_total", `{family="IPv4",link="eth1"} 14`) // one, then six: two frames each
		b.wantMetric("berth_l2_errors_total", `{at="announce",family="IPv4",link="eth0"} 6`)
	})
}

func TestF81TheRegularCheckRepairsAMissedEvent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		b.run(time.Second)
		b.set(eth("eth0", 9, "192.0.2.0/24")) // and nobody says so
		b.run(31 * time.Second)
		b.take()
		b.ask(vip, 0)
		if got := answers(b.take()); len(got) != 1 || got[0].index != 9 {
			t.Errorf("answered by %v, want the new link", got)
		}
		b.wantMetric("berth_l2_repairs_total", " 1")
	})
}

func TestMetricsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		for _, name := range []string{"requests_total", "replies_total", "stale_requests_total", "rival_claims_total"} {
			b.wantMetric("berth_l2_"+name, `{family="IPv4",link="eth0"} 0`)
		}
		b.wantMetric("berth_l2_addresses", " 1")
		b.ask(vip, 0)
		b.wantMetric("berth_l2_requests_total", `{family="IPv4",link="eth0"} 1`)
		b.wantMetric("berth_l2_replies_total", `{family="IPv4",link="eth0"} 1`)
	})
}

// TestRoutesAreAskedForOnce: claims come with every turn of the agent's loop, and each question is one to the kernel.
func TestRoutesAreAskedForOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.set(eth("eth0", 1, "192.0.2.0/24"), eth("eth1", 2, "192.0.2.0/24"))
		for range 20 {
			b.claim(vip)
		}
		if b.routed != 1 {
			t.Errorf("asked %d times for the route to %s", b.routed, vip)
		}
		b.routes[vip] = 2 // a route changes, of which no link tells
		b.run(31 * time.Second)
		b.take()
		b.claim(vip)
		for _, frame := range b.take() {
			if frame.link != "eth1" {
				t.Errorf("announced on %s, after the address was routed by eth1", frame.link)
			}
		}
		b.set(eth("eth0", 1, "192.0.2.0/24"), eth("eth1", 2, "192.0.2.0/24"), eth("eth2", 3, "192.0.2.0/24"))
		b.routes[vip] = 1
		b.claim(vip)
		if frames := b.take(); len(frames) != 1 || frames[0].link != "eth0" {
			t.Errorf("announced by %v, after the links changed and the route with them", frames)
		}
	})
}

var (
	vip6    = netip.MustParseAddr("2001:db8::10")
	client6 = netip.MustParseAddr("2001:db8::100")
)

// TestBothFamiliesOfALink: each is answered by its own socket, and the two share the pace of announcements.
func TestBothFamiliesOfALink(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.set(dual(eth("eth0", 1, "192.0.2.0/24")))
		b.claim(vip, vip6)
		b.run(10 * time.Second)
		counts := map[string]int{}
		for _, frame := range b.take() {
			counts[fmt.Sprint(frame.link, " ", frame.address)]++
		}
		want := map[string]int{"eth0 192.0.2.10": 6, "eth0 IPv6 2001:db8::10": 6}
		if diff := cmp.Diff(want, counts); diff != "" {
			t.Errorf("announcements (-want +got):\n%s", diff)
		}
		heard := <-b.socket("eth0 IPv6").heard
		heard([6]byte{2, 9}, client6, vip6, time.Now())
		heard([6]byte{2, 9}, netip.IPv6Unspecified(), vip6, time.Now())            // somebody wants to have it
		heard([6]byte{2, 9}, vip6, netip.Addr{}, time.Now())                       // somebody says he has
		heard([6]byte{2, 9}, client6, vip6, time.Now().Add(-201*time.Millisecond)) // an old question
		synctest.Wait()
		answered := []sent{{time.Now(), "eth0 IPv6", 1, vip6, client6}, {time.Now(), "eth0 IPv6", 1, vip6, netip.IPv6Unspecified()}}
		if diff := cmp.Diff(answered, b.take(), alike()); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]netip.Addr{vip, vip6}, b.Have(), alike()); diff != "" {
			t.Errorf("Have (-want +got):\n%s", diff)
		}
		for name, sample := range map[string]string{"requests_total": "3", "replies_total": "2", "stale_requests_total": "1", "rival_claims_total": "1", "gratuitous_frames_total": "6"} {
			b.wantMetric("berth_l2_"+name, `{family="IPv6",link="eth0"} `+sample)
		}
		b.wantMetric("berth_l2_gratuitous_frames_total", `{family="IPv4",link="eth0"} 12`)
	})
}

// TestLossIsSilenceInBothFamilies is F80 for a Service that has both: what is lost in one is kept in the other.
func TestLossIsSilenceInBothFamilies(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.set(dual(eth("eth0", 1, "192.0.2.0/24")))
		b.claim(vip, vip6)
		b.run(50 * time.Millisecond)
		b.take()
		b.Set([]announce.Claim{{Address: vip, Epoch: b.epoch}})
		heard := <-b.socket("eth0 IPv6").heard
		heard([6]byte{2, 9}, client6, vip6, time.Now())
		b.run(10 * time.Second)
		frames := b.take()
		if len(frames) == 0 {
			t.Error("the address that was kept is not announced any more")
		}
		for _, frame := range frames {
			if frame.address != vip {
				t.Errorf("a frame for %s was sent after it was lost", frame.address)
			}
		}
	})
}

// TestTroubleInOneFamilyLeavesTheOther is F69: no IPv6 on the link, or one whose socket fails, disturbs IPv4 in nothing.
func TestTroubleInOneFamilyLeavesTheOther(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(b *bench)
		opened int // IPv6 sockets tried in 10 s, at most; 0: none
	}{
		"no address": {reason: "nothing is tried", change: func(b *bench) { b.set(eth("eth0", 1, "192.0.2.0/24")) }},
		"refused":    {reason: "it is tried less and less often", change: func(b *bench) { b.refuse6 = errors.New("no such device") }, opened: 15},
		"broken":     {reason: "it is opened again", change: func(b *bench) { b.socket("eth0 IPv6").broken <- errors.New("network is down") }, opened: 1},
		"other address": {
			reason: "everything is sent from the new one", opened: 1,
			change: func(b *bench) {
				link := dual(eth("eth0", 1, "192.0.2.0/24"))
				link.LinkLocal = link.LinkLocal.Next()
				b.set(link)
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(b *bench) {
				b.set(dual(eth("eth0", 1, "192.0.2.0/24")))
				b.claim(vip, vip6)
				b.run(10 * time.Second)
				before, four := b.opened, b.eth0()
				c.change(b)
				if c.opened > 1 {
					b.socket("eth0 IPv6").broken <- errors.New("network is down")
				}
				b.LinksChanged()
				b.take()
				b.run(10 * time.Second)
				if b.eth0() != four {
					t.Errorf("%s: the socket for IPv4 was opened anew", c.reason)
				}
				if tried := b.opened - before; tried > c.opened || tried == 0 != (c.opened == 0) {
					t.Errorf("%s: IPv6 was opened %d times, want %d at most", c.reason, tried, c.opened)
				}
				b.ask(vip, 0)
				if got := answers(b.take()); len(got) != 1 {
					t.Errorf("%s: IPv4 was answered %d times", c.reason, len(got))
				}
				six := b.socket("eth0 IPv6")
				if c.opened == 1 && (six == nil || six.link.LinkLocal != b.Current()[0].LinkLocal) {
					t.Errorf("%s: IPv6 is not answered from the link's address", c.reason)
				}
			})
		})
	}
}

// TestWhatIsRefusedIsCounted, whatever it is, and said once.
func TestWhatIsRefusedIsCounted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.claim(vip)
		refused := <-b.eth0().refused
		for range 3 {
			refused("malformed", 2)
		}
		b.wantMetric("berth_l2_refused_frames_total", `{family="IPv4",link="eth0",why="malformed"} 6`)
		b.wantMetric("berth_l2_refused_frames_total", `{family="IPv4",link="eth0",why="overflow"} 0`)
	})
}

// wantMetric checks that a metric has a sample that ends so.
func (b *bench) wantMetric(name, sample string) {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			text := fmt.Sprintf("{%s} %v", strings.Join(labels, ","), value)
			if family.GetName() == name {
				got = append(got, strings.TrimPrefix(text, "{}"))
			}
		}
	}
	if !slices.Contains(got, sample) {
		b.t.Errorf("%s: want %s, got %v", name, sample, got)
	}
}

// TestClaimsWhileNothingRuns shows that Set does not wait for Run, and that the newest claims win.
func TestClaimsWhileNothingRuns(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.cancel()
		synctest.Wait()
		for i := range uint64(1000) {
			b.Set([]announce.Claim{{Address: vip, Epoch: i}})
		}
	})
}
