package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

const (
	// answerWithin is how long one question to kube-proxy may take.
	answerWithin = time.Second
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 8 << 20
)

// Where kube-proxy listens unless configured otherwise (KubeProxyConfiguration: healthzBindAddress, metricsBindAddress).
const (
	defaultLivez   = "http://127.0.0.1:10256/livez"
	defaultMetrics = "http://127.0.0.1:10249/metrics"
)

// Options are what Watcher and Gate work with.
type Options struct {
	Livez       string       // URL; empty: kube-proxy's default
	Metrics     string       // URL; empty: kube-proxy's default
	NodeAddress netip.Addr   // where the healthCheckNodePorts of this node answer
	Client      *http.Client // nil: one that uses no proxy and waits for a second at most
	Log         logr.Logger
}

// complete fills in what is not set.
func (o Options) complete() Options {
	if o.Livez == "" {
		o.Livez = defaultLivez
	}
	if o.Metrics == "" {
		o.Metrics = defaultMetrics
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: answerWithin, Transport: &http.Transport{MaxIdleConnsPerHost: asksAtOnce, IdleConnTimeout: 5 * time.Second}}
	}
	return o
}

// get asks an URL. An error means that nobody answered; read is given the body of a 200.
func (o Options) get(ctx context.Context, url string, read func(io.Reader)) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("ask %s: %w", url, err)
	}
	response, err := o.Client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask %s: %w", url, err)
	}
	defer func() { _ = response.Body.Close() }()
	body := io.LimitReader(response.Body, maxAnswer)
	if response.StatusCode == http.StatusOK && read != nil {
		read(body)
	}
	_, _ = io.Copy(io.Discard, body) // so that the connection can be used again
	return response.StatusCode, nil
}

// syncs are the times of kube-proxy's work, by this node's wall clock; zero if not told.
type syncs struct {
	finished time.Time // the last sync of its rules that succeeded
	queued   time.Time // the last change that asked for one
}

// readSyncs finds them among kube-proxy's metrics (pkg/proxy/metrics in Kubernetes). Since Kubernetes 1.32 each family has
// its own; a change of one family does not make the other sync, so the family has to be the right one. Only IPv4 is
// announced so far. Where there is no such label the value holds for all.
func readSyncs(metrics io.Reader) syncs {
	const (
		finished = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
		queued   = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
	)
	var s syncs
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, labels, value := splitSample(lines.Text())
		if labels != "" && !strings.Contains(labels, `ip_family="IPv4"`) {
			continue
		}
		switch name {
		case finished:
			s.finished = timeOf(value)
		case queued:
			s.queued = timeOf(value)
		}
	}
	return s
}

// splitSample takes a line of the text format apart: name{labels} value.
func splitSample(line string) (name, labels, value string) {
	series, value, _ := strings.Cut(line, " ")
	name, labels, _ = strings.Cut(series, "{")
	return name, labels, value
}

// timeOf reads seconds since 1970; zero if it cannot, or if the event has not happened yet.
func timeOf(value string) time.Time {
	const end = 1 << 33 // in the year 2242
	seconds, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(seconds > 0 && seconds < end) { // also not a number
		return time.Time{}
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9))
}
