package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthlb/berth/e2e/bench"
	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

// measure is a benchmark that has read its flags.
type measure func(context.Context, bench.Options) error

// runBench runs outside a sandbox first and then, started again by itself, inside.
func runBench(args []string) (int, error) {
	if len(args) == 0 {
		return 0, errors.New("no benchmark is named\n" + strings.TrimSpace(usage))
	}
	run, err := parseBench(args[0], args[1:])
	if err != nil {
		return 0, err
	}
	if _, inside := sandbox.Inside(); inside {
		return 0, benchInside(args[0], run)
	}
	_, code, err := outside(berthPrograms()...)
	return code, err
}

// parseBench reads a benchmark's flags; without any it is the short form.
func parseBench(name string, args []string) (measure, error) {
	flags := flag.NewFlagSet("lab bench "+name, flag.ContinueOnError)
	switch name {
	case "failover-node":
		return parseFailover(flags, args)
	case "false-takeover":
		return parseTakeover(flags, args)
	case "first-answer":
		return parseFirstAnswer(flags, args)
	case "allocate":
		return parseServices(flags, args, bench.Allocate)
	case "restart":
		return parseServices(flags, args, bench.Restart)
	case "plan-cpu":
		return parsePlanCPU(flags, args)
	default:
		return nil, fmt.Errorf("there is no benchmark %s\n%s", name, usage)
	}
}

func parseFailover(flags *flag.FlagSet, args []string) (measure, error) {
	const cuts, links = 10, 5
	var wanted bench.Failover
	flags.IntVar(&wanted.Nodes, "nodes", 3, "how many nodes")
	flags.IntVar(&wanted.Addresses, "addresses", 100, "how many addresses")
	trials := flags.Int("trials", 0, "how many trials of each cause (0: 10 of cut, 5 of link)")
	cause := flags.String("cause", "", "cut or link (empty: both)")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if wanted.Nodes < 2 || wanted.Addresses < 1 || wanted.Addresses > bench.MostAddresses || *trials < 0 {
		return nil, fmt.Errorf("there must be two nodes or more, and 1 to %d addresses", bench.MostAddresses)
	}
	usual := []bench.Trials{{Cause: bench.Cut, Count: cuts}, {Cause: bench.Link, Count: links}}
	for _, t := range usual {
		if *cause != "" && *cause != string(t.Cause) {
			continue
		}
		if *trials > 0 {
			t.Count = *trials
		}
		wanted.Trials = append(wanted.Trials, t)
	}
	if wanted.Trials == nil {
		return nil, fmt.Errorf("-cause is %q: it must be cut or link", *cause)
	}
	return func(ctx context.Context, options bench.Options) error {
		return bench.FailoverNode(ctx, options, wanted)
	}, nil
}

func parseTakeover(flags *flag.FlagSet, args []string) (measure, error) {
	var wanted bench.Takeover
	flags.IntVar(&wanted.Nodes, "nodes", 3, "how many nodes")
	flags.IntVar(&wanted.Addresses, "addresses", 100, "how many addresses")
	flags.IntVar(&wanted.Loss, "loss", 5, "how many of 100 frames are lost")
	flags.IntVar(&wanted.Burners, "burners", 4, "how many processes use the processors")
	flags.DurationVar(&wanted.For, "for", time.Minute, "for how long, in all")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if wanted.Nodes < 2 || wanted.Addresses < 1 || wanted.Addresses > bench.MostAddresses || wanted.Loss < 0 || wanted.Loss > 100 {
		return nil, fmt.Errorf("there must be two nodes or more, 1 to %d addresses, and a loss of 0 to 100", bench.MostAddresses)
	}
	return func(ctx context.Context, options bench.Options) error {
		return bench.FalseTakeover(ctx, options, wanted)
	}, nil
}

func parseFirstAnswer(flags *flag.FlagSet, args []string) (measure, error) {
	nodes := flags.Int("nodes", 3, "how many nodes")
	trials := flags.Int("trials", 20, "how many Services, one after another")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *nodes < 1 || *trials < 1 || *trials > bench.MostAddresses {
		return nil, fmt.Errorf("there must be a node, and 1 to %d trials", bench.MostAddresses)
	}
	return func(ctx context.Context, options bench.Options) error {
		return bench.FirstAnswer(ctx, options, *nodes, *trials)
	}, nil
}

// parseServices reads how many Services a benchmark of the controller is to have.
func parseServices(flags *flag.FlagSet, args []string, run func(context.Context, bench.Options, int) error) (measure, error) {
	services := flags.Int("services", 1000, "how many Services there are")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	const most = 10_000
	if *services < 1 || *services > most {
		return nil, fmt.Errorf("there must be 1 to %d Services", most)
	}
	return func(ctx context.Context, options bench.Options) error {
		return run(ctx, options, *services)
	}, nil
}

func parsePlanCPU(flags *flag.FlagSet, args []string) (measure, error) {
	var wanted bench.PlanLoad
	flags.IntVar(&wanted.Speakers, "speakers", 3, "how many nodes with a speaker")
	flags.IntVar(&wanted.Nodes, "nodes", 100, "how many Node objects in all")
	flags.IntVar(&wanted.Services, "services", 2_000, "how many Services")
	flags.IntVar(&wanted.Rate, "rate", 100, "how many EndpointSlices change in a second")
	flags.DurationVar(&wanted.For, "for", 20*time.Second, "for how long it is measured")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	const most = 30_000 // the Services' addresses end before the nodes' begin
	if wanted.Speakers < 1 || wanted.Nodes < wanted.Speakers || wanted.Services < 1 || wanted.Services > most ||
		wanted.Rate < 1 || wanted.For < time.Second {
		return nil, fmt.Errorf("there must be a speaker, no fewer Nodes, 1 to %d Services, a change in a second, and a second", most)
	}
	return func(ctx context.Context, options bench.Options) error {
		return bench.PlanCPU(ctx, options, wanted)
	}, nil
}

func benchInside(name string, run measure) error {
	lab.SilenceLibraries()
	programs, err := lab.ProgramsFromEnvironment()
	if err != nil {
		return err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return err
	}
	err = run(context.Background(), bench.Options{
		Programs: programs, Out: os.Stdout, Failed: filepath.Join(cache, "failed", "bench-"+name),
	})
	if err != nil {
		return fmt.Errorf("bench %s: %w", name, err)
	}
	return nil
}
