package assign_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

func TestRivalIsNamedAndNotFought(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.10"))
		api.put(object("a", 1))
		p := begin(t, api)
		defer p.stop()
		for range 4 {
			api.overwrite("shop", "a", "rival", "10.9.9.9")
			rest()
			api.expect(t, "taken back", map[string]string{"a": "192.0.2.10 Allocated (public)"})
		}
		p.events.take()
		api.overwrite("shop", "a", "rival", "10.9.9.9")
		rest()
		api.expect(t, "given up", map[string]string{"a": "10.9.9.9 RivalWriter (public)"})
		if events := p.events.take(); len(events) != 1 || !strings.Contains(events[0], `"rival"`) {
			t.Errorf("events %q do not name the rival once", events)
		}
		api.takeWrites()
		api.overwrite("shop", "a", "rival", "10.9.9.8")
		rest()
		p.stop()
		defer begin(t, api).stop()
		expectLines(t, "writes against the rival, also after a restart", nil, api.takeWrites())
		api.put(object("b", 2))
		rest()
		api.expect(t, "the address stays a's", map[string]string{"b": "PoolFull"})
		time.Sleep(11 * time.Minute) // in fake time
		synctest.Wait()
		api.expect(t, "tried again when the rival is quiet", map[string]string{"a": "192.0.2.10 Allocated (public)"})
	})
}

// TestRivalKeepsNobodyBusy: what a rival's writes make us do does not grow from hour to hour, and ends with them.
func TestRivalKeepsNobodyBusy(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.10"))
		api.put(object("a", 1))
		p := begin(t, api)
		defer p.stop()
		before := 0.0
		for i := range 3 * 360 {
			if i == 2*360 {
				before = testutil.ToFloat64(p.Metrics.Decisions)
			}
			api.overwrite("shop", "a", "rival", fmt.Sprintf("10.9.9.%d", i%250))
			pass(10 * time.Second)
		}
		after := testutil.ToFloat64(p.Metrics.Decisions)
		if made := after - before; made > 500 {
			t.Errorf("%v decisions in the third hour, about 360 writes of the rival", made)
		}
		pass(time.Hour)
		if made := testutil.ToFloat64(p.Metrics.Decisions) - after; made > 20 {
			t.Errorf("%v decisions in an hour in which nobody did anything", made)
		}
		api.expect(t, "in the end", map[string]string{"a": "192.0.2.10 Allocated (public)"})
	})
}

// TestOneReversalIsCountedOnce: our own writes fail while a rival's list stands there, which is one reversal however often we
// try.
func TestOneReversalIsCountedOnce(t *testing.T) {
	t.Parallel()
	for _, trouble := range []string{"refuse", "lose"} {
		t.Run(trouble, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, api *api) {
				api.set(lbtest.PoolObject("public", "192.0.2.10"))
				api.put(object("a", 1))
				p := begin(t, api)
				defer p.stop()
				p.events.take()
				attempts := 0
				api.trouble = func(string) string {
					attempts++
					if attempts <= 6 {
						return trouble
					}
					return ""
				}
				api.overwrite("shop", "a", "rival", "10.9.9.9")
				pass(time.Minute)
				api.expect(t, "once writes arrive again", map[string]string{"a": "192.0.2.10 Allocated (public)"})
				for _, event := range p.events.take() {
					if strings.Contains(event, string(reason.RivalWriter)) {
						t.Errorf("one reversal ended in %q", event)
					}
				}
			})
		})
	}
}
