package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/vishvananda/netns"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

const (
	nodeCommand   = "lab-node"
	clientCommand = "lab-client"
)

// options are what a person may choose of a lab.
type options struct {
	nodes      int
	proxy      string
	berth      bool
	containers bool
	command    []string
}

func parse(args []string) (options, error) {
	const usualNodes = 3
	var o options
	flags := flag.NewFlagSet("lab shell", flag.ContinueOnError)
	flags.IntVar(&o.nodes, "nodes", usualNodes, "how many nodes")
	flags.StringVar(&o.proxy, "proxy", string(lab.NFTables), "how kube-proxy works: nftables or iptables")
	flags.BoolVar(&o.berth, "berth", false, "install Berth and start it")
	flags.BoolVar(&o.containers, "containers", false, "nodes with a kubelet and containers, Berth installed by its chart")
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
	n := need{top: sandbox.RungB}
	if o.containers {
		n.top = sandbox.RungA
	}
	if o.berth || o.containers {
		n.berth = berthPrograms()
	}
	_, code, err := enterSandbox(n)
	return code, err
}

// shellInside makes the lab and runs the person's shell in the control plane's namespace.
func shellInside(o options) (int, error) {
	lab.SilenceLibraries()
	programs, err := lab.ProgramsFromEnvironment()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	ctx := context.Background()
	l, err := lab.Start(ctx, lab.Options{Nodes: o.nodes, Proxy: lab.ProxyMode(o.proxy), Programs: programs, Containers: programs.Node != ""})
	if err != nil {
		return 0, err
	}
	if o.berth {
		if err := l.StartBerth(ctx); err != nil {
			return 0, err
		}
	}
	if err := installCommands(programs); err != nil {
		return 0, err
	}
	describe(l, o, time.Since(begin))
	code, err := runShell(l, o.command)
	return code, errors.Join(err, l.Close())
}

// describe says what was made.
func describe(l *lab.Lab, o options, took time.Duration) {
	fmt.Printf("a cluster of %d nodes, ready after %.1f s; it ends with this shell\n", o.nodes, took.Seconds())
	fmt.Println("  kubectl ...              the cluster, with all rights")
	for _, node := range l.Nodes() {
		fmt.Printf("  lab-node %s COMMAND      run a command in the network of node %s (%s, %s)\n",
			node.Name, node.Name, node.Addrs()[0], node.Addrs()[1])
	}
	fmt.Println("  lab-client COMMAND       the same for the client outside the cluster (172.30.0.100, fd00:30::100)")
	fmt.Println("  free for Services:       172.30.0.128-172.30.0.254, fd00:30::a00:0/112")
	fmt.Printf("  logs:                    %s\n", l.LogDir())
	fmt.Println("  for example: kubectl create deployment web --image=berth.lab/web --replicas=3 --port=8080")
}

// installCommands puts kubectl and the two commands that enter a host onto the shell's path.
func installCommands(programs lab.Programs) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := os.MkdirAll(binDir(), 0o755); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"kubectl": filepath.Join(programs.Cluster, "cluster"), nodeCommand: self, clientCommand: self,
	} {
		if err := os.Symlink(target, filepath.Join(binDir(), name)); err != nil {
			return fmt.Errorf("make the command %s: %w", name, err)
		}
	}
	return nil
}

// runShell answers the exit code of the command, or of the person's shell if none is given.
func runShell(l *lab.Lab, command []string) (int, error) {
	if len(command) == 0 {
		command = []string{"/bin/sh"}
		if name := os.Getenv("SHELL"); name != "" {
			command[0] = name
		}
	}
	path := binDir() + ":" + os.Getenv("PATH")
	if err := os.Setenv("PATH", path); err != nil { // the command itself is looked for there too
		return 0, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig("admin"), "KUBECACHEDIR="+filepath.Join(binDir(), ".kube"))
	// What a person types is for the shell: an interrupt must not end the lab around it.
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT)
	if err := l.Control().Do(cmd.Start); err != nil {
		return 0, fmt.Errorf("start %s: %w", command[0], err)
	}
	err := cmd.Wait()
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// enterNamespace is this program as lab-node or lab-client: it becomes a command in the network of a host.
func enterNamespace() {
	args := os.Args[1:]
	var host string
	switch filepath.Base(os.Args[0]) {
	case nodeCommand:
		if len(args) > 0 {
			host, args = args[0], args[1:]
		}
	case clientCommand:
		host = "client"
	default:
		return
	}
	if err := become(host, args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

// become replaces this process by a command in a namespace; it returns only if that fails.
func become(host string, command []string) error {
	if host == "" || len(command) == 0 {
		return errors.New("usage: lab-node NODE COMMAND, or lab-client COMMAND")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	space, err := netns.GetFromName(host)
	if err != nil {
		return fmt.Errorf("there is no host %s: %w", host, err)
	}
	if err := netns.Set(space); err != nil {
		return fmt.Errorf("enter the network of %s: %w", host, err)
	}
	return syscall.Exec(path, command, os.Environ())
}
