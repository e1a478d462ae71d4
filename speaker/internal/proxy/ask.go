package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-logr/logr"

	"github.com/berthlb/berth/internal/cluster"
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
	Livez   string // URL; empty: kube-proxy's default
	Metrics string // URL; empty: kube-proxy's default
	// NodeAddresses are where the healthCheckNodePorts of this node answer, by family. In a family without one, metrics tell.
	NodeAddresses map[cluster.Family]netip.Addr
	Client        *http.Client // nil: one that uses no proxy and waits for a second at most
	Log           logr.Logger
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
