package assign

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/kube"
)

// pageSize is how many Services are asked for at once.
const pageSize = 500

// adopt takes over: all Services from the API server itself, since a cache may lag behind what the last leader wrote;
// what their statuses hold; what the pools' statuses keep from others (rule A9); and those that have left Berth while
// nobody ran (rule A12). It returns how many there are.
func (a *Assigner) adopt(ctx context.Context) (int, error) {
	var coolings []ipam.Cooling
	var err error
	retry(ctx, func() bool {
		if coolings, err = a.coolings(ctx); err == nil {
			err = a.list(ctx)
		}
		if err != nil && ctx.Err() == nil {
			a.Log.Error(err, "what there is cannot be read, trying again")
		}
		return err == nil
	})
	if err != nil {
		return 0, fmt.Errorf("read all pools and Services: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tick()
	if picture, changed := a.picture.take(); changed {
		a.ledger.SetCluster(picture)
	}
	a.ledger.AdoptCooling(coolings)
	services := make([]*cluster.Service, 0, len(a.known))
	for _, known := range a.known {
		services = append(services, known.service)
	}
	a.ledger.Adopt(services)
	for name := range a.known {
		a.wake([]cluster.Name{name})
	}
	return len(services), nil
}

// list reads all Services, page by page. All pages show one moment, that of the first page's resourceVersion.
func (a *Assigner) list(ctx context.Context) error {
	options := metav1.ListOptions{Limit: pageSize}
	var left []cluster.Name
	a.mu.Lock()
	a.known = map[cluster.Name]*known{}
	a.mu.Unlock()
	for {
		page, err := a.Services.Page(ctx, options)
		if err != nil {
			return err
		}
		a.mu.Lock()
		a.floor = page.ResourceVersion
		for i := range page.Items {
			object := &page.Items[i]
			object.ManagedFields = nil
			if object.Spec.Type == corev1.ServiceTypeLoadBalancer {
				a.saw(object)
			} else if kube.HasRecord(object) {
				left = append(left, nameOf(object))
			}
		}
		a.mu.Unlock()
		if page.Continue == "" {
			break
		}
		options.Continue = page.Continue
	}
	for _, name := range left {
		a.tidy(ctx, name)
	}
	return nil
}
