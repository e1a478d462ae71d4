// Package demo shows a person, on a real cluster, what Berth does. Each step says what it does and why that matters,
// does it, and looks for the effect from outside: in the API server, on the wire, in the pods' answers. What was not
// seen is said, and is an error.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berthlb/berth/e2e/lab"
)

const nodes = 3

// Options say what to show, and where.
type Options struct {
	Programs lab.Programs
	// Containers shows it on nodes with a kubelet and containers, with Berth installed by its chart.
	Containers bool
	Out        io.Writer
	Failed     string // folder that the logs go to if a step was not seen to work
}

// demo is one showing. Its steps run one after another.
type demo struct {
	options Options
	out     *printer
	lab     *lab.Lab

	address netip.Addr // of the Service, once it has one
	owner   string     // the node that answers for it
}

// step is something to show.
type step struct {
	title string
	why   string                                             // lines for somebody who sees it the first time
	show  func(ctx context.Context) (seen string, err error) // does it, and answers what was seen
}

// Run shows everything and answers an error as soon as something was not seen to work.
func Run(ctx context.Context, options Options) error {
	d := &demo{options: options, out: &printer{out: options.Out}}
	err := d.run(ctx)
	if d.lab == nil {
		return err
	}
	if err != nil {
		err = errors.Join(err, d.keep(ctx))
	}
	return errors.Join(err, d.lab.Close())
}

// keep saves what tells why a step was not seen to work: the logs of all programs, and the objects as they are now.
func (d *demo) keep(ctx context.Context) error {
	dir := d.options.Failed
	if err := d.lab.CopyLogs(dir); err != nil {
		return err
	}
	const kinds = "nodes,services,endpointslices,pods,events,ipaddresspools,l2advertisements,speakers"
	objects, err := d.kubectl(ctx, nil, "get", kinds, "--all-namespaces", "-o", "yaml")
	if err != nil {
		objects = err.Error() // the logs may still tell
	}
	d.out.printf("    The logs of all programs, and objects.yaml, are in %s\n", dir)
	return os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(objects), 0o600)
}

func (d *demo) run(ctx context.Context) error { return present(ctx, d.out, intro, d.steps()) }

// present shows steps one after another, after some words about them all.
func present(ctx context.Context, out *printer, intro string, steps []step) error {
	out.printf("%s", intro)
	for i, step := range steps {
		out.printf("\n%d/%d %s\n%s", i+1, len(steps), step.title, indent(step.why))
		begin := time.Now()
		stop := out.progress(begin)
		seen, err := step.show(ctx)
		stop()
		took := time.Since(begin).Seconds()
		if err != nil {
			out.printf("%s", indent(fmt.Sprintf("NOT SEEN (%.1f s): %v", took, err)))
			return fmt.Errorf("step %d, %s, was not seen to work", i+1, step.title)
		}
		out.printf("%s", indent(fmt.Sprintf("Seen (%.1f s): %s", took, seen)))
	}
	return nil
}

const intro = `Berth gives Kubernetes Services of type LoadBalancer an address that hosts outside the cluster reach.
All of this happens now, on a real cluster in network namespaces; nothing of it is left at the end.
`

// indent puts a text below its step's title.
func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}

// printer prints the lines of the steps, and those that say that one takes long.
type printer struct {
	mu  sync.Mutex // guards out
	out io.Writer
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format, args...)
}

const progressEvery = 5 * time.Second

// progress prints a line every few seconds until the answered function is called; a step that is quick has none.
func (p *printer) progress(begin time.Time) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.printf("    ... %.0f s\n", time.Since(begin).Seconds())
			}
		}
	}()
	return func() { close(done); <-ended }
}
