// Command speaker runs on every node: it elects, with the speakers of the other nodes, who answers for which address of
// a LoadBalancer Service, and answers for those that fall to this node.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is stamped by the linker.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "health" {
		if err := probe(context.Background(), os.Args[2:]); err != nil {
			fail(err)
		}
		return
	}
	options, err := parseFlags(os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		fail(err)
	case options.version:
		fmt.Println(version)
		return
	}
	log := newLogger(options.verbosity)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, options, log); err != nil {
		stop()
		fail(err)
	}
}

// fail says what is wrong and ends the process.
func fail(err error) {
	fmt.Fprintf(os.Stderr, "speaker: %v\n", err)
	os.Exit(1)
}

// newLogger writes JSON lines to standard error; the libraries below write through it too.
func newLogger(verbosity int) logr.Logger {
	handler := slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(-verbosity)})
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return log
}
