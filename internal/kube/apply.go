package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/berthlb/berth/api/v1beta1"
)

// FieldManager is the one owner of everything Berth writes by server-side apply.
const FieldManager = "berth"

// WriteTimeout is how long a write of a status may take.
const WriteTimeout = 2 * time.Second

// Outcome is what became of a write.
type Outcome uint8

const (
	// Unchanged means: the object says all that already; nothing was sent.
	Unchanged Outcome = iota
	// Written means: the API server has confirmed it.
	Written
	// NotWritten means: it was refused, or not sent. The object at hand is not the newest one.
	NotWritten
	// Unknown means: it was sent and no answer came back.
	Unknown
)

// Result is what became of a write, with what is known about the object afterwards.
type Result struct {
	Outcome Outcome
	// Object is the object as the API server confirmed it; nil unless Written.
	Object *corev1.Service
	// Rival is the field manager that owns the list of addresses, where that is why it was not written (rule A11).
	Rival string
	// Err says why it was not written or is unknown.
	Err error
}

// ServiceWriter writes the status of Services: the only place where that is done. It may be used by several goroutines.
//
// Allocation and Announced are decided in two places and belong to one field manager, so that an apply which left one of
// them out would remove it. Each apply therefore carries the other's part as it was last read, and the resourceVersion
// it was read at: if somebody has written since, the API server refuses it and nothing is lost. Writes of one Service are
// serialised, and one that is known to come too late is not even sent.
type ServiceWriter struct {
	services typedcorev1.ServicesGetter
	permit   func() error // says why nothing may be written now (the lease); nil if it may
	now      func() time.Time

	seed  maphash.Seed
	locks [64]sync.Mutex // by hash of namespace and name

	mu     sync.Mutex // guards newest
	newest map[string]string
}

// NewServiceWriter makes a writer. permit says, before each write, why it may not be sent now: see Lease.Permit.
func NewServiceWriter(services typedcorev1.ServicesGetter, permit func() error, now func() time.Time) *ServiceWriter {
	return &ServiceWriter{services: services, permit: permit, now: now, seed: maphash.MakeSeed(), newest: map[string]string{}}
}

// SetAllocation writes the allocation and leaves the rest as it is. force takes the list of addresses over from another
// manager.
func (w *ServiceWriter) SetAllocation(ctx context.Context, object *corev1.Service, allocation Allocation, force bool) Result {
	return w.apply(ctx, object, allocate(object, allocation, metav1.NewTime(w.now())), force)
}

// SetAnnounced writes the condition berth.dev/Announced and leaves the rest as it is.
func (w *ServiceWriter) SetAnnounced(ctx context.Context, object *corev1.Service, said Condition) Result {
	wanted := ownedStatus(object)
	wanted.announced = newCondition(v1beta1.ConditionAnnounced, said, object, metav1.NewTime(w.now()))
	return w.apply(ctx, object, wanted, false)
}

// Clear takes everything of Berth's out of the status (rule A1).
func (w *ServiceWriter) Clear(ctx context.Context, object *corev1.Service) Result {
	if !HasRecord(object) {
		return Result{Outcome: Unchanged}
	}
	return w.apply(ctx, object, serviceStatus{keepList: ownedStatus(object).keepList}, false)
}

// IsStale is true if a newer state of the Service than this one has been seen.
func (w *ServiceWriter) IsStale(object *corev1.Service) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Older(object.ResourceVersion, w.newest[key(object)])
}

// Saw notes a state of a Service that was read from the API server itself: every older one is stale from now on.
func (w *ServiceWriter) Saw(object *corev1.Service) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.newest[key(object)]; known == "" || Older(known, object.ResourceVersion) {
		w.newest[key(object)] = object.ResourceVersion
	}
}

// Forget drops what is known about a Service that is gone.
func (w *ServiceWriter) Forget(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.newest, namespace+"/"+name)
}

func key(object *corev1.Service) string { return object.Namespace + "/" + object.Name }

// Older is true if a resourceVersion is certainly older than another of the same kind.
func Older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// errStale is what a write gets whose object is not the newest.
var errStale = errors.New("the object has changed since it was read")

