package program

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// shutdownGrace is how long requests under way may take after the server was asked to end.
const shutdownGrace = 20 * time.Second

// usualPort is what a container listens on that is told no other.
const usualPort = "8080"

// web is an HTTP server that says which pod answered and whom it saw asking.
//
//	/          one line: pod=NAME node=NODE src=ADDRESS:PORT
//	/stream    the same line ten times a second until the client closes
//	/slow?d=2s the same line after that long
//	/healthz   ok
//
// It listens on the TCP ports in PORTS (comma list, 8080 if empty). Asked to end it goes on for --drain, then closes its listeners and
// lets requests under way finish.
func web(args []string) error {
	flags := flag.NewFlagSet("web", flag.ContinueOnError)
	drain := flags.Duration("drain", 0, "how long to go on serving after SIGTERM")
	if err := flags.Parse(args); err != nil {
		return err
	}
	asked, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	group, ctx := errgroup.WithContext(context.Background())
	for port := range strings.SplitSeq(cmp.Or(os.Getenv("PORTS"), usualPort), ",") {
		server := &http.Server{Addr: net.JoinHostPort("", port), Handler: webHandler(), ReadHeaderTimeout: time.Minute}
		group.Go(func() error {
			if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve port %s: %w", port, err)
			}
			return nil
		})
		group.Go(func() error {
			select {
			case <-ctx.Done(): // another port failed
			case <-asked.Done():
				<-time.After(*drain)
			}
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
			defer cancel()
			return server.Shutdown(ending)
		})
	}
	return group.Wait()
}

func webHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", answer)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		wait, err := time.ParseDuration(r.URL.Query().Get("d"))
		if err != nil {
			http.Error(w, "d must be a duration such as 2s", http.StatusBadRequest)
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(wait):
			answer(w, r)
		}
	})
	mux.HandleFunc("/stream", stream)
	return mux
}

func answer(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "pod=%s node=%s src=%s\n", podName(), os.Getenv("NODE_NAME"), r.RemoteAddr)
}

// podName is what POD_NAME says, or the host's name, which Kubernetes makes the same.
func podName() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

func stream(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	out := http.NewResponseController(w)
	for {
		answer(w, r)
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}
