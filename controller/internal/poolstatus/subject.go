package poolstatus

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
)

// subject is an object whose status is reported.
type subject struct {
	kind   string
	object client.Object
	stored any // the status that it has
	// look finds out the status that it should have, of the same type, and how to write it; nil if that is not known yet.
	// For a pool this takes the allocator's time.
	look func() (wanted any, write func(context.Context) error)
}

// subjects are all objects that there may be something to say about.
func (r *Reporter) subjects(ctx context.Context) ([]subject, error) {
	var pools v1beta1.IPAddressPoolList
	if err := r.Reader.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	var reservations v1beta1.AddressReservationList
	if err := r.Reader.List(ctx, &reservations); err != nil {
		return nil, fmt.Errorf("list reservations: %w", err)
	}
	var advertisements v1beta1.L2AdvertisementList
	if err := r.Reader.List(ctx, &advertisements); err != nil {
		return nil, fmt.Errorf("list advertisements: %w", err)
	}
	names := map[string]bool{}
	var all []subject
	for i := range pools.Items {
		names[pools.Items[i].Name] = true
		all = append(all, r.pool(&pools.Items[i]))
	}
	r.Metrics.keep(names)
	for i := range reservations.Items {
		all = append(all, r.reservation(&reservations.Items[i]))
	}
	for i := range advertisements.Items {
		all = append(all, r.advertisement(&advertisements.Items[i], names))
	}
	return all, nil
}

func (r *Reporter) pool(pool *v1beta1.IPAddressPool) subject {
	return subject{kind: "IPAddressPool", object: pool, stored: pool.Status, look: func() (any, func(context.Context) error) {
		usage, known := r.Allocator.Usage(pool.Name)
		if !known {
			return nil, nil
		}
		r.Metrics.set(pool.Name, usage)
		wanted := poolStatus(pool, usage, r.Now())
		return wanted, func(ctx context.Context) error { return r.Writer.SetPoolStatus(ctx, pool, wanted) }
	}}
}

func (r *Reporter) reservation(reservation *v1beta1.AddressReservation) subject {
	return subject{kind: "AddressReservation", object: reservation, stored: reservation.Status, look: func() (any, func(context.Context) error) {
		problem, known := r.Allocator.Reservation(reservation.Name)
		if !known {
			return nil, nil
		}
		wanted := reservationStatus(reservation, problem, r.Now())
		return wanted, func(ctx context.Context) error { return r.Writer.SetReservationStatus(ctx, reservation, wanted) }
	}}
}

func (r *Reporter) advertisement(advertisement *v1beta1.L2Advertisement, pools map[string]bool) subject {
	return subject{kind: "L2Advertisement", object: advertisement, stored: advertisement.Status, look: func() (any, func(context.Context) error) {
		wanted := advertisementStatus(advertisement, pools, r.Now())
		return wanted, func(ctx context.Context) error { return r.Writer.SetAdvertisementStatus(ctx, advertisement, wanted) }
	}}
}

// conditionsOf are the conditions of a status.
func conditionsOf(status any) []metav1.Condition {
	switch status := status.(type) {
	case v1beta1.IPAddressPoolStatus:
		return status.Conditions
	case v1beta1.AddressReservationStatus:
		return status.Conditions
	case v1beta1.L2AdvertisementStatus:
		return status.Conditions
	default:
		panic(fmt.Sprintf("poolstatus: %T is no status", status))
	}
}

// bare is a status without the times of its conditions: two that say the same are equal, whenever they began to.
func bare(status any) any {
	conditions := make([]metav1.Condition, 0, len(conditionsOf(status)))
	for _, condition := range conditionsOf(status) {
		condition.LastTransitionTime = metav1.Time{}
		conditions = append(conditions, condition)
	}
	switch status := status.(type) {
	case v1beta1.IPAddressPoolStatus:
		status.Conditions = conditions
		return status
	case v1beta1.AddressReservationStatus:
		status.Conditions = conditions
		return status
	case v1beta1.L2AdvertisementStatus:
		status.Conditions = conditions
		return status
	default:
		panic(fmt.Sprintf("poolstatus: %T is no status", status))
	}
}
