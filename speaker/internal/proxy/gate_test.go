package proxy_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/proxy"
)

const ms = time.Millisecond

// plan is what kube-proxy does in a case: at a time after the item was first seen.
type plan struct {
	after time.Duration
	do    func(k *kubeProxy, seen time.Time)
}

func TestWhenTheGateOpens(t *testing.T) {
	t.Parallel()
	anySort, local := proxy.Item{Key: "a"}, proxy.Item{Key: "a", Local: true, HealthCheckPort: 32000}
	metrics := func(k *kubeProxy, _ time.Time) { k.metrics = true }
	health := func(status int) func(*kubeProxy, time.Time) {
		return func(k *kubeProxy, _ time.Time) { k.health[netip.AddrPortFrom(k.address(), 32000).String()] = status }
	}
	// synced is a round of kube-proxy's from began to finished, after which the last change was queued at a time.
	synced := func(queued, began, finished time.Duration) func(*kubeProxy, time.Time) {
		return func(k *kubeProxy, seen time.Time) {
			k.queued = seen.Add(queued)
			k.round(seen.Add(began), seen.Add(finished))
		}
	}
	queued := func(at time.Duration) func(*kubeProxy, time.Time) {
		return func(k *kubeProxy, seen time.Time) { k.queued = seen.Add(at) }
	}
	longAgo := plan{0, synced(-time.Minute, -time.Minute, -time.Minute+100*ms)}
	cases := map[string]struct {
		reason string
		item   proxy.Item
		plans  []plan
		want   time.Duration
	}{
		"exempt":       {reason: "what is exempt does not wait", item: proxy.Item{Key: "a", Local: true, HealthCheckPort: 32000, Exempt: true}},
		"local, ready": {reason: "the health check port answers 200", item: local, plans: []plan{{0, health(200)}}},
		"local, later": {
			reason: "or does so later", item: local, want: 800 * ms,
			plans: []plan{{0, health(503)}, {800 * ms, health(200)}},
		},
		"local, never": {reason: "no endpoint here, says kube-proxy: 3 s at most", item: local, plans: []plan{{0, health(503)}}, want: 3000 * ms},
		"local, the port opens late": {
			reason: "kube-proxy is there, its port for the Service is not yet", item: local, want: 2000 * ms,
			plans: []plan{{0, metrics}, {2000 * ms, health(200)}},
		},
		"local, a sync is not enough": {
			reason: "a sync says nothing about the endpoints here", item: local, want: 3000 * ms,
			plans: []plan{longAgo, {0, health(503)}, {500 * ms, synced(100*ms, 400*ms, 480*ms)}},
		},
		"local, without a port": {
			reason: "without a health check port the syncs tell", item: proxy.Item{Key: "a", Local: true}, want: 400 * ms,
			plans: []plan{longAgo, {400 * ms, synced(100*ms, 350*ms, 390*ms)}},
		},
		"nobody to ask": {reason: "another proxy: 1.5 s", item: anySort, want: 1500 * ms},
		"local, nobody": {reason: "another proxy without health check ports: 1.5 s", item: local, want: 1500 * ms},
		"cluster, synced": {
			reason: "a sync that began after the change was queued", item: anySort, want: 700 * ms,
			plans: []plan{longAgo, {700 * ms, synced(100*ms, 200*ms, 690*ms)}},
		},
		"cluster, synced at once": {
			reason: "it begins when the change is queued; another change may still be on its way for 300 ms", item: anySort, want: 300 * ms,
			plans: []plan{longAgo, {120 * ms, synced(20*ms, 20*ms, 110*ms)}},
		},
		"cluster, a sync was under way": {
			reason: "one that began before the change was queued does not have it, when it finishes; the next does", item: anySort, want: 1400 * ms,
			plans: []plan{longAgo, {250 * ms, synced(20*ms, -30*ms, 240*ms)}, {1400 * ms, synced(20*ms, 1240*ms, 1390*ms)}},
		},
		"cluster, the next one fails": {
			reason: "one that fails has nothing, and takes the changes with it", item: anySort, want: 2000 * ms,
			plans: []plan{
				longAgo, {250 * ms, synced(20*ms, -30*ms, 240*ms)},
				{1300 * ms, func(k *kubeProxy, _ time.Time) { k.count++; k.spent += 50 * ms }},
				{2000 * ms, synced(20*ms, 1900*ms, 1990*ms)},
			},
		},
		"cluster, finished and not counted": {
			reason: "it says that it is finished before it counts itself", item: anySort, want: 800 * ms,
			plans: []plan{
				longAgo, {700 * ms, func(k *kubeProxy, seen time.Time) { k.queued, k.finished = seen, seen.Add(690*ms) }},
				{800 * ms, func(k *kubeProxy, _ time.Time) { k.count++; k.spent += 400 * ms }},
			},
		},
		"cluster, old sync": {reason: "one from before says nothing", item: anySort, plans: []plan{longAgo}, want: 3000 * ms},
		"cluster, never synced": {
			reason: "kube-proxy has not synced at all", item: anySort, want: 3000 * ms, plans: []plan{{0, metrics}},
		},
		"cluster, kube-proxy was faster": {
			reason: "it was done before we asked: if the change had come in too late, the next sync would be done", item: anySort,
			want: 1100*ms + 100*ms, plans: []plan{{0, synced(-200*ms, -200*ms, -100*ms)}},
		},
		"cluster, faster with another change": {
			reason: "what it did before was something else: this change comes in now", item: anySort, want: 1200 * ms,
			plans: []plan{{0, synced(-200*ms, -200*ms, -100*ms)}, {200 * ms, queued(150 * ms)}, {1200 * ms, synced(150*ms, 1050*ms, 1190*ms)}},
		},
		"cluster, others never rest": {
			reason: "what comes in after the sync began is not ours: ours was heard of by then", item: anySort, want: 1500 * ms,
			plans: []plan{
				longAgo, {250 * ms, synced(200*ms, 150*ms, 240*ms)}, {1400 * ms, queued(1390 * ms)},
				{1500 * ms, synced(1440*ms, 1240*ms, 1490*ms)},
			},
		},
		"cluster, no sync ends": {
			reason: "changes, and no sync: 3 s at most", item: anySort, want: 3000 * ms,
			plans: []plan{longAgo, {100 * ms, queued(100 * ms)}, {2900 * ms, queued(2900 * ms)}},
		},
		"cluster, answers late": {
			reason: "kube-proxy begins to answer after a second", item: anySort, want: 1600 * ms,
			plans: []plan{{1000 * ms, metrics}, {1200 * ms, synced(100*ms, 0, 200*ms)}, {1600 * ms, synced(100*ms, 1300*ms, 1500*ms)}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBothFamilies(t, func(b *bench) {
				g := proxy.NewGate(b.options)
				b.run(g)
				b.wantSilence("for nothing")
				c.item.Family = b.family
				opened := b.untilOpen(g, c.item, c.plans)
				if opened < c.want || opened > c.want+60*ms {
					t.Errorf("%s: opened after %s, want %s", c.reason, opened, c.want)
				}
				if woken := len(b.woken); woken != 1 && !c.item.Exempt {
					t.Errorf("%s: woken %d times, want 1", c.reason, woken)
				}
				pass(200 * ms) // the last question may be under way
				b.wantSilence("after the gate had opened")
				if !g.Open("a") {
					t.Errorf("%s: it closed again", c.reason)
				}
			})
		})
	}
}

