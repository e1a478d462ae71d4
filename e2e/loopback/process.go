package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/pki"
)

// starter starts processes from one thread that lives as long as the lab: the kernel kills them when that thread ends
// (prctl(2), PR_SET_PDEATHSIG), so that nothing outlives a lab that is killed.
type starter struct {
	jobs chan func()
}

func newStarter() *starter {
	s := &starter{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// start starts a command on the starter's thread.
func (s *starter) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	s.jobs <- func() { result <- cmd.Start() }
	return <-result
}

// runCluster starts a program of the cluster, named as it is called.
func (l *Lab) runCluster(name string, args ...string) error {
	return l.run(name, filepath.Join(l.programs.Cluster, "cluster"), append([]string{name}, args...))
}

// run starts a program with its output in a log.
func (l *Lab) run(name, path string, line []string) error {
	log, err := os.OpenFile(filepath.Join(l.dir, "log", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := &exec.Cmd{Path: path, Args: line, Env: append(os.Environ(), "GOGC=400"), Stdout: log, Stderr: log}
	if err := l.starter.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	l.running[name] = cmd
	return nil
}

// StartController starts a controller and waits until it is ready.
func (l *Lab) StartController(ctx context.Context, name string) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	kubeconfig, err := l.kubeconfigOf(ctx, "controller", "controller", "")
	if err != nil {
		return err
	}
	listen := at(port)
	err = l.run("controller-"+name, l.programs.Berth["controller"],
		[]string{"controller", "--kubeconfig", kubeconfig, "--namespace", lab.BerthNamespace, "--listen", listen})
	if err != nil {
		return err
	}
	return l.until(ctx, "controller "+name, func(ctx context.Context) error { return ready(ctx, listen) })
}

// KillController kills a controller: it releases nothing.
func (l *Lab) KillController(name string) error { return l.kill("controller-" + name) }

// StartSpeakers starts a speaker for each node and waits until they are ready. No link is theirs: they talk to each
// other and to the API server, and to nobody else.
func (l *Lab) StartSpeakers(ctx context.Context) error {
	for i := 1; i <= nodes; i++ {
		node := fmt.Sprintf("n%d", i)
		kubeconfig, err := l.kubeconfigOf(ctx, "speaker-"+node, "speaker", node)
		if err != nil {
			return err
		}
		err = l.run("speaker-"+node, l.programs.Berth["speaker"], []string{
			"speaker", "--kubeconfig", kubeconfig, "--namespace", lab.BerthNamespace, "--node-name", node,
			"--gossip-port", strconv.Itoa(l.gossipPort), "--listen", l.speakerListen(i), "--exclude-interfaces", ".*",
		})
		if err != nil {
			return err
		}
	}
	for i := 1; i <= nodes; i++ {
		listen := l.speakerListen(i)
		if err := l.until(ctx, "speaker "+listen, func(ctx context.Context) error { return ready(ctx, listen) }); err != nil {
			return err
		}
	}
	return nil
}

// speakerListen is where a speaker tells its health: beside its gossip.
func (l *Lab) speakerListen(i int) string {
	return net.JoinHostPort(nodeAddress(i), strconv.Itoa(l.gossipPort+1))
}

// kubeconfigOf writes a kubeconfig for one of Berth's ServiceAccounts, with a token bound to a Node if one is named.
func (l *Lab) kubeconfigOf(ctx context.Context, file, account, node string) (string, error) {
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		object, err := l.api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read Node %s: %w", node, err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: object.UID}
	}
	token, err := l.api.CoreV1().ServiceAccounts(lab.BerthNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of ServiceAccount %s: %w", account, err)
	}
	path := l.Kubeconfig(file)
	return path, l.authority.WriteKubeconfig(path, l.server, "", pki.User{Token: token.Status.Token})
}

// kill ends a process at once.
func (l *Lab) kill(name string) error {
	cmd := l.running[name]
	if cmd == nil {
		return fmt.Errorf("kill %s: it was never started", name)
	}
	delete(l.running, name)
	if err := cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
		return fmt.Errorf("wait for %s: %w", name, err)
	}
	return nil
}

// Close ends every process.
func (l *Lab) Close() error {
	var errs []error
	for name := range l.running {
		errs = append(errs, l.kill(name))
	}
	close(l.starter.jobs)
	return errors.Join(errs...)
}
