package proxy_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/berthlb/berth/speaker/internal/proxy"
)

// watched is a course of kube-proxy's start.
type watched struct {
	reason  string
	before  int // status of /livez; 0: refused
	after   int
	change  time.Duration // when it becomes the latter
	at      time.Duration // when Up becomes true, within askEvery; 0: not in a minute
	problem bool
}

func TestWatcher(t *testing.T) {
	t.Parallel()
	cases := map[string]watched{
		"works":          {reason: "kube-proxy works: up at once", before: 200, after: 200, at: 1},
		"starts":         {reason: "it starts a second later", after: 200, change: time.Second, at: time.Second},
		"syncs for long": {reason: "it answers, and takes its time until it works", before: 503, after: 200, change: 30 * time.Second, at: 30 * time.Second},
		"never works":    {reason: "it answers and never works: never up", before: 503, after: 503},
		"dies":           {reason: "it has answered, so it is there, and is waited for", before: 503, change: time.Second},
		"none":           {reason: "nobody answers for 3 s: there is none to wait for", at: 3 * time.Second, problem: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(b *bench) { b.watch(c) })
		})
	}
}

// watch runs a watcher over such a course.
func (b *bench) watch(c watched) {
	b.livez = c.before
	w := proxy.NewWatcher(b.options)
	b.run(w)
	at := b.untilUp(w, func(span time.Duration) {
		if span >= c.change {
			b.set(func(k *kubeProxy) { k.livez = c.after })
		}
	})
	if at < c.at || at > c.at+300*time.Millisecond {
		b.t.Errorf("%s: up after %s, want %s", c.reason, at, c.at)
	}
	if problem := w.Problem(); (problem != "") != c.problem {
		b.t.Errorf("%s: problem %q", c.reason, problem)
	}
	if up := c.at != 0; (len(b.woken) == 1) != up {
		b.t.Errorf("%s: woken %d times", c.reason, len(b.woken))
	}
	if c.at != 0 {
		b.wantSilence("after it was up")
	}
}

// untilUp lets a minute pass until the watcher is up, in small steps before each of which something is done. It returns
// how long that took; 0 if it did not come.
func (b *bench) untilUp(w *proxy.Watcher, do func(span time.Duration)) time.Duration {
	began := time.Now()
	for span := time.Duration(1); span < time.Minute; span += 100 * time.Millisecond {
		do(span)
		pass(span - time.Since(began))
		if w.Up() {
			return span
		}
	}
	return 0
}

func TestWatcherAsksWhereItIsTold(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.options.Livez = "http://127.0.0.1:9/alive"
		b.health["127.0.0.1:9"] = http.StatusOK
		w := proxy.NewWatcher(b.options)
		b.run(w)
		pass(time.Second)
		if !w.Up() || b.asked["127.0.0.1:9/alive"] != 1 {
			t.Errorf("up %v, asked %v", w.Up(), b.asked)
		}
	})
}
