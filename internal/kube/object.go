package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/berthlb/berth/api/v1beta1"
)

// ObjectWriter writes the status of Berth's own objects, except Speaker.
type ObjectWriter struct {
	client client.Client
	permit func() error
}

// NewObjectWriter makes a writer. permit says, before each write, why it may not be sent now: see Lease.Permit.
func NewObjectWriter(api client.Client, permit func() error) *ObjectWriter {
	return &ObjectWriter{client: api, permit: permit}
}

// SetPoolStatus writes the whole status of a pool.
func (w *ObjectWriter) SetPoolStatus(ctx context.Context, pool *v1beta1.IPAddressPool, status v1beta1.IPAddressPoolStatus) error {
	return w.setStatus(ctx, pool, &status)
}

// SetReservationStatus writes the whole status of a reservation.
func (w *ObjectWriter) SetReservationStatus(ctx context.Context, reservation *v1beta1.AddressReservation, status v1beta1.AddressReservationStatus) error {
	return w.setStatus(ctx, reservation, &status)
}

// SetAdvertisementStatus writes the whole status of an advertisement.
func (w *ObjectWriter) SetAdvertisementStatus(ctx context.Context, advertisement *v1beta1.L2Advertisement, status v1beta1.L2AdvertisementStatus) error {
	return w.setStatus(ctx, advertisement, &status)
}

// setStatus applies a status. The UID keeps it from landing on an object made anew under the name; nobody else writes
// these statuses, so that a conflict is only somebody's mistake and is overwritten.
func (w *ObjectWriter) setStatus(ctx context.Context, object client.Object, status any) error {
	if err := w.permit(); err != nil {
		return fmt.Errorf("write status of %s: %w", object.GetName(), err)
	}
	kind, err := apiutil.GVKForObject(object, w.client.Scheme())
	if err != nil {
		return fmt.Errorf("find the kind of %s: %w", object.GetName(), err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("encode status of %s %s: %w", kind.Kind, object.GetName(), err)
	}
	apply := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	apply.SetGroupVersionKind(kind)
	apply.SetName(object.GetName())
	apply.SetUID(object.GetUID())
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	err = w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(apply),
		client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write status of %s %s: %w", kind.Kind, object.GetName(), err)
	}
	return nil
}
