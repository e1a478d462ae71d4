package poolstatus

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

// mostQuarantined is how many entries the list of a pool has at most, as its rule of form says.
const mostQuarantined = 1024

// poolStatus is what a pool's status should be. A pool of which an older one has a part is not used as written, so it is
// not ready; the condition Overlaps says so by itself (rule A6).
func poolStatus(pool *v1beta1.IPAddressPool, usage ipam.Usage, now time.Time) v1beta1.IPAddressPoolStatus {
	why := reason.New(reason.InUse, "the pool is used as written")
	overlap := reason.New(reason.InUse, "no older pool has any of the pool's addresses")
	if usage.Overlap != nil {
		why, overlap = usage.Overlap, usage.Overlap
	}
	if problem := compile.Pool(pool).Problem; problem != nil {
		why = problem
	}
	stamp := stamp{pool.Status.Conditions, pool.Generation, now}
	return v1beta1.IPAddressPoolStatus{
		Conditions: []metav1.Condition{
			stamp.condition(v1beta1.ConditionReady, why.Word == reason.InUse, why),
			stamp.condition(v1beta1.ConditionOverlaps, usage.Overlap != nil, overlap),
		},
		IPv4:        counts(usage.IPv4),
		IPv6:        counts(usage.IPv6),
		Skipped:     skipped(usage.Skipped),
		MoreSkipped: usage.SkippedMore,
		Quarantine:  quarantine(usage.Cooling),
	}
}

// skipped is the list of what is not given out.
func skipped(list []ipam.Skipped) []v1beta1.SkippedAddresses {
	shown := make([]v1beta1.SkippedAddresses, 0, len(list))
	for _, one := range list {
		text := one.Range.String()
		if one.Range.From() == one.Range.To() {
			text = one.Range.From().String()
		}
		shown = append(shown, v1beta1.SkippedAddresses{Addresses: text, Why: one.Why})
	}
	return shown
}

// quarantine is the list of what cools down, by address; of too many those that do so longest, since a controller that
// starts goes by it. Times are in whole seconds, and none is too early.
func quarantine(list []ipam.Cooling) []v1beta1.QuarantinedAddress {
	if len(list) > mostQuarantined {
		list = slices.Clone(list)
		slices.SortFunc(list, func(a, b ipam.Cooling) int { return cmp.Or(b.Until.Compare(a.Until), a.Address.Compare(b.Address)) })
		list = list[:mostQuarantined]
		slices.SortFunc(list, func(a, b ipam.Cooling) int { return a.Address.Compare(b.Address) })
	}
	shown := make([]v1beta1.QuarantinedAddress, 0, len(list))
	for _, one := range list {
		until := one.Until.Add(time.Second - time.Nanosecond).Truncate(time.Second)
		shown = append(shown, v1beta1.QuarantinedAddress{
			Address: one.Address.String(), Service: one.Service.String(), Until: metav1.NewTime(until),
		})
	}
	return shown
}

// reservationStatus is what a reservation's status should be; problem is nil if it is used as written.
func reservationStatus(reservation *v1beta1.AddressReservation, problem *reason.Reason, now time.Time) v1beta1.AddressReservationStatus {
	why := problem
	if why == nil {
		why = reason.New(reason.InUse, "the reservation is used as written")
	}
	stamp := stamp{reservation.Status.Conditions, reservation.Generation, now}
	return v1beta1.AddressReservationStatus{Conditions: []metav1.Condition{stamp.condition(v1beta1.ConditionReady, problem == nil, why)}}
}

// counts are the counts of a family; nil if the pool has no addresses of it.
func counts(usage ipam.FamilyUsage) *v1beta1.AddressCount {
	if usage == (ipam.FamilyUsage{}) {
		return nil
	}
	return &v1beta1.AddressCount{Capacity: usage.Capacity, Assigned: usage.Assigned, Available: usage.Available}
}

// advertisementStatus is what an advertisement's status should be. pools are the names of those there are.
func advertisementStatus(advertisement *v1beta1.L2Advertisement, pools map[string]bool, now time.Time) v1beta1.L2AdvertisementStatus {
	why := reason.New(reason.InUse, "the advertisement is used as written")
	_, problem := compile.Advertisement(advertisement)
	missing := slices.DeleteFunc(slices.Sorted(slices.Values(advertisement.Spec.IPAddressPools)), func(name string) bool { return pools[name] })
	switch {
	case problem != nil:
		why = problem
	case len(missing) > 0:
		why = reason.New(reason.PoolNotFound, "spec.ipAddressPools names pools that do not exist: %s", strings.Join(missing, ", "))
	}
	stamp := stamp{advertisement.Status.Conditions, advertisement.Generation, now}
	return v1beta1.L2AdvertisementStatus{
		Conditions: []metav1.Condition{stamp.condition(v1beta1.ConditionReady, why.Word == reason.InUse, why)},
	}
}

// stamp is what a condition carries besides what it says: the object's generation, and the time at which it began to say
// so, which is that of the last change of its status.
type stamp struct {
	stored     []metav1.Condition
	generation int64
	now        time.Time
}

// condition makes a condition.
func (s stamp) condition(kind string, is bool, why *reason.Reason) metav1.Condition {
	condition := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: string(why.Word), Message: why.Message,
		ObservedGeneration: s.generation, LastTransitionTime: metav1.NewTime(s.now).Rfc3339Copy(),
	}
	if is {
		condition.Status = metav1.ConditionTrue
	}
	if before := meta.FindStatusCondition(s.stored, kind); before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	return condition
}
