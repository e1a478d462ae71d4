// Package kubelet is what a bare node has in a kubelet's place. It keeps its Node alive (Lease and Ready condition) and
// runs the Pods bound to it: a container is a process in a network namespace behind the node. Everything around it is
// real: scheduler, controllers, kube-proxy, and the API server's authorizer, which it meets as system:node:NAME over the
// node's own link, so that a node which is cut off stops reporting.
//
// One goroutine watches, one sends heartbeats, and every Pod has one of its own (worker).
package kubelet

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/berthlb/berth/e2e/lab/fabric"
	"github.com/berthlb/berth/e2e/lab/process"
)

// Config is what a kubelet works with.
type Config struct {
	Node      string
	Client    kubernetes.Interface // as system:node:NAME
	Host      *fabric.Host
	PodRanges []netip.Prefix // one of each family
	Processes *process.Set
	Binary    string // the program that containers are
	Dir       string // for the containers' logs
	Log       *slog.Logger
}

// Readiness is a pod's readiness as a scene sets it.
type Readiness int

// The readiness a scene can set; Probed leaves it to the pod's probe.
const (
	Probed Readiness = iota
	Ready
	NotReady
)

// Kubelet runs the pods of one bare node, from one boot of the node to its end.
type Kubelet struct {
	config Config
	pool   *pool
	frozen atomic.Bool

	mu       sync.Mutex // guards all below
	workers  map[types.UID]*worker
	override map[types.NamespacedName]Readiness
	running  sync.WaitGroup
}

// New makes a kubelet that does nothing until Run.
func New(config Config) *Kubelet {
	return &Kubelet{
		config: config, pool: newPool(config.PodRanges),
		workers: map[types.UID]*worker{}, override: map[types.NamespacedName]Readiness{},
	}
}

// Run works until ctx ends and then waits for its goroutines. Pods' processes are left to their Set: they end with
// the node, not with the kubelet.
func (k *Kubelet) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	tasks.Go(func() { k.heartbeats(ctx) })
	tasks.Go(func() { k.watch(ctx) })
	tasks.Wait()
	k.running.Wait()
}

// Freeze makes the kubelet say nothing to the API server, as a stopped process would, until Thaw.
func (k *Kubelet) Freeze() { k.frozen.Store(true) }

// Thaw ends what Freeze began.
func (k *Kubelet) Thaw() { k.frozen.Store(false) }

// SetReady sets the readiness of a pod that runs here or will.
func (k *Kubelet) SetReady(pod types.NamespacedName, readiness Readiness) {
	k.mu.Lock()
	k.override[pod] = readiness
	k.mu.Unlock()
	k.wake(pod)
}

func (k *Kubelet) readiness(pod types.NamespacedName) Readiness {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.override[pod]
}

func (k *Kubelet) wake(pod types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		if w.key == pod {
			w.nudge()
		}
	}
}

func (k *Kubelet) watch(ctx context.Context) {
	pods := cache.NewListWatchFromClient(k.config.Client.CoreV1().RESTClient(), "pods", corev1.NamespaceAll,
		fields.OneTermEqualSelector("spec.nodeName", k.config.Node))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: pods, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { k.changed(ctx, obj) },
			UpdateFunc: func(_, obj any) { k.changed(ctx, obj) },
			DeleteFunc: func(obj any) { k.gone(obj) },
		},
	})
	informer.RunWithContext(ctx)
}

func (k *Kubelet) changed(ctx context.Context, obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.workers[pod.UID]
	if w == nil {
		w = newWorker(k, pod)
		k.workers[pod.UID] = w
		k.running.Go(func() {
			w.run(ctx)
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.workers, pod.UID)
		})
	}
	w.update(pod)
}

// gone is a pod that was removed from the API, by force if its worker still runs.
func (k *Kubelet) gone(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.workers[pod.UID]; w != nil {
		w.remove()
	}
}

// call bounds one request to the API server: a node that was cut off must not wait for the kernel to give up.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 3*time.Second)
}
