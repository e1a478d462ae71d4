// Package loopback is the least lab there is, for machines that allow no namespaces: etcd, the API server, controllers
// and three speakers, all on loopback addresses of the machine itself. Addresses, reasons, gossip and a controller's
// death can be seen in it; frames and traffic cannot, and its speakers open no raw socket: nothing of it reaches a
// network.
//
//	127.0.0.1   etcd, API server, controllers
//	127.0.0.11  speaker of node n1      127.0.0.12  n2      127.0.0.13  n3
package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/audit"
	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/pki"
)

const (
	nodes      = 3
	startLimit = 60 * time.Second
	askEvery   = 50 * time.Millisecond
	host       = "127.0.0.1"
)

// Lab is a running one. Only one goroutine uses it.
type Lab struct {
	dir       string
	programs  lab.Programs
	authority *pki.Authority
	starter   *starter
	api       kubernetes.Interface

	server     string // URL of the API server
	gossipPort int
	running    map[string]*exec.Cmd
}

// Start starts etcd and the API server, makes the Nodes and installs Berth's kinds and rights. dir takes all files.
func Start(ctx context.Context, dir string, programs lab.Programs) (*Lab, error) {
	l := &Lab{dir: dir, programs: programs, starter: newStarter(), running: map[string]*exec.Cmd{}}
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the lab on loopback: %w", err), l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context) error {
	for _, sub := range []string{"pki", "log", "kubeconfig"} {
		if err := os.MkdirAll(filepath.Join(l.dir, sub), 0o755); err != nil {
			return fmt.Errorf("make the lab's folders: %w", err)
		}
	}
	var err error
	if l.authority, err = pki.New(filepath.Join(l.dir, "pki")); err != nil {
		return err
	}
	if l.gossipPort, err = freePort(ctx); err != nil {
		return err
	}
	if err := l.startAPIServer(ctx); err != nil {
		return err
	}
	if err := l.makeNodes(ctx); err != nil {
		return err
	}
	return l.install(ctx)
}

// startAPIServer starts etcd and the API server on free ports.
func (l *Lab) startAPIServer(ctx context.Context) error {
	var ports [3]int
	for i := range ports {
		var err error
		if ports[i], err = freePort(ctx); err != nil {
			return err
		}
	}
	etcd, peer := "http://"+at(ports[0]), "http://"+at(ports[1])
	l.server = "https://" + at(ports[2])
	err := l.runCluster("etcd", "--data-dir", filepath.Join(l.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer,
		"--heartbeat-interval", "10", "--election-timeout", "100")
	if err != nil {
		return err
	}
	if err := l.certify(); err != nil {
		return err
	}
	policy := filepath.Join(l.dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(audit.Policy), 0o600); err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	err = l.runCluster("kube-apiserver", "--etcd-servers", etcd, "--bind-address", host, "--secure-port", strconv.Itoa(ports[2]),
		"--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none",
		"--tls-cert-file", l.authority.Path("apiserver.crt"), "--tls-private-key-file", l.authority.Path("apiserver.key"),
		"--client-ca-file", l.authority.Path("ca.crt"), "--service-account-key-file", l.authority.Path("sa.pub"),
		"--service-account-signing-key-file", l.authority.Path("sa.key"), "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-cluster-ip-range", "10.97.0.0/16", "--authorization-mode", "RBAC",
		"--audit-policy-file", policy, "--audit-log-path", l.auditLog())
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig("admin"))
	if err != nil {
		return fmt.Errorf("read the admin's kubeconfig: %w", err)
	}
	if l.api, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	return l.until(ctx, "the API server", func(ctx context.Context) error {
		return l.api.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// certify makes the keys and certificates.
func (l *Lab) certify() error {
	if err := l.authority.WriteSigningKey("sa"); err != nil {
		return err
	}
	err := l.authority.IssueFiles("apiserver", pki.Subject{
		CommonName: "kube-apiserver", DNSNames: []string{"localhost"}, Addrs: []netip.Addr{netip.MustParseAddr(host)},
	})
	if err != nil {
		return err
	}
	admin, err := l.authority.Issue(pki.Subject{CommonName: "admin", Organizations: []string{"system:masters"}})
	if err != nil {
		return err
	}
	return l.authority.WriteKubeconfig(l.Kubeconfig("admin"), l.server, "default", pki.User{Certificate: admin})
}

// makeNodes makes three Nodes that are ready. Nothing runs on them but a speaker.
func (l *Lab) makeNodes(ctx context.Context) error {
	for i := 1; i <= nodes; i++ {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}
		made, err := l.api.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("make Node %s: %w", node.Name, err)
		}
		made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress(i)}}
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Lab"}}
		if _, err := l.api.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("make Node %s ready: %w", node.Name, err)
		}
	}
	return nil
}

func nodeAddress(i int) string { return fmt.Sprintf("127.0.0.%d", 10+i) }

// install makes Berth's namespace and applies the repository's CRDs and rights.
func (l *Lab) install(ctx context.Context) error {
	root, err := build.Root()
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lab.BerthNamespace}}
	if _, err := l.api.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s: %w", lab.BerthNamespace, err)
	}
	for _, dir := range []string{"crd", "rbac"} {
		if _, err := l.Kubectl(ctx, nil, "apply", "--server-side", "-k", filepath.Join(root, "config", dir)); err != nil {
			return err
		}
	}
	return nil
}

// Kubectl runs kubectl with all rights and answers what it prints.
func (l *Lab) Kubectl(ctx context.Context, stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(l.programs.Cluster, "cluster"))
	cmd.Args = append([]string{"kubectl", "--kubeconfig", l.Kubeconfig("admin")}, args...)
	cmd.Env = append(os.Environ(), "HOME="+l.dir, "KUBECACHEDIR="+filepath.Join(l.dir, "kubecache"))
	cmd.Stdin = strings.NewReader(string(stdin))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(text), nil
}

// Kubeconfig is the path of a user's kubeconfig file.
func (l *Lab) Kubeconfig(name string) string { return filepath.Join(l.dir, "kubeconfig", name) }

// Writes are the write requests of Berth's users that the API server answered since a moment.
func (l *Lab) Writes(since time.Time) ([]audit.Write, error) {
	writes, err := audit.ParseFile(l.auditLog())
	if err != nil {
		return nil, err
	}
	return audit.Select(writes, audit.Filter{Since: since, User: "system:serviceaccount:" + lab.BerthNamespace + ":controller"}), nil
}

func (l *Lab) auditLog() string { return filepath.Join(l.dir, "log", "audit.log") }

// until repeats a question until its answer is no error, for as long as something of a lab may take.
func (l *Lab) until(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, err)
		case <-time.After(askEvery):
		}
	}
}

// ready is an error until the process behind an address says that it is ready.
func ready(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", address, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", address, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: %s", address, answer.Status)
	}
	return nil
}

// at is a port of the address that everything but the speakers is on.
func at(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// freePort is a TCP port of loopback that nobody uses at this moment.
func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", host+":0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // it is a TCP listener
}
