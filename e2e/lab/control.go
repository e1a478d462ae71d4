package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berthlb/berth/e2e/lab/audit"
	"github.com/berthlb/berth/e2e/lab/fabric"
	"github.com/berthlb/berth/e2e/lab/pki"
	"github.com/berthlb/berth/e2e/lab/process"
)

const (
	startLimit = 60 * time.Second // far above what is usual: it only bounds the wait for something that never comes
	askEvery   = 20 * time.Millisecond
)

// control is the control plane's host and the API server's process, which scenes stop.
type control struct {
	host *fabric.Host

	manager *process.Process

	mu        sync.Mutex // guards apiserver
	apiserver *process.Process
}

// startControlPlane starts etcd and makes the certificates meanwhile, then the API server, then the rest.
func (l *Lab) startControlPlane(ctx context.Context, reached func(step string)) error {
	var group errgroup.Group
	group.Go(func() error { return l.startEtcd(ctx) })
	group.Go(l.makeCertificates)
	if err := group.Wait(); err != nil {
		return err
	}
	reached("etcd")
	if err := l.StartAPIServer(ctx); err != nil {
		return err
	}
	reached("API server")
	if err := l.startManagers(); err != nil {
		return err
	}
	return l.allowProxies(ctx)
}

// run starts one of the cluster's programs on a host.
func (l *Lab) run(set *process.Set, space *fabric.Space, log, name string, args ...string) (*process.Process, error) {
	return set.Start(space, process.Spec{
		Name: name, Path: filepath.Join(l.options.Programs.Cluster, "cluster"), Args: append([]string{name}, args...),
		// A collector that runs less often saves a tenth of the processor time of a start, for memory a lab has.
		Env: append(os.Environ(), "GOGC=400"), Log: l.logFile(log),
	})
}

func (l *Lab) startEtcd(ctx context.Context) error {
	etcd, err := l.run(&l.processes, l.Control(), "etcd", "etcd",
		"--data-dir", filepath.Join(l.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "warn",
		// Raft's usual second until the first election is time lost to a cluster of one.
		"--heartbeat-interval", "10", "--election-timeout", "100")
	if err != nil {
		return err
	}
	return l.await(ctx, etcd, func(ctx context.Context) error {
		conn, err := l.Control().DialContext(ctx, "tcp", "127.0.0.1:2379")
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// await polls until the process serves; its end is an error that shows the end of its log.
func (l *Lab) await(ctx context.Context, p *process.Process, serves func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Done():
			cancel(errors.New("it ended"))
		case <-ctx.Done():
		}
	}()
	if err := poll(ctx, askEvery, startLimit, serves); err != nil {
		cause := context.Cause(ctx)
		return fmt.Errorf("wait for %s to serve: %w (%w); its log ends with:\n%s", p.Spec.Name, err, cause, tail(p.Spec.Log, 4000))
	}
	return nil
}

func (l *Lab) makeCertificates() error {
	authority, err := pki.New(filepath.Join(l.dir, "pki"))
	if err != nil {
		return err
	}
	l.authority = authority
	if err := authority.WriteSigningKey("sa"); err != nil {
		return err
	}
	err = authority.IssueFiles("apiserver", pki.Subject{
		CommonName: "kube-apiserver",
		DNSNames:   []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"},
		Addrs:      append(controlAddrs(), addrsOf("127.0.0.1", "10.97.0.1")...),
	})
	if err != nil {
		return err
	}
	err = authority.IssueFiles("kubelet-client", pki.Subject{
		CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"},
	})
	if err != nil {
		return err
	}
	for name, subject := range map[string]pki.Subject{
		"admin":      {CommonName: "admin", Organizations: []string{"system:masters"}},
		"manager":    {CommonName: "system:kube-controller-manager"},
		"scheduler":  {CommonName: "system:kube-scheduler"},
		"kube-proxy": {CommonName: "system:kube-proxy"},
	} {
		if err := l.issueKubeconfig(name, subject); err != nil {
			return err
		}
	}
	for _, node := range l.nodes {
		subject := pki.Subject{CommonName: "system:node:" + node.Name, Organizations: []string{"system:nodes"}}
		if err := l.issueKubeconfig(node.Name, subject); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) issueKubeconfig(name string, subject pki.Subject) error {
	cert, err := l.authority.Issue(subject)
	if err != nil {
		return err
	}
	return l.authority.WriteKubeconfig(l.Kubeconfig(name), apiServer, "", pki.User{Certificate: cert})
}

// Kubeconfig answers the path of a user's kubeconfig file; "admin" may do everything.
func (l *Lab) Kubeconfig(name string) string { return filepath.Join(l.dir, "kubeconfig", name) }

// Config answers how a user reaches the API server from inside the given host.
func (l *Lab) Config(name string, from *fabric.Space) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig(name))
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of %s: %w", name, err)
	}
	config.Dial = from.DialContext
	config.QPS = -1 // no limit: the lab itself must not be what a scene waits for
	return config, nil
}

