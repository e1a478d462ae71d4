package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/fabric"
	"github.com/berthlb/berth/e2e/lab/pki"
	"github.com/berthlb/berth/e2e/lab/process"
)

// BerthNamespace is where Berth is installed.
const BerthNamespace = "berth-system"

// Berth's programs, their ServiceAccounts, and the ports on which they tell their health.
const (
	controllerName = "controller"
	speakerName    = "speaker"
	controllerPort = 7950
	speakerPort    = 7949
)

// Extra is what a scene adds to the usual way a program is started.
type Extra struct {
	Path string   // another program, for comparing versions
	Args []string // after the usual ones
	Env  []string // besides the environment
	// NoNetRaw takes the capability NET_RAW from the program, by way of setpriv(1).
	NoNetRaw bool
	// Slow has a controller reach the API server by way of what SlowAPIServer says.
	Slow bool
	// NoWait starts without waiting for /readyz: for scenes in which it is not to come.
	NoWait bool
}

// WriteKubeconfig writes a kubeconfig file with all rights whose default namespace is the given one.
func (l *Lab) WriteKubeconfig(path, namespace string) error {
	cert, err := l.authority.Issue(pki.Subject{CommonName: "admin", Organizations: []string{"system:masters"}})
	if err != nil {
		return err
	}
	return l.authority.WriteKubeconfig(path, apiServer, namespace, pki.User{Certificate: cert})
}

// InstallBerth makes Berth's namespace and applies the repository's CRDs and rights.
func (l *Lab) InstallBerth(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: BerthNamespace}}
	_, err := l.api.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", BerthNamespace, err)
	}
	root, err := build.Root()
	if err != nil {
		return err
	}
	args := []string{"apply", "--server-side", "--force-conflicts", "-k"}
	for _, dir := range []string{"crd", "rbac"} {
		path := filepath.Join(root, "config", dir)
		// One folder after the other: the second may hold objects of the kinds that the first defines.
		call := KubectlCall{Kubeconfig: l.Kubeconfig("admin")}
		if _, stderr, err := l.Kubectl(ctx, call, append(args, path)...); err != nil {
			return fmt.Errorf("install Berth: apply %s: %w\n%s", path, err, stderr)
		}
	}
	return nil
}

// tokenFor answers a token of one of Berth's ServiceAccounts, bound to a Node if one is named, as the kubelet asks for
// the tokens it mounts: the API server then knows which node the caller speaks for.
func (l *Lab) tokenFor(ctx context.Context, account, node string) (string, error) {
	const day = int64(24 * 60 * 60)
	seconds := day
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if node != "" {
		object, err := l.api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read Node %s: %w", node, err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			Kind: "Node", APIVersion: "v1", Name: node, UID: object.UID,
		}
	}
	answer, err := l.api.CoreV1().ServiceAccounts(BerthNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of ServiceAccount %s/%s: %w", BerthNamespace, account, err)
	}
	return answer.Status.Token, nil
}

// berthKubeconfig writes the kubeconfig file of one of Berth's processes. While the API server is stopped the file of
// an earlier start is used: its token is still good.
func (l *Lab) berthKubeconfig(ctx context.Context, file, account, node string) (string, error) {
	path := l.Kubeconfig(file)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	token, err := l.tokenFor(ctx, account, node)
	if err != nil {
		return "", err
	}
	return path, l.authority.WriteKubeconfig(path, apiServer, "", pki.User{Token: token})
}

// berthSpec is how a program of Berth's is started.
func (l *Lab) berthSpec(program, log string, extra Extra, args ...string) (process.Spec, error) {
	path := extra.Path
	if path == "" {
		path = l.options.Programs.Berth[program]
	}
	if path == "" {
		return process.Spec{}, fmt.Errorf("start %s: the repository has no ./%s/main.go that could be built", log, program)
	}
	line := append(append([]string{program}, args...), extra.Args...)
	if extra.NoNetRaw {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			return process.Spec{}, fmt.Errorf("take NET_RAW from %s: %w", log, err)
		}
		line[0] = path
		line = append([]string{"setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", "--"}, line...)
		path = setpriv
	}
	return process.Spec{
		Name: log, Path: path, Args: line,
		Env: append(os.Environ(), extra.Env...), Log: l.logFile(log),
	}, nil
}

// Controller is one replica of Berth's controller, on a host of its own.
type Controller struct {
	Name    string
	host    *fabric.Host
	process *process.Process
}

func (c *Controller) close() error {
	return errors.Join(c.process.Kill(), c.host.Close())
}

// StartController starts a replica and waits until it is ready. A replica that was stopped keeps its host.
func (l *Lab) StartController(ctx context.Context, name string, extra Extra) error {
	kubeconfig, err := l.berthKubeconfig(ctx, "controller", controllerName, "")
	if extra.Slow {
		kubeconfig, err = l.slowKubeconfig(ctx, "controller-slow", controllerName)
	}
	if err != nil {
		return err
	}
	spec, err := l.berthSpec(controllerName, "controller-"+name, extra, "--kubeconfig", kubeconfig, "--namespace", BerthNamespace)
	if err != nil {
		return err
	}
	controller, err := l.launch(name, spec)
	if err != nil || extra.NoWait {
		return err
	}
	return l.awaitReady(ctx, controller.process, controller.host.Space, controllerPort)
}

