package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/connrotation"

	"github.com/berthlb/berth/e2e/lab/fabric"
	"github.com/berthlb/berth/e2e/lab/kubelet"
	"github.com/berthlb/berth/e2e/lab/process"
)

// Node is a host with kube-proxy. A bare one has a kubelet of the lab's own, the processes of its pods, and Berth's
// speaker if a scene starts it; the other kind is a machine with a real kubelet and containers (package machine).
type Node struct {
	Name  string
	lab   *Lab
	index int

	mu      sync.Mutex // guards all below; held through every change of the node's condition
	host    *fabric.Host
	set     *process.Set         // every process of the node
	kubelet *kubelet.Kubelet     // nil on a node with containers
	dialer  *connrotation.Dialer // the bare node's kubelet's connections
	stop    func()               // ends the kubelet and waits for it; nil while the node has no power
	speaker *process.Process
	wishes  map[types.NamespacedName]kubelet.Readiness
}

func newNode(l *Lab, index int) (*Node, error) {
	n := &Node{
		Name: fmt.Sprintf("n%d", index), lab: l, index: index, wishes: map[types.NamespacedName]kubelet.Readiness{},
	}
	if err := n.addHost(); err != nil {
		return nil, err
	}
	return n, nil
}

func (n *Node) addHost() (err error) {
	n.set = &process.Set{}
	n.host, err = n.lab.segment.AddHost(n.Name, nodeMAC(n.index), nodeAddrs(n.index)...)
	return err
}

func (n *Node) podRanges() []netip.Prefix { return podRangesOf(n.index) }

// Addrs answers the node's addresses, IPv4 first.
func (n *Node) Addrs() []netip.Addr { return nodeAddrs(n.index) }

// start makes the Node object, boots the node and waits until it is ready.
func (n *Node) start(ctx context.Context) error {
	if err := n.register(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.boot(ctx)
}

// register makes the Node object, with its pod ranges: no allocator runs, so that addresses are the same in every lab.
func (n *Node) register(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
		corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux",
	}}}
	for _, prefix := range n.podRanges() {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, prefix.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	_, err := n.lab.api.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make Node %s: %w", n.Name, err)
	}
	return nil
}

// boot starts what runs on a node that has power, and waits until the node is ready. The caller holds the lock.
func (n *Node) boot(ctx context.Context) error {
	if err := n.lab.routePods(n.host); err != nil {
		return err
	}
	if n.lab.options.Containers {
		return n.bootMachine(ctx)
	}
	if err := n.startKubelet(ctx); err != nil {
		return err
	}
	if err := n.startProxy(ctx); err != nil {
		return err
	}
	return poll(ctx, askEvery, startLimit, n.ready)
}

// startProxy starts kube-proxy and waits until it serves.
func (n *Node) startProxy(ctx context.Context) error {
	proxy, err := n.lab.run(n.set, n.host.Space, "kube-proxy-"+n.Name, "kube-proxy",
		"--kubeconfig", n.lab.Kubeconfig("kube-proxy"), "--hostname-override", n.Name,
		"--proxy-mode", string(n.lab.options.Proxy), "--cluster-cidr", clusterCIDRs,
		// Settings of the kernel that a network namespace does not own.
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0s",
		"--conntrack-tcp-timeout-close-wait", "0s")
	if err != nil {
		return err
	}
	return n.lab.await(ctx, proxy, func(ctx context.Context) error {
		_, err := Get(ctx, n.host.Space, "http://127.0.0.1:10256/livez")
		return err
	})
}

