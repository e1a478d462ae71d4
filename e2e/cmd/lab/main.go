// Command lab makes a small Kubernetes cluster in network namespaces, for a person.
//
//	lab build            build the programs a lab needs (minutes the first time, then nothing)
//	lab shell [COMMAND]  a cluster, and a shell in it that has kubectl; it ends with the shell
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

const usage = `usage: lab build
       lab shell [-nodes N] [-proxy nftables|iptables] [-berth] [COMMAND...]
`

func main() {
	lab.Dispatch()
	enterNamespace()
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = 1
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) == 0 {
		return 0, errors.New("no command is given\n" + usage)
	}
	switch args[0] {
	case "build":
		return 0, buildAll()
	case "shell":
		return shell(args[1:])
	default:
		return 0, fmt.Errorf("there is no command %s\n%s", args[0], usage)
	}
}

// buildAll builds what any lab needs and says how long it took, if it took long.
func buildAll() error {
	begin := time.Now()
	programs, err := lab.Build(context.Background(), os.Stdout, "controller", "speaker")
	if err != nil {
		return err
	}
	fmt.Printf("the lab's programs are built (%.1f s): Kubernetes and etcd are in %s\n",
		time.Since(begin).Seconds(), programs.Cluster)
	return nil
}

// options are what a person may choose of a lab.
type options struct {
	nodes   int
	proxy   string
	berth   bool
	command []string
}

func parse(args []string) (options, error) {
	const usualNodes = 3
	var o options
	flags := flag.NewFlagSet("lab shell", flag.ContinueOnError)
	flags.IntVar(&o.nodes, "nodes", usualNodes, "how many nodes")
	flags.StringVar(&o.proxy, "proxy", string(lab.NFTables), "how kube-proxy works: nftables or iptables")
	flags.BoolVar(&o.berth, "berth", false, "install Berth and start it")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.command = flags.Args()
	if o.proxy != string(lab.NFTables) && o.proxy != string(lab.IPTables) {
		return o, fmt.Errorf("-proxy is %q: it must be nftables or iptables", o.proxy)
	}
	return o, nil
}

// shell runs outside a sandbox first and then, started again by itself, inside.
func shell(args []string) (int, error) {
	o, err := parse(args)
	if err != nil {
		return 0, err
	}
	if _, inside := sandbox.Inside(); inside {
		return shellInside(o)
	}
	if err := sandbox.FollowParent(); err != nil {
		return 0, err
	}
	choice, err := sandbox.Choose()
	if err != nil {
		return 0, err
	}
	fmt.Println("lab:", choice)
	if choice.Rung == sandbox.RungD {
		return 0, errors.New("a shell needs network namespaces: be root, or allow unprivileged user namespaces")
	}
	var names []string
	if o.berth {
		names = []string{"controller", "speaker"}
	}
	programs, err := lab.Build(context.Background(), os.Stdout, names...)
	if err != nil {
		return 0, err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return 0, err
	}
	return sandbox.Run(sandbox.Config{Rung: choice.Rung, Cache: cache, Env: programs.Environment()})
}

// binDir holds the commands for the shell.
func binDir() string { return filepath.Join(sandbox.Dir, "bin") }
