package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/machine"
	"github.com/berthlb/berth/e2e/lab/process"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

// errContainers is what a node with containers says to what only a bare one does.
var errContainers = errors.New("only bare nodes do that: this lab's have a kubelet and containers")

// startMachine boots a node with a kubelet of its own. The node is a process tree of its own; kube-proxy runs beside it in
// the same network.
func (n *Node) startMachine() (*process.Process, error) {
	groups, err := sandbox.Groups()
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("start node %s: this sandbox has no control groups", n.Name)
	}
	programs := n.lab.options.Programs
	spec := machine.Spec{
		Node: n.Name, Dir: filepath.Join(n.lab.dir, "node-"+n.Name), Logs: n.lab.LogDir(), Groups: groups,
		Programs: programs.Node, Cluster: programs.Cluster, Images: programs.Images,
		Addrs: n.Addrs(), PodRanges: n.podRanges(), Plain: n.lab.options.Plain,
		Kubeconfig: n.lab.Kubeconfig(n.Name), CA: n.lab.authority.Path("ca.crt"),
	}
	file, err := spec.Write()
	if err != nil {
		return nil, err
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	started, err := n.set.Start(n.host.Space, process.Spec{
		Name: n.Name, Path: binary, Args: []string{machine.Name, file}, Env: os.Environ(), Log: n.lab.logFile("node-" + n.Name),
		Namespaces: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	})
	if err != nil {
		return nil, err
	}
	n.stop = func() {} // its processes are in the set, and end with it
	return started, nil
}

// bootMachine boots the node and waits until it is ready.
func (n *Node) bootMachine(ctx context.Context) error {
	started, err := n.startMachine()
	if err != nil {
		return err
	}
	if err := n.startProxy(ctx); err != nil {
		return err
	}
	if err := n.lab.await(ctx, started, n.ready); err != nil {
		const shown = 2000
		return fmt.Errorf("%w\nthe log of its containerd ends with:\n%s\nthat of its kubelet:\n%s",
			err, tail(n.lab.logFile("containerd-"+n.Name), shown), tail(n.lab.logFile("kubelet-"+n.Name), shown))
	}
	return nil
}

// installChart installs Berth as the install page says, and waits until all of it is ready.
func (l *Lab) installChart(ctx context.Context) error {
	root, err := build.Root()
	if err != nil {
		return err
	}
	call := KubectlCall{Kubeconfig: l.Kubeconfig("admin"), Dir: root}
	if _, stderr, err := l.Kubectl(ctx, call, "apply", "--server-side", "--filename", "config/default/namespace.yaml"); err != nil {
		return fmt.Errorf("make Berth's namespace: %w\n%s", err, stderr)
	}
	_, stderr, err := l.Helm(ctx, call, "install", "berth", "charts/berth", "--namespace", BerthNamespace, "--wait", "--timeout", "1m")
	if err != nil {
		return fmt.Errorf("install Berth's chart: %w\n%s", err, stderr)
	}
	return nil
}
