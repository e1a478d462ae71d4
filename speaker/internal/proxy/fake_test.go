package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/speaker/internal/proxy"
)

// kubeProxy is a kube-proxy in memory, as far as it answers HTTP: nothing here leaves the bubble of a test's clock.
type kubeProxy struct {
	mu       sync.Mutex
	livez    int            // status; 0: connection refused
	metrics  bool           // answers
	family   cluster.Family // whose rounds these are; the other family's tell nothing good
	finished time.Time      // the last round of its rules
	queued   time.Time      // the last change of theirs
	count    int            // of their rounds
	spent    time.Duration  // on all of them
	health   map[string]int // status by host and port
	asked    map[string]int // how often, by host, port and path
	slow     time.Duration  // how long an answer takes
}

// RoundTrip answers.
func (k *kubeProxy) RoundTrip(request *http.Request) (*http.Response, error) {
	k.mu.Lock()
	slow := k.slow
	k.asked[request.URL.Host+request.URL.Path]++
	k.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch host := request.URL.Host; {
	case host == "127.0.0.1:10256" && k.livez != 0:
		return answer(k.livez, ""), nil
	case host == "127.0.0.1:10249" && k.metrics:
		return answer(http.StatusOK, k.text()), nil
	case k.health[host] != 0:
		return answer(k.health[host], "{}"), nil
	default:
		return nil, errors.New("connection refused")
	}
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}
}

// text are the metrics, as kube-proxy 1.37 writes them.
func (k *kubeProxy) text() string {
	var b strings.Builder
	b.WriteString("# HELP kubeproxy_sync_proxy_rules_last_timestamp_seconds [ALPHA] The last time proxy rules were successfully synced\n")
	b.WriteString("# TYPE kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge\n")
	line := func(name, family string, at time.Time) {
		if !at.IsZero() {
			fmt.Fprintf(&b, "kubeproxy_sync_proxy_rules_%s_timestamp_seconds{ip_family=%q} %.9e\n", name, family, float64(at.UnixNano())/1e9)
		}
	}
	ours, other := k.family.String(), (cluster.IPv4 + cluster.IPv6 - k.family).String()
	line("last", ours, k.finished)
	line("last", other, time.Now().Add(time.Hour)) // of no concern
	line("last_queued", ours, k.queued)
	line("last_queued", other, time.Now().Add(time.Hour))
	b.WriteString("# TYPE kubeproxy_sync_proxy_rules_duration_seconds histogram\n")
	for family, count := range map[string]int{ours: k.count, other: 1000} {
		if count == 0 {
			continue
		}
		fmt.Fprintf(&b, "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=%q,le=\"+Inf\"} %d\n", family, count)
		fmt.Fprintf(&b, "kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family=%q} %g\n", family, k.spent.Seconds())
		fmt.Fprintf(&b, "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=%q} %d\n", family, count)
	}
	return b.String()
}

// round is a round of kube-proxy's that has just succeeded. What it counts goes on for a moment after it has finished.
func (k *kubeProxy) round(began, finished time.Time) {
	k.metrics, k.finished = true, finished
	k.count++
	k.spent += finished.Sub(began) + time.Millisecond
}

// set changes it.
func (k *kubeProxy) set(change func(*kubeProxy)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

// total is how many questions it was asked.
func (k *kubeProxy) total() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	sum := 0
	for _, count := range k.asked {
		sum += count
	}
	return sum
}

// bench is a kube-proxy that answers nothing yet, inside a bubble with a fake clock.
type bench struct {
	*kubeProxy
	t       *testing.T
	options proxy.Options
	woken   chan struct{} // a wake each
	stop    func()        // ends what runs
}

// address is where the health check ports of the family answer.
func (k *kubeProxy) address() netip.Addr { return nodeAddresses()[k.family] }

func nodeAddresses() map[cluster.Family]netip.Addr {
	return map[cluster.Family]netip.Addr{cluster.IPv4: netip.MustParseAddr("192.0.2.1"), cluster.IPv6: netip.MustParseAddr("2001:db8::1")}
}

// inBothFamilies runs a test with such a bench for IPv4, and with one for IPv6.
func inBothFamilies(t *testing.T, test func(b *bench)) {
	t.Helper()
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		inBubble(t, func(b *bench) {
			b.family = family
			test(b)
		})
	}
}

// inBubble runs a test with such a bench, for IPv4.
func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kubeProxy{family: cluster.IPv4, health: map[string]int{}, asked: map[string]int{}}
		b := &bench{
			kubeProxy: k, t: t, woken: make(chan struct{}, 1000), stop: func() {},
			options: proxy.Options{
				NodeAddresses: nodeAddresses(), Log: logr.Discard(),
				Client: &http.Client{Timeout: time.Second, Transport: k},
			},
		}
		test(b)
		b.stop()
	})
}

// runner is what Watcher and Gate have in common.
type runner interface {
	Run(ctx context.Context, wake func()) error
}

// run runs one until the test ends, and counts its wakes.
func (b *bench) run(r runner) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, func() { b.woken <- struct{}{} }) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
}

// wantSilence checks that kube-proxy is not asked for a minute.
func (b *bench) wantSilence(why string) {
	b.t.Helper()
	asked := b.total()
	pass(time.Minute)
	if more := b.total() - asked; more != 0 {
		b.t.Errorf("kube-proxy was asked %d times %s", more, why)
	}
}

// pass lets time pass.
func pass(span time.Duration) {
	<-time.After(span)
	synctest.Wait()
}
