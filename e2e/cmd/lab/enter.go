package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

// berthPrograms are the programs that Berth consists of.
func berthPrograms() []string { return []string{"controller", "speaker"} }

var errNoNamespaces = errors.New("a lab needs network namespaces: be root, or allow unprivileged user namespaces")

// need is what a command makes use of.
type need struct {
	top   sandbox.Rung // the best rung it makes use of
	berth []string     // Berth's programs
}

// outside is enterSandbox for what needs bare nodes and these of Berth's programs.
func outside(names ...string) (sandbox.Choice, int, error) {
	return enterSandbox(need{top: sandbox.RungB, berth: names})
}

// enterSandbox chooses the rung and says it, builds what is needed, and runs this program again inside a sandbox, where
// sandbox.Inside is true. The sandbox has no network, so whatever is built is built here.
func enterSandbox(n need) (sandbox.Choice, int, error) {
	if err := sandbox.FollowParent(); err != nil {
		return sandbox.Choice{}, 0, err
	}
	ctx := context.Background()
	if sentence := lab.LacksForContainers(ctx); n.top == sandbox.RungA && sentence != "" && os.Getenv("BERTH_MIN_RUNG") != "A" {
		fmt.Println("lab:", sentence)
		n.top = sandbox.RungB
	}
	choice, err := sandbox.Choose(n.top)
	if err != nil {
		return choice, 0, err
	}
	fmt.Println("lab:", choice)
	if choice.Rung == sandbox.RungD {
		return choice, 0, errNoNamespaces
	}
	programs, err := lab.Build(ctx, os.Stdout, n.berth...)
	if err == nil && choice.Rung == sandbox.RungA {
		programs, err = lab.BuildContainers(ctx, os.Stdout, programs)
	}
	if err != nil {
		return choice, 0, err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return choice, 0, err
	}
	code, err := sandbox.Run(sandbox.Config{
		Rung: choice.Rung, Cache: cache, Env: append(programs.Environment(), "BERTH_CACHE="+cache),
	})
	return choice, code, err
}
