package bench

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// What the controller writes with, repeated here on purpose: the bare writer is to differ from it in nothing but that it
// decides nothing.
const (
	statusWriters = 16
	eventWriters  = 8
	manager       = "berth"
	fromPool      = "bench"
)

// bareClient is a client as the controller makes it: from its host, with its token, in protobuf, without a limit.
func (b *Bench) bareClient() (kubernetes.Interface, error) {
	space, err := b.lab.ControllerSpace(controllerName)
	if err != nil {
		return nil, err
	}
	config, err := b.lab.Config("controller", space)
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(config)
}

// writeBare writes a status and an event for each Service, as the controller does: statuses by one group of writers, the
// event of each after its status by another.
func (b *Bench) writeBare(ctx context.Context, services []corev1.Service) error {
	client, err := b.bareClient()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	written := make(chan *corev1.Service, len(services))
	group.Go(func() error {
		defer close(written)
		return writeStatuses(ctx, client, services, written)
	})
	for range eventWriters {
		group.Go(func() error {
			for service := range written {
				if err := writeEvent(ctx, client, service); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func writeStatuses(ctx context.Context, client kubernetes.Interface, services []corev1.Service, written chan<- *corev1.Service) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(statusWriters)
	address := netip.MustParseAddr("10.200.0.0")
	for i := range services {
		given := address
		address = address.Next()
		group.Go(func() error {
			service := &services[i]
			apply := statusFor(service, given, time.Now())
			now, err := client.CoreV1().Services(service.Namespace).ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: manager})
			if err != nil {
				return fmt.Errorf("write status of Service %s: %w", service.Name, err)
			}
			written <- now
			return nil
		})
	}
	return group.Wait()
}

// statusFor is what the controller writes for a Service that gets one address.
func statusFor(service *corev1.Service, address netip.Addr, now time.Time) *applycorev1.ServiceApplyConfiguration {
	condition := func(kind, reason, message string) *applymetav1.ConditionApplyConfiguration {
		return applymetav1.Condition().WithType(kind).WithStatus(metav1.ConditionTrue).WithReason(reason).WithMessage(message).
			WithObservedGeneration(service.Generation).WithLastTransitionTime(metav1.NewTime(now))
	}
	list := applycorev1.LoadBalancerStatus().
		WithIngress(applycorev1.LoadBalancerIngress().WithIP(address.String()).WithIPMode(corev1.LoadBalancerIPModeVIP))
	return applycorev1.Service(service.Name, service.Namespace).
		WithUID(service.UID).WithResourceVersion(service.ResourceVersion).
		WithAnnotations(map[string]string{"berth.dev/allocated-from": fromPool}).
		WithStatus(applycorev1.ServiceStatus().WithLoadBalancer(list).WithConditions(
			condition("berth.dev/Allocated", "Allocated", address.String()+" from pool "+fromPool),
			condition("berth.dev/Pool", "Recorded", fromPool)))
}

// writeEvent writes the event that the controller writes when it has given an address.
func writeEvent(ctx context.Context, client kubernetes.Interface, service *corev1.Service) error {
	now := time.Now()
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", service.Name, now.UnixNano()), Namespace: service.Namespace},
		EventTime:  metav1.NewMicroTime(now), Type: corev1.EventTypeNormal,
		ReportingController: "berth.dev/controller", ReportingInstance: "bare-writer", Action: "Allocate", Reason: "Allocated",
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name,
			UID: service.UID, ResourceVersion: service.ResourceVersion,
		},
		Note: "assigned " + service.Status.LoadBalancer.Ingress[0].IP + " from pool " + fromPool,
	}
	if _, err := client.EventsV1().Events(service.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("write event of Service %s: %w", service.Name, err)
	}
	return nil
}

// emptyStatuses takes everything out of the Services' statuses again, by an apply of nothing as the same manager.
func (b *Bench) emptyStatuses(ctx context.Context, count int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range count {
		group.Go(func() error {
			nothing := applycorev1.Service(serviceName(i), namespace).WithStatus(applycorev1.ServiceStatus())
			now, err := b.lab.API().CoreV1().Services(namespace).ApplyStatus(ctx, nothing, metav1.ApplyOptions{FieldManager: manager, Force: true})
			if err != nil {
				return fmt.Errorf("empty the status of Service %s: %w", serviceName(i), err)
			}
			if len(now.Status.LoadBalancer.Ingress)+len(now.Status.Conditions) > 0 {
				return fmt.Errorf("the status of Service %s is not empty: %v", serviceName(i), now.Status)
			}
			return nil
		})
	}
	return group.Wait()
}
