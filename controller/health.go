package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// health serves /healthz while the process lives, /readyz once the caches are synced, also on one that waits for the
// Lease, and /metrics.
type health struct {
	listener net.Listener
	registry *prometheus.Registry
	synced   atomic.Bool
}

// newHealth opens the port.
func newHealth(ctx context.Context, address string) (*health, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open %s for health and metrics (--listen): %w", address, err)
	}
	return &health{listener: listener, registry: prometheus.NewRegistry()}, nil
}

// handler answers the requests.
func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !h.synced.Load() {
			http.Error(w, "caches are not synced", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{}))
	return mux
}

// serve serves until ctx ends.
func (h *health) serve(ctx context.Context) error {
	server := &http.Server{Handler: h.handler(), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health and metrics: %w", err)
	}
	return nil
}