// apply sends the status unless the object has it already.
func (w *ServiceWriter) apply(ctx context.Context, object *corev1.Service, wanted serviceStatus, force bool) Result {
	if wanted.isStored(object) {
		return Result{Outcome: Unchanged}
	}
	lock := &w.locks[maphash.String(w.seed, key(object))%uint64(len(w.locks))]
	lock.Lock()
	defer lock.Unlock()
	if w.IsStale(object) {
		return Result{Outcome: NotWritten, Err: errStale}
	}
	if err := w.permit(); err != nil {
		return Result{Outcome: NotWritten, Err: fmt.Errorf("write status of Service %s: %w", key(object), err)}
	}
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	written, err := w.services.Services(object.Namespace).ApplyStatus(ctx, wanted.applyConfiguration(object),
		metav1.ApplyOptions{FieldManager: FieldManager, Force: force})
	if err == nil && !wanted.keepList && len(wanted.addresses) == 0 && len(written.Status.LoadBalancer.Ingress) > 0 {
		written, err = w.emptyList(ctx, written)
	}
	if err == nil {
		w.Saw(written)
		return Result{Outcome: Written, Object: written}
	}
	return Result{Outcome: outcomeOf(err), Rival: rivalOf(err), Err: fmt.Errorf("write status of Service %s: %w", key(object), err)}
}

// emptyList takes all addresses out of the status. An apply that names none removes only a list that nobody else owns
// too; one taken over from another program still has that one for an owner. Our record is gone by now, so this must not
// fail because somebody else has written: it is bound to the object, not to its state.
func (w *ServiceWriter) emptyList(ctx context.Context, object *corev1.Service) (*corev1.Service, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": object.UID},
		"status":   map[string]any{"loadBalancer": nil},
	})
	if err != nil {
		panic(fmt.Sprintf("kube: a patch of plain strings cannot be encoded: %v", err))
	}
	//nolint:wrapcheck // the caller wraps it like the apply before it
	return w.services.Services(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: FieldManager}, "status")
}

// outcomeOf is what an error says about a write: only these three mean for certain that it did not happen (rule A11).
func outcomeOf(err error) Outcome {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return NotWritten
	}
	return Unknown
}

// rivalOf is the manager named by a conflict over a field, "" for any other error. The API server says it in a sentence:
// conflict with "NAME" using v1 (k8s.io/apimachinery/pkg/util/managedfields/internal/conflict.go).
func rivalOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		if _, rest, found := strings.Cut(cause.Message, `conflict with "`); found {
			name, _, _ := strings.Cut(rest, `"`)
			return name
		}
		return "another program"
	}
	return ""
}

// applyConfiguration is the whole set for the API server, bound to this very object in this very state.
func (s *serviceStatus) applyConfiguration(object *corev1.Service) *applycorev1.ServiceApplyConfiguration {
	status := applycorev1.ServiceStatus()
	service := applycorev1.Service(object.Name, object.Namespace).
		WithUID(object.UID).WithResourceVersion(object.ResourceVersion).WithStatus(status)
	addCondition(status, s.allocated)
	addCondition(status, s.renumbered)
	addCondition(status, s.announced)
	if len(s.pools) > 0 {
		addCondition(status, s.poolCondition(object))
		service.WithAnnotations(map[string]string{v1beta1.AnnotationAllocatedFrom: s.allocatedFrom()})
	}
	if s.keepList || len(s.addresses) == 0 {
		return service
	}
	list := applycorev1.LoadBalancerStatus()
	for _, address := range s.addresses {
		list.WithIngress(applycorev1.LoadBalancerIngress().WithIP(address.String()).WithIPMode(corev1.LoadBalancerIPModeVIP))
	}
	status.WithLoadBalancer(list)
	return service
}

// poolCondition is the record of the pools that Berth reads back (rule A11).
func (s *serviceStatus) poolCondition(object *corev1.Service) *metav1.Condition {
	pool := &metav1.Condition{
		Type: v1beta1.ConditionPool, Status: metav1.ConditionTrue, Reason: "Recorded", Message: strings.Join(s.pools, ","),
		ObservedGeneration: s.allocated.ObservedGeneration, LastTransitionTime: s.allocated.LastTransitionTime,
	}
	stored := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionPool)
	if stored != nil && stored.Message == pool.Message {
		pool.LastTransitionTime = stored.LastTransitionTime
	}
	return pool
}

// addCondition adds a condition to what is applied; nil adds none.
func addCondition(status *applycorev1.ServiceStatusApplyConfiguration, condition *metav1.Condition) {
	if condition == nil {
		return
	}
	status.WithConditions(applymetav1.Condition().
		WithType(condition.Type).WithStatus(condition.Status).WithReason(condition.Reason).WithMessage(condition.Message).
		WithObservedGeneration(condition.ObservedGeneration).WithLastTransitionTime(condition.LastTransitionTime))
}
