package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// listen opens the port of the health and metrics endpoints.
func listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open %s for health and metrics (--listen): %w", address, err)
	}
	return listener, nil
}

// serveHealth serves health and metrics in the pod, and on the node's port unless another speaker has it still.
func (s *speaker) serveHealth(ctx context.Context, group *errgroup.Group) error {
	if path := s.options.healthSocket; path != "" {
		socket, err := listenInPod(ctx, path)
		if err != nil {
			return err
		}
		group.Go(func() error { return serve(ctx, socket, s.handler()) })
	}
	if s.waiting.Load() {
		return nil
	}
	return s.servePort(ctx, group)
}

// servePort serves health and metrics on the node's port.
func (s *speaker) servePort(ctx context.Context, group *errgroup.Group) error {
	port, err := listen(ctx, s.options.listen)
	if err != nil {
		return err
	}
	group.Go(func() error { return serve(ctx, port, s.handler()) })
	return nil
}

// handler answers /healthz while the process lives, /readyz once it can announce, and /metrics.
func (s *speaker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case s.waiting.Load() && s.identified.Load():
			fmt.Fprintln(w, "ok: waiting for the speaker that this one replaces")
		case !s.synced.Load():
			http.Error(w, "caches are not synced", http.StatusServiceUnavailable)
		case !s.joined.Load():
			http.Error(w, "waiting for the other speakers", http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	return mux
}

// serve serves until the context ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health and metrics: %w", err)
	}
	return nil
}