// StartAPIServer starts the API server, again if it was stopped, and waits until it is ready.
func (l *Lab) StartAPIServer(ctx context.Context) error {
	l.control.mu.Lock()
	defer l.control.mu.Unlock()
	if l.control.apiserver != nil && l.control.apiserver.Alive() {
		return nil
	}
	policy := filepath.Join(l.dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(audit.Policy), 0o600); err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	server, err := l.run(&l.processes, l.Control(), "kube-apiserver", "kube-apiserver",
		"--etcd-servers", "http://127.0.0.1:2379",
		"--bind-address", "172.30.0.2", "--advertise-address", "172.30.0.2", "--secure-port", "6443",
		"--tls-cert-file", l.authority.Path("apiserver.crt"), "--tls-private-key-file", l.authority.Path("apiserver.key"),
		"--client-ca-file", l.authority.Path("ca.crt"),
		"--service-account-key-file", l.authority.Path("sa.pub"),
		"--service-account-signing-key-file", l.authority.Path("sa.key"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-cluster-ip-range", serviceCIDRs, "--authorization-mode", "Node,RBAC",
		"--enable-admission-plugins", "NodeRestriction", "--allow-privileged=true",
		// How it reaches kubelets, for kubectl logs and exec.
		"--kubelet-client-certificate", l.authority.Path("kubelet-client.crt"),
		"--kubelet-client-key", l.authority.Path("kubelet-client.key"), "--kubelet-preferred-address-types", "InternalIP",
		"--audit-policy-file", policy, "--audit-log-path", l.auditLog())
	if err != nil {
		return err
	}
	l.control.apiserver = server
	config, err := l.Config("admin", l.Control())
	if err != nil {
		return err
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	if l.api == nil {
		l.api = api
	}
	return l.await(ctx, server, func(ctx context.Context) error {
		return api.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// StopAPIServer ends the API server at once: its clients see their connections reset, later ones refused.
func (l *Lab) StopAPIServer() error {
	l.control.mu.Lock()
	defer l.control.mu.Unlock()
	return l.control.apiserver.Kill()
}

// startManagers starts what makes ReplicaSets, Pods, EndpointSlices and decisions of objects.
func (l *Lab) startManagers() (err error) {
	l.control.manager, err = l.run(&l.processes, l.Control(), "kube-controller-manager", "kube-controller-manager",
		"--kubeconfig", l.Kubeconfig("manager"), "--service-account-private-key-file", l.authority.Path("sa.key"),
		"--root-ca-file", l.authority.Path("ca.crt"), "--use-service-account-credentials",
		"--controllers", "*,-node-ipam-controller",
		"--leader-elect=false", "--bind-address", "127.0.0.1", "--kube-api-qps", "300", "--kube-api-burst", "500",
		"--node-monitor-period", "1s", "--node-monitor-grace-period", "12s")
	if err != nil {
		return err
	}
	_, err = l.run(&l.processes, l.Control(), "kube-scheduler", "kube-scheduler",
		"--kubeconfig", l.Kubeconfig("scheduler"), "--leader-elect=false", "--bind-address", "127.0.0.1")
	return err
}

// awaitManager waits for the default ServiceAccount, without which no Pod can be made.
func (l *Lab) awaitManager(ctx context.Context) error {
	return l.await(ctx, l.control.manager, func(ctx context.Context) error {
		_, err := l.api.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// allowProxies binds the role that Kubernetes has for kube-proxy to its user.
func (l *Lab) allowProxies(ctx context.Context) error {
	binding := rbac.ClusterRoleBinding("lab:kube-proxy").
		WithRoleRef(rbac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("ClusterRole").WithName("system:node-proxier")).
		WithSubjects(rbac.Subject().WithAPIGroup("rbac.authorization.k8s.io").WithKind("User").WithName("system:kube-proxy"))
	_, err := l.api.RbacV1().ClusterRoleBindings().Apply(ctx, binding, metav1.ApplyOptions{FieldManager: "lab"})
	if err != nil {
		return fmt.Errorf("give kube-proxy its rights: %w", err)
	}
	return nil
}

func (l *Lab) auditLog() string { return filepath.Join(l.dir, "log", "audit.log") }

// Writes answers the answered write requests that a filter wants.
func (l *Lab) Writes(filter audit.Filter) ([]audit.Write, error) {
	writes, err := audit.ParseFile(l.auditLog())
	if err != nil {
		return nil, err
	}
	return audit.Select(writes, filter), nil
}
