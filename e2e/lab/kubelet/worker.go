package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthlb/berth/e2e/lab/fabric"
)

// A worker looks at its pod this often besides when something happened: probes and failed reports need it.
const lookEvery = 100 * time.Millisecond

// worker runs one pod from the moment it is bound here to its removal. Only its own goroutine touches the fields below
// the channels.
type worker struct {
	kubelet *Kubelet
	key     types.NamespacedName
	updates chan *corev1.Pod // holds the newest state of the pod not looked at yet
	wakes   chan struct{}
	removed chan struct{}

	pod        *corev1.Pod
	started    metav1.Time
	offset     int
	addrs      []netip.Addr
	space      *fabric.Space // where the containers run
	network    *fabric.Pod   // nil for a pod in the host's network
	containers []*container
	ending     time.Time // when SIGKILL is due; zero while the pod is wanted
	conditions map[corev1.PodConditionType]corev1.PodCondition
	told       string // the status last reported, encoded
}

func newWorker(k *Kubelet, pod *corev1.Pod) *worker {
	return &worker{
		kubelet: k, key: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name},
		updates: make(chan *corev1.Pod, 1), wakes: make(chan struct{}, 1), removed: make(chan struct{}),
		pod: pod, started: metav1.Now(), conditions: map[corev1.PodConditionType]corev1.PodCondition{},
	}
}

// update hands the worker a newer state; the caller holds the kubelet's lock.
func (w *worker) update(pod *corev1.Pod) {
	select {
	case <-w.updates: // an older one that was not looked at
	default:
	}
	w.updates <- pod
}

func (w *worker) nudge() {
	select {
	case w.wakes <- struct{}{}:
	default:
	}
}

func (w *worker) remove() {
	select {
	case <-w.removed:
	default:
		close(w.removed)
	}
}

// run ends when the pod is gone, or with ctx, upon which the node's end takes care of processes and namespaces.
func (w *worker) run(ctx context.Context) {
	defer w.release()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.removed:
			w.kill()
			return
		case w.pod = <-w.updates:
		case <-w.wakes:
		case <-tick.C:
		}
		if w.kubelet.frozen.Load() {
			continue
		}
		if done := w.look(ctx); done {
			return
		}
	}
}

// look brings the pod one step further and reports it; done when it needs no more care.
func (w *worker) look(ctx context.Context) (done bool) {
	if w.pod.DeletionTimestamp != nil && w.ending.IsZero() {
		w.beginEnd()
	}
	if w.ending.IsZero() {
		if err := w.ensure(); err != nil {
			w.log("pod cannot run", err)
			return false
		}
	} else if w.ended() {
		return w.delete(ctx)
	}
	for _, c := range w.containers {
		c.probe(ctx, w)
	}
	if err := w.report(ctx); err != nil {
		w.log("pod not reported", err)
	}
	return false
}

// ensure makes the pod's network once and keeps its containers running.
func (w *worker) ensure() error {
	if err := w.ensureNetwork(); err != nil {
		return err
	}
	if w.containers == nil {
		for i := range w.pod.Spec.Containers {
			w.containers = append(w.containers, &container{spec: &w.pod.Spec.Containers[i], wake: w.nudge})
		}
	}
	for _, c := range w.containers {
		if err := c.ensure(w); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) ensureNetwork() error {
	if w.space != nil {
		return nil
	}
	host := w.kubelet.config.Host
	if w.pod.Spec.HostNetwork {
		w.space, w.addrs = host.Space, host.Addrs
		return nil
	}
	offset, addrs, err := w.kubelet.pool.take()
	if err != nil {
		return err
	}
	uid := string(w.pod.UID)
	network, err := host.AddPod("pod-"+uid, "veth"+uid[:8], addrs...)
	if err != nil {
		w.kubelet.pool.giveBack(offset)
		return err
	}
	w.offset, w.addrs, w.network, w.space = offset, addrs, network, network.Space
	return nil
}

// beginEnd asks the containers to end, after their preStop sleep, and notes when their time is up.
func (w *worker) beginEnd() {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if w.pod.DeletionGracePeriodSeconds != nil {
		grace = *w.pod.DeletionGracePeriodSeconds
	}
	w.ending = time.Now().Add(time.Duration(grace) * time.Second)
	for _, c := range w.containers {
		c.end()
	}
}

// ended tells whether no container runs any more; those whose time is up are killed.
func (w *worker) ended() bool {
	if time.Now().After(w.ending) {
		w.kill()
		return true
	}
	for _, c := range w.containers {
		if c.running() {
			return false
		}
	}
	return true
}

func (w *worker) kill() {
	for _, c := range w.containers {
		c.kill()
	}
}

// delete removes the pod from the API once its processes have ended.
func (w *worker) delete(ctx context.Context) (done bool) {
	ctx, cancel := call(ctx)
	defer cancel()
	now := int64(0)
	err := w.kubelet.config.Client.CoreV1().Pods(w.key.Namespace).Delete(ctx, w.key.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.pod.UID},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // a conflict: another pod has the name
		return true
	}
	w.log("pod not deleted", err)
	return false
}

// release takes the pod's network away. After the node lost its power the node's own end does it.
func (w *worker) release() {
	if w.network == nil {
		return
	}
	w.kill()
	if err := w.network.Close(); err != nil {
		w.log("pod network not removed", err)
	}
	w.kubelet.pool.giveBack(w.offset)
}

func (w *worker) log(message string, err error) {
	w.kubelet.config.Log.Debug(message, "node", w.kubelet.config.Node, "pod", w.key.String(), "error", err)
}

// signalGone is what a process that was asked to end is sent.
const signalGone = syscall.SIGTERM

func (w *worker) logFile(container string) string {
	return fmt.Sprintf("%s/%s_%s_%s.log", w.kubelet.config.Dir, w.key.Namespace, w.key.Name, container)
}
