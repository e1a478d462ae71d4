// Command lab makes a small Kubernetes cluster in network namespaces, for a person.
//
//	lab build            makes the programs a lab needs (minutes the first time, then nothing)
//	lab shell [COMMAND]  a cluster, and a shell in it that has kubectl; it ends with the shell
//	lab demo             what Berth does, shown step by step; exit code 0 if each step was seen to work
//	lab bench NAME       measures one of the project's budgets and prints the figures
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

const usage = `usage: lab build
       lab shell [-nodes N] [-proxy nftables|iptables] [-berth] [-containers] [COMMAND...]
       lab demo
       lab bench failover-node [-nodes N] [-addresses N] [-trials N] [-cause cut|link]
       lab bench false-takeover [-nodes N] [-addresses N] [-loss PERCENT] [-burners N] [-for DURATION]
       lab bench first-answer [-nodes N] [-trials N]
       lab bench allocate [-services N]
       lab bench restart [-services N]
       lab bench plan-cpu [-speakers N] [-nodes N] [-services N] [-rate N] [-for DURATION]
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
		return 0, errors.New("no command is given\n" + strings.TrimSpace(usage))
	}
	switch args[0] {
	case "build":
		return 0, buildAll()
	case "shell":
		return shell(args[1:])
	case "demo":
		return showDemo(args[1:])
	case "bench":
		return runBench(args[1:])
	default:
		return 0, fmt.Errorf("there is no command %s\n%s", args[0], usage)
	}
}

// buildAll builds what any lab needs and says how long it took, if it took long.
func buildAll() error {
	begin := time.Now()
	programs, err := lab.Build(context.Background(), os.Stdout, berthPrograms()...)
	if err != nil {
		return err
	}
	fmt.Printf("the lab's programs are built (%.1f s): Kubernetes and etcd are in %s\n",
		time.Since(begin).Seconds(), programs.Cluster)
	return nil
}

// binDir holds the commands for the shell.
func binDir() string { return filepath.Join(sandbox.Dir, "bin") }
