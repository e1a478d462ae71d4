package assign_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
)

// api is an API server in memory, as far as an Assigner sees one: it lists, gets and applies the status of Services,
// refuses what is bound to an older state, and sends events to informers, each handler's in order and in its own time.
type api struct {
	mu       sync.Mutex
	version  int
	services map[types.NamespacedName]*corev1.Service
	manager  map[types.NamespacedName]string // that owns the list of addresses
	others   map[string][]client.Object      // pools, nodes, namespaces, by kind
	feeds    map[string][]*feed
	writes   []string // "name outcome" of each request to write
	// trouble, if set, says what goes wrong with a write: "refuse" (somebody else was faster), "lose" (it does not
	// arrive and no answer comes), "mute" (it arrives and no answer comes).
	trouble func(name string) string
	// beforeList, if set, is called once before Services are listed, with the lock held.
	beforeList func()
	// beforePatch, if set, is called before a list of addresses is emptied, with the lock held.
	beforePatch func()
}

func newAPI() *api {
	return &api{
		version:  100,
		services: map[types.NamespacedName]*corev1.Service{}, manager: map[types.NamespacedName]string{},
		others: map[string][]client.Object{}, feeds: map[string][]*feed{},
	}
}

// feed is one event handler of an informer.
type feed struct {
	handler toolscache.ResourceEventHandler
	events  chan func()
}

func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }

// send hands an event to every informer of the kind. The lock is held.
func (a *api) send(kind string, event func(toolscache.ResourceEventHandler)) {
	for _, feed := range a.feeds[kind] {
		feed.events <- func() { event(feed.handler) }
	}
}

// put creates or changes a Service as a user does: everything but its status and what Berth wrote.
func (a *api) put(object *corev1.Service) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.putLocked(object)
}

// putLocked is put for who holds the lock.
func (a *api) putLocked(object *corev1.Service) {
	name := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	fresh := object.DeepCopy()
	if before := a.services[name]; before != nil {
		fresh.Status = *before.Status.DeepCopy()
		if fresh.Annotations == nil {
			fresh.Annotations = map[string]string{}
		}
		if from, has := before.Annotations[v1beta1.AnnotationAllocatedFrom]; has {
			fresh.Annotations[v1beta1.AnnotationAllocatedFrom] = from
		}
	}
	if fresh.Spec.Type != corev1.ServiceTypeLoadBalancer { // the API server does so
		fresh.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	a.store(name, fresh)
}

// store makes an object the newest state and tells the informers. The lock is held.
func (a *api) store(name types.NamespacedName, fresh *corev1.Service) {
	before := a.services[name]
	a.version++
	fresh.ResourceVersion = strconv.Itoa(a.version)
	a.services[name] = fresh
	was := before != nil && before.Spec.Type == corev1.ServiceTypeLoadBalancer
	is := fresh.Spec.Type == corev1.ServiceTypeLoadBalancer
	seen := fresh.DeepCopy()
	switch {
	case was && is:
		a.send("Service", func(h toolscache.ResourceEventHandler) { h.OnUpdate(before, seen) })
	case is:
		a.send("Service", func(h toolscache.ResourceEventHandler) { h.OnAdd(seen, false) })
	case was: // the watch has a field selector: the object leaves it, as it was, at the new version
		left := before.DeepCopy()
		left.ResourceVersion = fresh.ResourceVersion
		a.send("Service", func(h toolscache.ResourceEventHandler) { h.OnDelete(left) })
	}
}

// leaveUnseen makes a Service one of type NodePort, without any event. The lock is held.
func (a *api) leaveUnseen(namespace, name string) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	fresh := a.services[key].DeepCopy()
	fresh.Spec.Type = corev1.ServiceTypeNodePort
	fresh.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	a.unseen(func() { a.store(key, fresh) })
}

// unseen does something of which no informer of Services is told. The lock is held.
func (a *api) unseen(do func()) {
	feeds := a.feeds["Service"]
	delete(a.feeds, "Service")
	do()
	a.feeds["Service"] = feeds
}

// remove deletes a Service.
func (a *api) remove(namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	last := a.services[key].DeepCopy()
	a.version++
	last.ResourceVersion = strconv.Itoa(a.version)
	delete(a.services, key)
	delete(a.manager, key)
	a.send("Service", func(h toolscache.ResourceEventHandler) { h.OnDelete(last) })
}

