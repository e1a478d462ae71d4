package kube

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/reason"
)

// Condition is what one of Berth's conditions says; when it began to say so is for the writer to know.
type Condition struct {
	True   bool
	Reason reason.Reason
}

// Allocation is the controller's answer to a Service (rule A11).
type Allocation struct {
	// Addresses are those of status.loadBalancer.ingress, Pools the pools they came from, one for each.
	Addresses []netip.Addr
	Pools     []string
	// KeepList leaves status.loadBalancer.ingress as it is, because another program writes it (rules A11, A14).
	KeepList bool
	// Allocated is the condition of that name.
	Allocated Condition
	// Renumbered is the consent that is used up, to be recorded; empty if there is none (rule A10).
	Renumbered string
}

// serviceStatus is everything Berth owns of a Service. An apply carries all of it: what it leaves out is removed.
type serviceStatus struct {
	addresses  []netip.Addr
	pools      []string
	keepList   bool
	allocated  *metav1.Condition
	renumbered *metav1.Condition
	announced  *metav1.Condition
}

// ownTypes are the types of the conditions that Berth writes on Services.
func ownTypes() []string {
	return []string{v1beta1.ConditionAllocated, v1beta1.ConditionPool, v1beta1.ConditionRenumbered, v1beta1.ConditionAnnounced}
}

// HasRecord is true if the Service carries anything of Berth's.
func HasRecord(object *corev1.Service) bool {
	if _, annotated := object.Annotations[v1beta1.AnnotationAllocatedFrom]; annotated {
		return true
	}
	return slices.ContainsFunc(object.Status.Conditions, func(c metav1.Condition) bool { return slices.Contains(ownTypes(), c.Type) })
}

// ownedStatus is what Berth owns of the Service as it stands there.
func ownedStatus(object *corev1.Service) serviceStatus {
	owned := serviceStatus{
		allocated:  meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionAllocated),
		renumbered: meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionRenumbered),
		announced:  meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionAnnounced),
	}
	pool := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionPool)
	if pool == nil { // nothing was given, so the list is not ours
		owned.keepList = true
		return owned
	}
	owned.pools = strings.Split(pool.Message, ",")
	owned.addresses, _ = ingressAddresses(object)
	owned.keepList = len(owned.addresses) == 0
	return owned
}

// ingressAddresses are the addresses in the Service's status; clean is false if it has entries that are none.
func ingressAddresses(object *corev1.Service) (addresses []netip.Addr, clean bool) {
	clean = true
	for i := range object.Status.LoadBalancer.Ingress {
		address, err := netip.ParseAddr(object.Status.LoadBalancer.Ingress[i].IP)
		if err != nil || slices.Contains(addresses, address) {
			clean = false
			continue
		}
		addresses = append(addresses, address)
	}
	return addresses, clean
}

// Holds is true if the Service's status lists exactly these addresses, in whatever order (rule A11).
func Holds(object *corev1.Service, addresses []netip.Addr) bool {
	stored, clean := ingressAddresses(object)
	if !clean || len(stored) != len(addresses) {
		return false
	}
	return !slices.ContainsFunc(addresses, func(a netip.Addr) bool { return !slices.Contains(stored, a) })
}

// allocate is the status with another allocation in it.
func allocate(object *corev1.Service, a Allocation, now metav1.Time) serviceStatus {
	wanted := ownedStatus(object)
	moved := !a.KeepList && !Holds(object, a.Addresses)
	wanted.addresses, wanted.pools, wanted.keepList = a.Addresses, a.Pools, a.KeepList
	wanted.allocated = newCondition(v1beta1.ConditionAllocated, a.Allocated, object, now)
	wanted.renumbered = newRecord(v1beta1.ConditionRenumbered, a.Renumbered, object, now)
	if moved {
		wanted.allocated.LastTransitionTime = now // when it got these addresses decides who keeps one (rule A12)
	}
	return wanted
}

// newCondition makes a condition. Like everywhere in Kubernetes its time is that of the last change of its status.
func newCondition(kind string, said Condition, object *corev1.Service, now metav1.Time) *metav1.Condition {
	condition := &metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: string(said.Reason.Word), Message: said.Reason.Message,
		ObservedGeneration: object.Generation, LastTransitionTime: now,
	}
	if said.True {
		condition.Status = metav1.ConditionTrue
	}
	if stored := meta.FindStatusCondition(object.Status.Conditions, kind); stored != nil && stored.Status == condition.Status {
		condition.LastTransitionTime = stored.LastTransitionTime
	}
	return condition
}

// newRecord makes a condition whose message is a record that Berth itself reads back (rules A10, A11); nil if there is
// nothing to record. Its time is that of the last change of the record.
func newRecord(kind, record string, object *corev1.Service, now metav1.Time) *metav1.Condition {
	if record == "" {
		return nil
	}
	condition := &metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: "Recorded", Message: record,
		ObservedGeneration: object.Generation, LastTransitionTime: now,
	}
	if stored := meta.FindStatusCondition(object.Status.Conditions, kind); stored != nil && stored.Message == record {
		condition.LastTransitionTime = stored.LastTransitionTime
	}
	return condition
}

// isStored is true if the Service's status says all that already: then nothing is written (rules P6, P12).
func (s *serviceStatus) isStored(object *corev1.Service) bool {
	stored := ownedStatus(object)
	return sameCondition(stored.allocated, s.allocated) && sameCondition(stored.announced, s.announced) &&
		sameCondition(stored.renumbered, s.renumbered) &&
		slices.Equal(stored.pools, s.pools) && object.Annotations[v1beta1.AnnotationAllocatedFrom] == s.allocatedFrom() &&
		(s.keepList || Holds(object, s.addresses))
}

// sameCondition is true if two conditions say the same. The text of a condition that says that all is well may differ:
// its facts, the addresses and pools, are compared themselves, and a new version's wording is no reason to write
// (rule O5).
func sameCondition(stored, wanted *metav1.Condition) bool {
	if stored == nil || wanted == nil {
		return stored == wanted
	}
	if stored.Status != wanted.Status || stored.Reason != wanted.Reason {
		return false
	}
	return stored.Message == wanted.Message || wanted.Reason == string(reason.Allocated)
}

// allocatedFrom is the text of the annotation for people: the pools, each once.
func (s *serviceStatus) allocatedFrom() string {
	var names []string
	for _, pool := range s.pools {
		if !slices.Contains(names, pool) {
			names = append(names, pool)
		}
	}
	return strings.Join(names, ", ")
}
