package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthlb/berth/e2e/demo"
	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

// showDemo runs outside a sandbox first and then, started again by itself, inside. The outer one prints the first and the
// last line, which name the rung.
func showDemo(args []string) (int, error) {
	if len(args) > 0 {
		return 0, errors.New("lab demo takes no arguments\n" + strings.TrimSpace(usage))
	}
	if _, inside := sandbox.Inside(); inside {
		return demoInside()
	}
	wanted := need{top: demoRung(), berth: berthPrograms()}
	choice, code, err := enterSandbox(wanted)
	if errors.Is(err, errNoNamespaces) {
		code, err = demoOnLoopback()
	}
	switch {
	case err != nil:
		return 0, err
	case code != 0:
		fmt.Printf("demo: not every step was seen to work (%s)\n", choice)
	default:
		fmt.Printf("demo: every step was seen to work (%s)\n", choice)
	}
	return code, nil
}

// demoRung answers the best rung that the demo makes use of. Nodes with a kubelet take minutes more to build, so that they
// are used where that has been done, or where somebody asks for them.
func demoRung() sandbox.Rung {
	asked := os.Getenv("BERTH_RUNG") == "A" || os.Getenv("BERTH_MIN_RUNG") == "A"
	if asked || lab.ContainersAreBuilt(context.Background()) {
		return sandbox.RungA
	}
	return sandbox.RungB
}

func demoInside() (int, error) {
	lab.SilenceLibraries()
	programs, err := lab.ProgramsFromEnvironment()
	if err != nil {
		return 0, err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	err = demo.Run(context.Background(), demo.Options{
		Programs: programs, Containers: programs.Node != "", Out: os.Stdout, Failed: filepath.Join(cache, "failed", "demo"),
	})
	fmt.Printf("\n%.1f s in all, without building.\n", time.Since(begin).Seconds())
	return 0, err
}

// demoOnLoopback shows what can be shown without namespaces. It answers 1 if not every step was seen to work.
func demoOnLoopback() (int, error) {
	lab.SilenceLibraries()
	ctx := context.Background()
	programs, err := lab.Build(ctx, os.Stdout, berthPrograms()...)
	if err != nil {
		return 0, err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Join(cache, "tmp"), 0o755); err != nil {
		return 0, fmt.Errorf("make a folder for the demo: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Join(cache, "tmp"), "loopback-")
	if err != nil {
		return 0, fmt.Errorf("make a folder for the demo: %w", err)
	}
	defer os.RemoveAll(dir)
	err = demo.RunLoopback(ctx, dir, demo.Options{Programs: programs, Out: os.Stdout, Failed: filepath.Join(cache, "failed", "demo")})
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return 1, nil
	}
	return 0, nil
}
