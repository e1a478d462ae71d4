// Package slow stands between a program and the API server, and makes it as slow and as unreliable as one can be: requests
// and what a watch shows arrive late, and answers are lost although the server has done what was asked.
//
//	program ──► Server (TLS, its own certificate) ── waits ──► API server
//	        ◄── perhaps no answer                 ◄──────────
//
// Who asks is known by a token, which is passed on; a client's certificate would end here.
package slow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Manners are how the API server appears. The zero value is prompt.
type Manners struct {
	// Writes of statuses are held back before the API server gets them, in turn for each of these times, whether or not
	// their client still waits: a request that is on its way cannot be called back.
	Writes []time.Duration
	// Watches is how much later than it is said each part of a watch arrives.
	Watches time.Duration
	// Lose is of how many writes of statuses one is carried out and not answered; 0: none.
	Lose int
}

// Seen counts requests.
type Seen struct{ Reads, Writes, Statuses, Lost int }

// String prints one line.
func (s Seen) String() string {
	return fmt.Sprintf("reads=%d writes=%d statuses=%d lost=%d", s.Reads, s.Writes, s.Statuses, s.Lost)
}

// Server passes requests on. Its methods may be called from any goroutine.
type Server struct {
	http *http.Server
	pass *httputil.ReverseProxy
	done chan struct{}

	mu      sync.Mutex // guards all below
	manners Manners
	seen    Seen
}

// Options are what a Server works with.
type Options struct {
	Listener    net.Listener
	Certificate tls.Certificate // of the server
	Upstream    *url.URL
	TLS         *tls.Config // how the API server is trusted
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)
}

// Serve begins to pass requests on, promptly.
func Serve(options Options) *Server {
	s := &Server{done: make(chan struct{})}
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // connections break, and are meant to
	s.pass = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(options.Upstream) },
		Transport: &http.Transport{
			DialContext: options.Dial, ForceAttemptHTTP2: true, TLSClientConfig: options.TLS,
		},
		FlushInterval:  -1, // a watch is passed on as it comes
		ModifyResponse: s.answer,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:       silent,
	}
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ErrorLog: silent,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{options.Certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		defer close(s.done)
		_ = s.http.ServeTLS(options.Listener, "", "") // ends with Close
	}()
	return s
}

// Close ends it, with every connection.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

// Behave makes requests from now on have these manners, and answers what was seen before.
func (s *Server) Behave(manners Manners) Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.manners, s.seen = manners, Seen{}
	return seen
}

// ServeHTTP passes one request on.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wait, lose := s.treat(r)
	if wait == 0 && !lose {
		s.pass.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone before it has said all
	}
	<-time.After(wait)
	// A context that can end, or the proxy would watch the client's connection instead.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	late := r.Clone(ctx)
	late.Body = io.NopCloser(strings.NewReader(string(body)))
	if !lose {
		s.pass.ServeHTTP(w, late)
		return
	}
	s.pass.ServeHTTP(discard{http.Header{}}, late)
	panic(http.ErrAbortHandler) // the client sees its connection break
}

// treat counts a request, and says how it is to be treated.
func (s *Server) treat(r *http.Request) (wait time.Duration, lose bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		s.seen.Reads++
		return 0, false
	}
	s.seen.Writes++
	if !strings.HasSuffix(r.URL.Path, "/status") {
		return 0, false
	}
	if n := len(s.manners.Writes); n > 0 {
		wait = s.manners.Writes[s.seen.Statuses%n]
	}
	s.seen.Statuses++
	if s.manners.Lose > 0 && s.seen.Statuses%s.manners.Lose == 0 {
		s.seen.Lost++
		lose = true
	}
	return wait, lose
}

// answer delays what a watch shows.
func (s *Server) answer(response *http.Response) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if response.Request.URL.Query().Get("watch") == "" || s.manners.Watches == 0 {
		return nil
	}
	response.Body = &lateBody{ReadCloser: response.Body, by: s.manners.Watches}
	return nil
}

// lateBody is a body that is read later than it comes.
type lateBody struct {
	io.ReadCloser

	by time.Duration
}

// Read reads what has come, and keeps it for a while.
func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		<-time.After(b.by)
	}
	return n, err
}

// discard is an answer that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
