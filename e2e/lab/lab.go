// Package lab is a real Kubernetes cluster in network namespaces: etcd, API server, controller manager and scheduler in
// one, a node in each of several others, bare or with a real kubelet, and a client beside them on the same Ethernet segment. It must run inside
// a sandbox (package sandbox), which is what cleans up after it.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/berthlb/berth/e2e/lab/fabric"
	"github.com/berthlb/berth/e2e/lab/machine"
	"github.com/berthlb/berth/e2e/lab/pki"
	"github.com/berthlb/berth/e2e/lab/process"
	"github.com/berthlb/berth/e2e/lab/program"
	"github.com/berthlb/berth/e2e/lab/sandbox"
	"github.com/berthlb/berth/e2e/lab/slow"
)

// Dispatch runs the part of the lab that this binary was called as, if it was, and ends the process. Call it first
// thing in main, or in TestMain.
func Dispatch() {
	sandbox.Dispatch()
	machine.Dispatch()
	program.Dispatch()
}

// ProxyMode is how kube-proxy programs the kernel.
type ProxyMode string

// The modes of kube-proxy that a lab can run.
const (
	NFTables ProxyMode = "nftables"
	IPTables ProxyMode = "iptables"
)

// Tool is the program that kube-proxy needs in this mode.
func (m ProxyMode) Tool() string {
	if m == IPTables {
		return "iptables"
	}
	return "nft"
}

// Options describe a lab.
type Options struct {
	Name     string // starts the names of its namespaces; may be empty if there is only one lab
	Nodes    int
	Proxy    ProxyMode // nftables if empty
	Programs Programs
	// Containers gives the nodes a real kubelet and containers, which takes rung A and the programs for it. Berth is then
	// installed by its chart.
	Containers bool
	// Plain makes such nodes do without an overlay of file systems and without /dev/kmsg, which some machines refuse.
	Plain bool
	Log   *slog.Logger // a file beside the other logs if nil
}

// Lab is a running cluster. Its methods may be called from any goroutine.
type Lab struct {
	options   Options
	dir       string
	authority *pki.Authority
	segment   *fabric.Fabric
	control   *control
	client    *Client
	api       kubernetes.Interface
	processes process.Set // of the control plane's host

	nodes  []*Node
	ownLog *os.File // nil if the log is somebody else's

	mu          sync.Mutex // guards all below
	marks       map[string]time.Time
	controllers map[string]*Controller
	slow        *slow.Server // nil until somebody is to find the API server slow
}

// Start makes a lab and waits until its nodes are ready.
func Start(ctx context.Context, options Options) (*Lab, error) {
	if _, inside := sandbox.Inside(); !inside {
		return nil, errors.New("start a lab: this process does not run in a sandbox")
	}
	if options.Proxy == "" {
		options.Proxy = NFTables
	}
	l := &Lab{
		options: options, dir: filepath.Join(sandbox.Dir, "lab-"+options.Name),
		marks: map[string]time.Time{}, controllers: map[string]*Controller{},
	}
	if err := l.start(ctx); err != nil {
		err = fmt.Errorf("start the lab: %w", err)
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context) error {
	for _, dir := range []string{"pki", "log", "kubeconfig"} {
		if err := os.MkdirAll(filepath.Join(l.dir, dir), 0o755); err != nil {
			return err
		}
	}
	if l.options.Log == nil {
		log, err := os.Create(l.logFile("lab"))
		if err != nil {
			return fmt.Errorf("make the lab's own log: %w", err)
		}
		l.ownLog = log
		l.options.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	begin := time.Now()
	reached := func(step string) {
		l.options.Log.Info("lab step reached", "step", step, "after", time.Since(begin).Round(time.Millisecond).String())
	}
	if err := l.startNetwork(); err != nil {
		return err
	}
	reached("network")
	if err := l.startControlPlane(ctx, reached); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.awaitManager(ctx) })
	for _, node := range l.nodes {
		group.Go(func() error { return node.start(ctx) })
	}
	defer reached("nodes")
	return group.Wait()
}

// startNetwork makes the segment and every host of it.
func (l *Lab) startNetwork() error {
	var err error
	if l.segment, err = fabric.New(l.prefix()); err != nil {
		return err
	}
	host, err := l.segment.AddHost("control", controlMAC(), controlAddrs()...)
	if err != nil {
		return err
	}
	l.control = &control{host: host}
	if l.client, err = newClient(l); err != nil {
		return err
	}
	for i := 1; i <= l.options.Nodes; i++ {
		node, err := newNode(l, i)
		if err != nil {
			return err
		}
		l.nodes = append(l.nodes, node)
	}
	return l.routePods(host)
}