// untilOpen updates the gate with the item, as an agent does whenever it is woken, and plays the plans, until it is open.
// It returns how long that took.
func (b *bench) untilOpen(g *proxy.Gate, item proxy.Item, plans []plan) time.Duration {
	seen := time.Now()
	for span := time.Duration(0); span < 10*time.Second; span += 10 * ms {
		for len(plans) > 0 && plans[0].after <= span {
			b.set(func(k *kubeProxy) { plans[0].do(k, seen) })
			plans = plans[1:]
		}
		g.Update([]proxy.Item{item})
		synctest.Wait()
		if g.Open("a") {
			return span
		}
		pass(10 * ms)
	}
	b.t.Fatal("it never opens")
	return 0
}

func TestAForgottenKeyBeginsAnew(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		g := proxy.NewGate(b.options)
		b.run(g)
		if g.Open("a") {
			t.Error("a key nobody knows is open")
		}
		first, second := proxy.Item{Family: cluster.IPv4, Key: "a"}, proxy.Item{Family: cluster.IPv4, Key: "b"}
		g.Update([]proxy.Item{first, second})
		pass(1600 * ms)
		if !g.Open("a") || !g.Open("b") {
			t.Fatal("not open after 1.5 s")
		}
		g.Update([]proxy.Item{second})
		if g.Open("a") || !g.Open("b") {
			t.Error("what is not among the items is open, or another one is not")
		}
		g.Update([]proxy.Item{first, second})
		pass(1400 * ms)
		if g.Open("a") {
			t.Error("a key that came again did not wait anew")
		}
		pass(200 * ms)
		if !g.Open("a") {
			t.Error("and did not open then")
		}
	})
}