// launch starts a controller's process, on a new host the first time.
func (l *Lab) launch(name string, spec process.Spec) (*Controller, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	controller := l.controllers[name]
	if controller != nil && controller.process.Alive() {
		return nil, fmt.Errorf("start controller %s: it runs", name)
	}
	if controller == nil {
		index := len(l.controllers) + 1
		host, err := l.segment.AddHost("ctl-"+name, controllerMAC(index), controllerAddrs(index)...)
		if err != nil {
			return nil, err
		}
		controller = &Controller{Name: name, host: host}
	}
	started, err := process.Start(controller.host.Space, spec)
	if err != nil {
		return nil, err
	}
	controller.process = started
	l.controllers[name] = controller
	return controller, nil
}

func (l *Lab) awaitReady(ctx context.Context, p *process.Process, space *fabric.Space, port int) error {
	return l.await(ctx, p, func(ctx context.Context) error { return ready(ctx, space, port) })
}

// ready asks one of Berth's processes on a host whether it is ready.
func ready(ctx context.Context, space *fabric.Space, port int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := Get(ctx, space, fmt.Sprintf("http://127.0.0.1:%d/readyz", port))
	return err
}

// ControllerReady asks a replica whether it is ready.
func (l *Lab) ControllerReady(ctx context.Context, name string) error {
	controller, err := l.controller(name)
	if err != nil {
		return err
	}
	return ready(ctx, controller.host.Space, controllerPort)
}

// SpeakerReady asks a node's speaker whether it is ready.
func (l *Lab) SpeakerReady(ctx context.Context, name string) error {
	node, err := l.Node(name)
	if err != nil {
		return err
	}
	space, err := node.Space()
	if err != nil {
		return err
	}
	return ready(ctx, space, speakerPort)
}

// StartBerth installs Berth and starts one controller and every node's speaker; where nodes have a kubelet, its chart does.
func (l *Lab) StartBerth(ctx context.Context) error {
	if l.options.Containers {
		return l.installChart(ctx)
	}
	if err := l.InstallBerth(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.StartController(ctx, "a", Extra{}) })
	for _, node := range l.nodes {
		group.Go(func() error { return l.StartSpeaker(ctx, node.Name, Extra{}) })
	}
	return group.Wait()
}

func (l *Lab) controller(name string) (*Controller, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	controller := l.controllers[name]
	if controller == nil {
		return nil, fmt.Errorf("controller %s was never started", name)
	}
	return controller, nil
}

// ControllerProcess answers the process of a replica that was started.
func (l *Lab) ControllerProcess(name string) (*process.Process, error) {
	controller, err := l.controller(name)
	if err != nil {
		return nil, err
	}
	return controller.process, nil
}

// ControllerSpace answers the network namespace of a replica.
func (l *Lab) ControllerSpace(name string) (*fabric.Space, error) {
	controller, err := l.controller(name)
	if err != nil {
		return nil, err
	}
	return controller.host.Space, nil
}

// ControllerAddress answers the address from which a replica speaks to the API server.
func (l *Lab) ControllerAddress(name string) (netip.Addr, error) {
	controller, err := l.controller(name)
	if err != nil {
		return netip.Addr{}, err
	}
	return controller.host.Addrs[0], nil
}

// StartSpeaker starts a node's speaker and waits until it is ready.
func (l *Lab) StartSpeaker(ctx context.Context, name string, extra Extra) error {
	node, err := l.Node(name)
	if err != nil {
		return err
	}
	kubeconfig, err := l.berthKubeconfig(ctx, "speaker-"+name, speakerName, name)
	if err != nil {
		return err
	}
	spec, err := l.berthSpec(speakerName, "speaker-"+name, extra,
		"--kubeconfig", kubeconfig, "--node-name", name, "--namespace", BerthNamespace)
	if err != nil {
		return err
	}
	started, space, err := node.launch(spec)
	if err != nil || extra.NoWait {
		return err
	}
	return l.awaitReady(ctx, started, space, speakerPort)
}

func (n *Node) launch(spec process.Spec) (*process.Process, *fabric.Space, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.host == nil {
		return nil, nil, fmt.Errorf("start %s: node %s has no power", spec.Name, n.Name)
	}
	if n.speaker != nil && n.speaker.Alive() {
		return nil, nil, fmt.Errorf("start %s: it runs", spec.Name)
	}
	started, err := n.set.Start(n.host.Space, spec)
	if err != nil {
		return nil, nil, err
	}
	n.speaker = started
	return started, n.host.Space, nil
}

// SpeakerProcess answers the process of a node's speaker that was started.
func (l *Lab) SpeakerProcess(name string) (*process.Process, error) {
	node, err := l.Node(name)
	if err != nil {
		return nil, err
	}
	node.mu.Lock()
	defer node.mu.Unlock()
	if node.speaker == nil {
		return nil, fmt.Errorf("the speaker of node %s was never started", name)
	}
	return node.speaker, nil
}

// Log answers the end of the log of a process of the lab, by the log's name: "kube-proxy-n1", "speaker-n1".
func (l *Lab) Log(name string) string {
	const shown = 20_000
	return tail(l.logFile(name), shown)
}

// Stop asks a process to end and waits for it; one that does not end in time is killed, which is an error.
func Stop(p *process.Process) error {
	graceful, err := p.Stop(stopGrace)
	if err != nil {
		return err
	}
	if !graceful {
		return fmt.Errorf("stop %s: it did not end within %s and was killed", p.Spec.Name, stopGrace)
	}
	return nil
}

// Freeze stops a process where it stands; Thaw lets it go on.
func Freeze(p *process.Process) error { return p.Signal(syscall.SIGSTOP) }

// Thaw ends what Freeze began.
func Thaw(p *process.Process) error { return p.Signal(syscall.SIGCONT) }