// routePods teaches a host the way to every node's pods but its own.
func (l *Lab) routePods(host *fabric.Host) error {
	for _, node := range l.nodes {
		if node.host == host {
			continue
		}
		for i, prefix := range node.podRanges() {
			if err := host.AddRoute(prefix, nodeAddrs(node.index)[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lab) prefix() string {
	if l.options.Name == "" {
		return ""
	}
	return l.options.Name + "-"
}

// Nodes answers the nodes, in order.
func (l *Lab) Nodes() []*Node { return l.nodes }

// Node answers the node of that name.
func (l *Lab) Node(name string) (*Node, error) {
	for _, node := range l.nodes {
		if node.Name == name {
			return node, nil
		}
	}
	return nil, fmt.Errorf("there is no node %s: the lab has %d nodes, n1 to n%d", name, len(l.nodes), len(l.nodes))
}

// Client answers the host outside the cluster.
func (l *Lab) Client() *Client { return l.client }

// API is a client of the API server with all rights.
func (l *Lab) API() kubernetes.Interface { return l.api }

// Control is the namespace in which the API server is reached.
func (l *Lab) Control() *fabric.Space { return l.control.host.Space }

// Host answers the host of that name: control, client, or a node.
func (l *Lab) Host(name string) (*fabric.Host, error) {
	switch name {
	case "control":
		return l.control.host, nil
	case "client":
		return l.client.host, nil
	}
	node, err := l.Node(name)
	if err != nil {
		return nil, err
	}
	return node.host, nil
}

// NameOf answers which host of the lab has a MAC, the MAC itself if none has.
func (l *Lab) NameOf(mac string) string {
	for _, node := range l.nodes {
		if nodeMAC(node.index).String() == mac {
			return node.Name
		}
	}
	switch mac {
	case controlMAC().String():
		return "control"
	case clientMAC().String():
		return "client"
	default:
		return mac
	}
}

// Mark remembers this moment under a name.
func (l *Lab) Mark(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks[name] = time.Now()
}

// Marked answers the moment remembered under a name.
func (l *Lab) Marked(name string) (time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.marks[name]
	if !ok {
		return time.Time{}, fmt.Errorf("there is no mark %q", name)
	}
	return at, nil
}

// Close ends every process of the lab and removes its namespaces and files.
func (l *Lab) Close() error {
	var errs []error
	l.mu.Lock()
	for _, controller := range l.controllers {
		errs = append(errs, controller.close())
	}
	if l.slow != nil {
		errs = append(errs, l.slow.Close())
	}
	l.mu.Unlock()
	for _, node := range l.nodes {
		errs = append(errs, node.powerOff())
	}
	if l.client != nil {
		errs = append(errs, l.client.close())
	}
	errs = append(errs, l.processes.Kill())
	if l.control != nil {
		errs = append(errs, l.control.host.Close())
	}
	if l.segment != nil {
		errs = append(errs, l.segment.Close())
	}
	if l.ownLog != nil {
		errs = append(errs, l.ownLog.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

// CopyLogs copies the logs of all the lab's processes, for a person who looks for why something failed.
func (l *Lab) CopyLogs(to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(filepath.Join(l.dir, "log"))); err != nil {
		return fmt.Errorf("copy the lab's logs: %w", err)
	}
	return nil
}

// LogDir is the folder with the logs of the lab's processes.
func (l *Lab) LogDir() string { return filepath.Join(l.dir, "log") }

// SilenceLibraries throws away what client-go prints by itself, such as every connection that a scene cut on purpose.
func SilenceLibraries() { klog.SetLogger(logr.Discard()) }

func (l *Lab) logFile(name string) string { return filepath.Join(l.dir, "log", name+".log") }

// tail answers the end of a log.
func tail(path string, size int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > size {
		_, _ = file.Seek(-size, io.SeekEnd) // otherwise the whole log is shown
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// poll asks until condition answers nil; its last error tells what was waited for.
func poll(ctx context.Context, every, limit time.Duration, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // what came after the time was up only says that it was up
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s: %w", limit, last)
		case <-tick.C:
		}
	}
}

func addrsOf(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}
