// Package bench measures, on a cluster of the lab, what the budgets of the project speak of. Times are taken outside
// Berth: from frames on the client's port, from connections the client opens, from the API server's audit log.
//
// Every figure is printed as a line `bench NAME VALUE UNIT`, with `ratio R` at its end where there is something to
// compare with; the last line of a benchmark is its headline. What each trial gave is printed above them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/berthlb/berth/e2e/lab"
)

// Options say what to run on, and where the figures go.
type Options struct {
	Programs lab.Programs
	Out      io.Writer
	Failed   string // folder that the logs go to if it could not be measured
}

// Bench measures on a running lab.
type Bench struct {
	options Options
	lab     *lab.Lab
}

// printf prints to the reader of the figures.
func (b *Bench) printf(format string, args ...any) { fmt.Fprintf(b.options.Out, format, args...) }

// on starts a lab, measures, and closes the lab. It says how busy the machine was before and after.
func on(ctx context.Context, options Options, nodes int, measure func(context.Context, *Bench) error) error {
	b := &Bench{options: options}
	b.printf("load before: %s\n", load())
	begin := time.Now()
	l, err := lab.Start(ctx, lab.Options{Nodes: nodes, Programs: options.Programs})
	if err != nil {
		return err
	}
	b.lab = l
	b.printf("a lab of %d nodes is ready (%.1f s)\n", nodes, time.Since(begin).Seconds())
	err = measure(ctx, b)
	if err != nil {
		if failed := l.CopyLogs(options.Failed); failed == nil {
			b.printf("the logs of all programs are in %s\n", options.Failed)
		}
	}
	b.printf("%.0f s in all\n", time.Since(begin).Seconds())
	return errors.Join(err, l.Close())
}

// load is the machine's load averages over 1, 5 and 15 minutes, and its processes.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

const (
	// patience bounds the wait for something that never comes.
	patience  = time.Minute
	lookEvery = 20 * time.Millisecond
)

// until looks until what is looked for is there; the error of look says what is there instead.
func until(ctx context.Context, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last error
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // what came after the time was up only says that it was up
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s: %w", patience, last)
		case <-tick.C:
		}
	}
}