func (n *Node) startKubelet(ctx context.Context) error {
	config, err := n.lab.Config(n.Name, n.host.Space)
	if err != nil {
		return err
	}
	n.dialer = connrotation.NewDialer(n.host.DialContext)
	config.Dial = n.dialer.DialContext
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client of node %s: %w", n.Name, err)
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	n.kubelet = kubelet.New(kubelet.Config{
		Node: n.Name, Client: client, Host: n.host, PodRanges: n.podRanges(), Processes: n.set,
		Binary: binary, Dir: n.lab.dir + "/log", Log: n.lab.options.Log,
	})
	for pod, readiness := range n.wishes {
		n.kubelet.SetReady(pod, readiness)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it runs on when the boot is done
	done := make(chan struct{})
	go func() { n.kubelet.Run(ctx); close(done) }()
	n.stop = func() { cancel(); n.dialer.CloseAll(); <-done }
	return nil
}

// ready answers nil once the Node is Ready and the controllers have taken the taint of a new node away.
func (n *Node) ready(ctx context.Context) error {
	node, err := n.lab.api.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("node %s has taint %s", n.Name, node.Spec.Taints[0].Key)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready", n.Name)
}

// Cut pulls the node's cable at the segment's end; everything on the node runs on.
func (n *Node) Cut() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.host.SetPort(fabric.Down)
}

// PowerCut ends the node at once: its cable goes dead and every process is killed. Its kernel state (addresses, rules,
// pods' namespaces) goes with its namespace.
func (n *Node) PowerCut() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stop == nil {
		return nil
	}
	if err := n.host.SetPort(fabric.Down); err != nil {
		return err
	}
	return n.off()
}

func (n *Node) powerOff() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.off()
}

func (n *Node) off() error {
	if n.host == nil {
		return nil
	}
	err := n.set.Kill()
	if n.stop != nil {
		n.stop()
		n.stop = nil
	}
	err = errors.Join(err, n.set.Kill()) // a pod that was about to start when the first blow fell
	err = errors.Join(err, n.host.Close())
	n.host = nil
	return err
}

// Restore plugs a cut node in again, and boots one that lost its power; the speaker is for the scene to start.
func (n *Node) Restore(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.host == nil {
		if err := n.addHost(); err != nil {
			return err
		}
		return n.boot(ctx)
	}
	if err := n.host.SetPort(fabric.Up); err != nil {
		return err
	}
	n.forgetConnections()
	return nil
}

// forgetConnections ends those that a bare node's kubelet had before its link came back: they would wait for the kernel's
// next attempt.
func (n *Node) forgetConnections() {
	if n.dialer != nil {
		n.dialer.CloseAll()
	}
}

// LinkDown lowers the node's own end of its link, as its administrator would.
func (n *Node) LinkDown() error { return n.setLink(fabric.Down) }

// LinkUp raises the node's link and gives it its addresses and routes again, as a network manager would.
func (n *Node) LinkUp() error { return n.setLink(fabric.Up) }

func (n *Node) setLink(state fabric.State) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.host == nil {
		return fmt.Errorf("set the link of node %s: it has no power", n.Name)
	}
	if err := n.host.SetLink(state); err != nil {
		return err
	}
	if state == fabric.Up {
		n.forgetConnections()
	}
	return nil
}

// Freeze stops every process of the node; its kernel goes on answering and forwarding.
func (n *Node) Freeze() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet == nil {
		return errContainers
	}
	n.kubelet.Freeze()
	return n.set.Signal(syscall.SIGSTOP)
}

// Thaw ends what Freeze began.
func (n *Node) Thaw() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet == nil {
		return errContainers
	}
	n.kubelet.Thaw()
	return n.set.Signal(syscall.SIGCONT)
}

// Space is the node's network namespace; it changes when the node boots again.
func (n *Node) Space() (*fabric.Space, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.host == nil {
		return nil, fmt.Errorf("node %s has no power", n.Name)
	}
	return n.host.Space, nil
}

// Exec runs a command in the node's network namespace and answers its output.
func (n *Node) Exec(ctx context.Context, argv ...string) (string, error) {
	space, err := n.Space()
	if err != nil {
		return "", err
	}
	return execIn(ctx, space, argv...)
}

// SetPodReady overrides the readiness of a pod on whichever node runs it.
func (l *Lab) SetPodReady(pod types.NamespacedName, readiness kubelet.Readiness) error {
	if l.options.Containers {
		return errContainers
	}
	for _, n := range l.nodes {
		n.mu.Lock()
		n.wishes[pod] = readiness
		n.kubelet.SetReady(pod, readiness)
		n.mu.Unlock()
	}
	return nil
}

const stopGrace = 10 * time.Second