// overwrite is another program's writing a list of addresses.
func (a *api) overwrite(namespace, name, manager string, addresses ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	fresh := a.services[key].DeepCopy()
	fresh.Status.LoadBalancer.Ingress = nil
	for _, address := range addresses {
		fresh.Status.LoadBalancer.Ingress = append(fresh.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: address})
	}
	a.manager[key] = manager
	fresh.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: manager, Time: &metav1.Time{Time: time.Now()}, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:loadBalancer":{}}}`),
	}}
	a.store(key, fresh)
}

// set creates or changes an object of another kind.
func (a *api) set(object client.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := kindOf(object)
	i := slices.IndexFunc(a.others[kind], func(o client.Object) bool { return o.GetName() == object.GetName() })
	if i >= 0 {
		a.others[kind][i] = object
		a.send(kind, func(h toolscache.ResourceEventHandler) { h.OnUpdate(object, object) })
		return
	}
	a.others[kind] = append(a.others[kind], object)
	a.send(kind, func(h toolscache.ResourceEventHandler) { h.OnAdd(object, false) })
}

// unset deletes one.
func (a *api) unset(object client.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := kindOf(object)
	a.others[kind] = slices.DeleteFunc(a.others[kind], func(o client.Object) bool { return o.GetName() == object.GetName() })
	a.send(kind, func(h toolscache.ResourceEventHandler) { h.OnDelete(object) })
}

// get is a Service as it is now.
func (a *api) get(namespace, name string) *corev1.Service {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.services[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}

// Pools are the pools.
func (a *api) Pools(context.Context) ([]v1beta1.IPAddressPool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var pools []v1beta1.IPAddressPool
	for _, object := range a.others["IPAddressPool"] {
		if pool, ok := object.(*v1beta1.IPAddressPool); ok {
			pools = append(pools, *pool)
		}
	}
	return pools, nil
}

// takeWrites are the requests to write since the last call.
func (a *api) takeWrites() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.writes
	a.writes = nil
	return taken
}

// Services is the client of a namespace.
func (a *api) Services(namespace string) typedcorev1.ServiceInterface {
	return &namespaced{api: a, namespace: namespace}
}

type namespaced struct {
	typedcorev1.ServiceInterface // nil: an Assigner uses nothing else

	api       *api
	namespace string
}

// List lists Services page by page, in the order of their names.
func (n *namespaced) List(_ context.Context, options metav1.ListOptions) (*corev1.ServiceList, error) {
	n.api.mu.Lock()
	defer n.api.mu.Unlock()
	if do := n.api.beforeList; do != nil {
		n.api.beforeList = nil
		do()
	}
	list := &corev1.ServiceList{}
	list.ResourceVersion = strconv.Itoa(n.api.version)
	names := slices.SortedFunc(maps.Keys(n.api.services), func(a, b types.NamespacedName) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
	begin, _ := strconv.Atoi(options.Continue)
	for i, name := range names[begin:] {
		if int64(i) == options.Limit {
			list.Continue = strconv.Itoa(begin + i)
			break
		}
		list.Items = append(list.Items, *n.api.services[name].DeepCopy())
	}
	return list, nil
}

// Get reads one.
func (n *namespaced) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Service, error) {
	n.api.mu.Lock()
	defer n.api.mu.Unlock()
	found := n.api.services[types.NamespacedName{Namespace: n.namespace, Name: name}]
	if found == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name)
	}
	return found.DeepCopy(), nil
}

var errTimeout = errors.New("context deadline exceeded")

// ApplyStatus applies a status for the one field manager Berth has.
func (n *namespaced) ApplyStatus(_ context.Context, applied *applycorev1.ServiceApplyConfiguration, options metav1.ApplyOptions) (*corev1.Service, error) {
	n.api.mu.Lock()
	defer n.api.mu.Unlock()
	name := types.NamespacedName{Namespace: n.namespace, Name: *applied.Name}
	trouble := ""
	if n.api.trouble != nil {
		trouble = n.api.trouble(name.Name)
	}
	if trouble == "lose" {
		n.api.writes = append(n.api.writes, name.Name+" lost")
		return nil, errTimeout
	}
	written, err := n.api.apply(name, applied, options, trouble)
	if err != nil {
		n.api.writes = append(n.api.writes, name.Name+" refused")
		return nil, err
	}
	if trouble == "mute" {
		n.api.writes = append(n.api.writes, name.Name+" muted")
		return nil, errTimeout
	}
	n.api.writes = append(n.api.writes, name.Name+" written")
	return written, nil
}

