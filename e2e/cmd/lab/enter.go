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

// outside chooses the rung and says it, builds what is needed, and runs this program again inside a sandbox, where
// sandbox.Inside is true. The sandbox has no network, so whatever is built is built here.
func outside(names ...string) (sandbox.Choice, int, error) {
	if err := sandbox.FollowParent(); err != nil {
		return sandbox.Choice{}, 0, err
	}
	choice, err := sandbox.Choose()
	if err != nil {
		return choice, 0, err
	}
	fmt.Println("lab:", choice)
	if choice.Rung == sandbox.RungD {
		return choice, 0, errNoNamespaces
	}
	programs, err := lab.Build(context.Background(), os.Stdout, names...)
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
