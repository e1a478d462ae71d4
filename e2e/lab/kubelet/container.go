package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/berthlb/berth/e2e/lab/process"
	"github.com/berthlb/berth/e2e/lab/program"
)

const (
	restartAfter = time.Second
	defaultPort  = 8080
)

// container is one container of a pod: a process, and what its probe found. Its worker owns it.
type container struct {
	spec     *corev1.Container
	wake     func()
	process  *process.Process
	started  metav1.Time
	restarts int32
	waiting  string // why it does not run; a reason as Kubernetes words it

	ready     bool
	hits      int32 // probe results in a row that differ from ready
	nextProbe time.Time
	stopping  bool
}

func (c *container) running() bool { return c.process != nil && c.process.Alive() }

// ensure starts the container's process, also again a while after it ended.
func (c *container) ensure(w *worker) error {
	if c.running() {
		return nil
	}
	if c.process != nil {
		if c.waiting == "" {
			c.waiting, c.ready, c.nextProbe = "CrashLoopBackOff", false, time.Now().Add(restartAfter)
		}
		if w.pod.Spec.RestartPolicy == corev1.RestartPolicyNever || time.Now().Before(c.nextProbe) {
			return nil
		}
		c.restarts++
	}
	name, known := program.ForImage(c.spec.Image)
	if !known {
		c.waiting = "ErrImagePull"
		return nil
	}
	started, err := w.kubelet.config.Processes.Start(w.space, process.Spec{
		Name: w.key.String() + "/" + c.spec.Name, Path: w.kubelet.config.Binary,
		Args: append([]string{name}, c.spec.Args...), Env: c.environment(w), Log: w.logFile(c.spec.Name),
	})
	if err != nil {
		return err
	}
	c.process, c.started, c.waiting, c.hits, c.nextProbe = started, metav1.Now(), "", 0, time.Time{}
	go func() { <-started.Done(); c.wake() }()
	return nil
}

func (c *container) environment(w *worker) []string {
	env := []string{
		"POD_NAME=" + w.key.Name, "POD_NAMESPACE=" + w.key.Namespace, "NODE_NAME=" + w.kubelet.config.Node,
		"PORTS=" + strings.Join(c.ports(), ","),
	}
	if len(w.addrs) > 0 {
		env = append(env, "POD_IP="+w.addrs[0].String())
	}
	for _, v := range c.spec.Env {
		if v.ValueFrom == nil {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	return env
}

// ports are the TCP ports the container declares, 8080 if none.
func (c *container) ports() []string {
	var ports []string
	for _, port := range c.spec.Ports {
		if port.Protocol == corev1.ProtocolTCP || port.Protocol == "" {
			ports = append(ports, strconv.Itoa(int(port.ContainerPort)))
		}
	}
	if ports == nil {
		ports = []string{strconv.Itoa(defaultPort)}
	}
	return ports
}

// end asks the process to end; a preStop sleep goes before that.
func (c *container) end() {
	if c.stopping || !c.running() {
		return
	}
	c.stopping = true
	var sleep time.Duration
	if hooks := c.spec.Lifecycle; hooks != nil && hooks.PreStop != nil && hooks.PreStop.Sleep != nil {
		sleep = time.Duration(hooks.PreStop.Sleep.Seconds) * time.Second
	}
	// An error would mean that the process has just ended, which is what is wanted.
	time.AfterFunc(sleep, func() { _ = c.process.Signal(signalGone) })
}

func (c *container) kill() {
	if c.running() {
		_ = c.process.Kill() // as in end
	}
}

// probe asks the container whether it is ready, if that is due, and counts as the probe's thresholds say. Without a
// probe of its own a container is ready from when its first port accepts a connection: it began to serve.
func (c *container) probe(ctx context.Context, w *worker) {
	if !c.running() {
		c.ready = false
		return
	}
	probe := c.spec.ReadinessProbe
	if probe == nil && c.ready || time.Now().Before(c.nextProbe) || len(w.addrs) == 0 {
		return
	}
	if probe == nil {
		port := intstr.Parse(c.ports()[0])
		probe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}},
			PeriodSeconds: 0,
		}
	} else if c.nextProbe.IsZero() && probe.InitialDelaySeconds > 0 {
		c.nextProbe = c.started.Add(time.Duration(probe.InitialDelaySeconds) * time.Second)
		return
	}
	c.nextProbe = time.Now().Add(c.period(probe))
	c.count(probe, c.ask(ctx, w, probe) == nil)
}

// period is the probe's own once the container is ready; until then it is asked at every look, so that a scene does
// not wait for the period's coarse seconds.
func (c *container) period(probe *corev1.Probe) time.Duration {
	if !c.ready {
		return 0
	}
	return time.Duration(probe.PeriodSeconds) * time.Second
}

func (c *container) count(probe *corev1.Probe, ok bool) {
	if ok == c.ready {
		c.hits = 0
		return
	}
	c.hits++
	threshold := probe.FailureThreshold
	if ok {
		threshold = probe.SuccessThreshold
	}
	if c.hits >= max(threshold, 1) {
		c.ready, c.hits = ok, 0
	}
}

func (c *container) ask(ctx context.Context, w *worker, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	host := w.addrs[0].String()
	switch {
	case probe.HTTPGet != nil:
		return c.get(ctx, w, probe.HTTPGet, host)
	case probe.TCPSocket != nil:
		address := net.JoinHostPort(host, c.port(probe.TCPSocket.Port))
		conn, err := w.kubelet.config.Host.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	case probe.Exec != nil:
		return w.space.Do(func() error {
			return exec.CommandContext(ctx, probe.Exec.Command[0], probe.Exec.Command[1:]...).Run()
		})
	default:
		return errors.New("the lab's kubelet knows httpGet, tcpSocket and exec probes only")
	}
}

func (c *container) get(ctx context.Context, w *worker, action *corev1.HTTPGetAction, host string) error {
	url := "http://" + net.JoinHostPort(host, c.port(action.Port)) + "/" + strings.TrimPrefix(action.Path, "/")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: w.kubelet.config.Host.DialContext, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	return nil
}

// port resolves a port that may be named.
func (c *container) port(port intstr.IntOrString) string {
	for _, named := range c.spec.Ports {
		if port.Type == intstr.String && named.Name == port.StrVal {
			return strconv.Itoa(int(named.ContainerPort))
		}
	}
	return port.String()
}