// TestASlowProxyDelaysNobody: answers that take longer than anything should do not move the last moment to open.
func TestASlowProxyDelaysNobody(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.set(func(k *kubeProxy) { k.slow, k.metrics = 10*time.Second, true })
		g := proxy.NewGate(b.options)
		b.run(g)
		var items []proxy.Item
		for i := range uint16(100) {
			items = append(items, proxy.Item{Family: cluster.IPv4, Key: strconv.Itoa(int(i)), Local: i%2 == 0, HealthCheckPort: 32000 + i})
		}
		g.Update(items)
		pass(3050 * ms)
		for _, item := range items {
			if !g.Open(item.Key) {
				t.Fatalf("%s is not open after 3 s", item.Key)
			}
		}
	})
}

// TestManyItemsAreAskedAboutInTurn: with many Services at once, kube-proxy answers few questions at a time.
func TestManyItemsAreAskedAboutInTurn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		var items []proxy.Item
		for i := range uint16(200) {
			items = append(items, proxy.Item{Family: cluster.IPv4, Key: strconv.Itoa(int(i)), Local: true, HealthCheckPort: 32000 + i})
			b.health[netip.AddrPortFrom(b.options.NodeAddresses[cluster.IPv4], 32000+i).String()] = http.StatusOK
		}
		b.slow = 10 * ms
		g := proxy.NewGate(b.options)
		b.run(g)
		g.Update(items)
		pass(1000 * ms)
		for _, item := range items {
			if !g.Open(item.Key) {
				t.Fatalf("%s is not open", item.Key)
			}
		}
		if len(b.woken) > 3 {
			t.Errorf("woken %d times for items that opened together", len(b.woken))
		}
		if b.asked["127.0.0.1:10249/metrics"] > 0 {
			t.Error("kube-proxy's metrics were asked for, and have nothing to tell")
		}
		if asked := b.total(); asked > 210 {
			t.Errorf("asked %d times for 200 items", asked)
		}
	})
}

// TestOverHTTP asks a server on a real socket, with the client that is used by default.
func TestOverHTTP(t *testing.T) {
	t.Parallel()
	healthy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(healthy.Close)
	parsed, err := url.Parse(healthy.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(parsed.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	var rounds atomic.Int64
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		later := strconv.FormatFloat(float64(time.Now().Add(time.Second).UnixNano())/1e9, 'e', -1, 64)
		const name = "kubeproxy_sync_proxy_rules_"
		_, err := fmt.Fprintf(w, name+"last_timestamp_seconds %s\n"+name+"duration_seconds_count %d\n", later, rounds.Add(1))
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(metrics.Close)
	g := proxy.NewGate(proxy.Options{
		Metrics: metrics.URL + "/metrics", Log: logr.Discard(),
		NodeAddresses: map[cluster.Family]netip.Addr{cluster.IPv4: netip.MustParseAddr(strings.Trim(parsed.Hostname(), "[]"))},
	})
	opened := make(chan struct{}, 10)
	done := make(chan error, 1)
	go func() { done <- g.Run(t.Context(), func() { opened <- struct{}{} }) }()
	items := []proxy.Item{{Family: cluster.IPv4, Key: "local", Local: true, HealthCheckPort: uint16(port)}, {Family: cluster.IPv4, Key: "cluster"}}
	g.Update(items)
	began := time.Now()
	for !g.Open("local") || !g.Open("cluster") {
		select {
		case <-opened:
		case <-time.After(5 * time.Second):
			t.Fatal("not open")
		}
	}
	if took := time.Since(began); took > 1400*ms {
		t.Errorf("it opened after %s: kube-proxy was not asked", took)
	}
}
