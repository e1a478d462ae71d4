package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
)

// ServiceReader reads Services from the API server itself, not from a cache, which may lag behind what was written.
type ServiceReader struct {
	services typedcorev1.ServicesGetter
}

// NewServiceReader makes a reader.
func NewServiceReader(services typedcorev1.ServicesGetter) ServiceReader {
	return ServiceReader{services: services}
}

// Page is one page of the Services of all namespaces.
func (r ServiceReader) Page(ctx context.Context, options metav1.ListOptions) (*corev1.ServiceList, error) {
	page, err := r.services.Services(metav1.NamespaceAll).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	return page, nil
}

// Get is one Service as it is now.
func (r ServiceReader) Get(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	object, err := r.services.Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Service %s/%s: %w", namespace, name, err)
	}
	return object, nil
}

// PoolReader reads pools from the API server itself.
type PoolReader struct{ client client.Reader }

// NewPoolReader makes a reader. api is not to be a cache.
func NewPoolReader(api client.Reader) PoolReader { return PoolReader{client: api} }

// Pools are all pools as they are now.
func (r PoolReader) Pools(ctx context.Context) ([]v1beta1.IPAddressPool, error) {
	var list v1beta1.IPAddressPoolList
	if err := r.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	return list.Items, nil
}