// apply does it. The lock is held.
func (a *api) apply(name types.NamespacedName, applied *applycorev1.ServiceApplyConfiguration, options metav1.ApplyOptions, trouble string) (*corev1.Service, error) {
	resource := schema.GroupResource{Resource: "services"}
	before := a.services[name]
	switch {
	case before == nil:
		return nil, apierrors.NewNotFound(resource, name.Name)
	case before.UID != *applied.UID || before.ResourceVersion != *applied.ResourceVersion:
		return nil, apierrors.NewConflict(resource, name.Name, errors.New("the object has been modified"))
	case trouble == "refuse":
		a.store(name, before.DeepCopy())
		return nil, apierrors.NewConflict(resource, name.Name, errors.New("the object has been modified"))
	}
	fresh := before.DeepCopy()
	list := applied.Status.LoadBalancer
	if rival := a.manager[name]; list != nil && rival != "" && rival != options.FieldManager && !options.Force {
		return nil, apierrors.NewApplyConflict([]metav1.StatusCause{{
			Type: metav1.CauseTypeFieldManagerConflict, Message: fmt.Sprintf("conflict with %q using v1", rival), Field: ".status.loadBalancer.ingress",
		}}, "Apply failed with 1 conflict")
	}
	if list != nil {
		fresh.Status.LoadBalancer.Ingress = nil
		for i := range list.Ingress {
			fresh.Status.LoadBalancer.Ingress = append(fresh.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: *list.Ingress[i].IP, IPMode: list.Ingress[i].IPMode})
		}
		a.manager[name] = options.FieldManager
	} else if a.manager[name] == options.FieldManager {
		fresh.Status.LoadBalancer.Ingress = nil
		delete(a.manager, name)
	}
	own := []string{v1beta1.ConditionAllocated, v1beta1.ConditionPool, v1beta1.ConditionRenumbered, v1beta1.ConditionAnnounced}
	fresh.Status.Conditions = slices.DeleteFunc(fresh.Status.Conditions, func(c metav1.Condition) bool { return slices.Contains(own, c.Type) })
	for i := range applied.Status.Conditions {
		c := &applied.Status.Conditions[i]
		fresh.Status.Conditions = append(fresh.Status.Conditions, metav1.Condition{
			Type: *c.Type, Status: *c.Status, Reason: *c.Reason, Message: *c.Message, LastTransitionTime: *c.LastTransitionTime,
		})
	}
	delete(fresh.Annotations, v1beta1.AnnotationAllocatedFrom)
	if from, has := applied.Annotations[v1beta1.AnnotationAllocatedFrom]; has {
		fresh.Annotations = maps.Clone(fresh.Annotations)
		if fresh.Annotations == nil {
			fresh.Annotations = map[string]string{}
		}
		fresh.Annotations[v1beta1.AnnotationAllocatedFrom] = from
	}
	a.store(name, fresh)
	return a.services[name].DeepCopy(), nil
}

// Patch is the merge patch that empties a list of addresses.
func (n *namespaced) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Service, error) {
	n.api.mu.Lock()
	defer n.api.mu.Unlock()
	if n.api.beforePatch != nil {
		n.api.beforePatch()
	}
	key := types.NamespacedName{Namespace: n.namespace, Name: name}
	fresh := n.api.services[key].DeepCopy()
	fresh.Status.LoadBalancer.Ingress = nil
	delete(n.api.manager, key)
	n.api.writes = append(n.api.writes, name+" emptied")
	n.api.store(key, fresh)
	return n.api.services[key].DeepCopy(), nil
}

// informers are one process's informers.
type informers struct {
	api *api
	ctx context.Context //nolint:containedctx // the life of the process
}

// GetInformer is the informer of a kind.
func (i *informers) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &informer{informers: i, kind: kindOf(object)}, nil
}

type informer struct {
	cache.Informer // nil: an Assigner uses nothing else

	*informers
	kind string
}

// AddEventHandler begins with what there is, and goes on with what changes.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.api.mu.Lock()
	defer i.api.mu.Unlock()
	events := make(chan func(), 100_000)
	i.api.feeds[i.kind] = append(i.api.feeds[i.kind], &feed{handler: handler, events: events})
	for _, object := range i.api.others[i.kind] {
		handler.OnAdd(object, true)
	}
	if i.kind == "Service" {
		for _, object := range i.api.services {
			if seen := object.DeepCopy(); seen.Spec.Type == corev1.ServiceTypeLoadBalancer {
				events <- func() { handler.OnAdd(seen, true) }
			}
		}
	}
	go func() {
		for {
			select {
			case <-i.ctx.Done():
				return
			case event := <-events:
				event()
			}
		}
	}()
	return registration{}, nil
}

type registration struct {
	toolscache.ResourceEventHandlerRegistration
}

// HasSynced is true: everything there is was handed over at once.
func (registration) HasSynced() bool { return true }
