package poolstatus

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

// poolStatus is what a pool's status should be.
func poolStatus(pool *v1beta1.IPAddressPool, usage ipam.Usage, now time.Time) v1beta1.IPAddressPoolStatus {
	why := reason.New(reason.InUse, "the pool is used as written")
	switch problem := compile.Pool(pool).Problem; {
	case problem != nil:
		why = problem
	case usage.Overlap != nil:
		why = usage.Overlap
	}
	return v1beta1.IPAddressPoolStatus{
		Conditions: ready(pool.Status.Conditions, why, pool.Generation, now),
		IPv4:       counts(usage.IPv4),
		IPv6:       counts(usage.IPv6),
	}
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
	return v1beta1.L2AdvertisementStatus{
		Conditions: ready(advertisement.Status.Conditions, why, advertisement.Generation, now),
	}
}

// ready is the list of conditions with Ready as it should be. Only an object that is used in full is ready.
func ready(stored []metav1.Condition, why *reason.Reason, generation int64, now time.Time) []metav1.Condition {
	condition := metav1.Condition{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: string(why.Word), Message: why.Message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
	}
	if why.Word == reason.InUse {
		condition.Status = metav1.ConditionTrue
	}
	if before := meta.FindStatusCondition(stored, v1beta1.ConditionReady); before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	return []metav1.Condition{condition}
}

// samePool is true if two statuses say the same, whenever they began to.
func samePool(a, b v1beta1.IPAddressPoolStatus) bool {
	return sameConditions(a.Conditions, b.Conditions) &&
		equality.Semantic.DeepEqual(a.IPv4, b.IPv4) && equality.Semantic.DeepEqual(a.IPv6, b.IPv6)
}

// sameConditions is true if two lists say the same, whenever they began to.
func sameConditions(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.Condition) bool {
		x.LastTransitionTime, y.LastTransitionTime = metav1.Time{}, metav1.Time{}
		return x == y
	})
}
