package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/berthlb/berth/e2e/lab"
)

const (
	namespace = metav1.NamespaceDefault
	port      = 80
	podPort   = 8080
	// atOnce is how many requests of a fixture are under way at a time.
	atOnce = 16
)

// labels select the pods that all Services of a benchmark share.
func labels() map[string]string { return map[string]string{"app": "web"} }

// startPods runs one pod on each of a number of nodes and waits until all are ready.
func (b *Bench) startPods(ctx context.Context, count int) error {
	replicas := int32(count) //nolint:gosec // the number of a lab's nodes
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels()},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels()},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{
						Name: "web", Image: "berth.lab/web", Ports: []corev1.ContainerPort{{ContainerPort: podPort}},
					}},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						TopologyKey: corev1.LabelHostname, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
						LabelSelector: &metav1.LabelSelector{MatchLabels: labels()},
					}},
				},
			},
		},
	}
	deployments := b.lab.API().AppsV1().Deployments(namespace)
	if _, err := deployments.Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the pods: %w", err)
	}
	return until(ctx, func(ctx context.Context) error {
		now, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if err == nil && now.Status.ReadyReplicas != replicas {
			err = fmt.Errorf("%d of %d pods are ready", now.Status.ReadyReplicas, replicas)
		}
		return err
	})
}

// makePool makes a pool, and an advertisement that has nodes answer for its addresses.
func (b *Bench) makePool(ctx context.Context, addresses string) error {
	manifest := fmt.Sprintf(`
apiVersion: berth.dev/v1beta1
kind: IPAddressPool
metadata: {name: bench}
spec: {addresses: [%q]}
---
apiVersion: berth.dev/v1beta1
kind: L2Advertisement
metadata: {name: bench}
spec: {ipAddressPools: [bench]}
`, addresses)
	call := lab.KubectlCall{Kubeconfig: b.lab.Kubeconfig("admin"), Stdin: []byte(manifest)}
	if _, stderr, err := b.lab.Kubectl(ctx, call, "apply", "--server-side", "-f", "-"); err != nil {
		return fmt.Errorf("make the pool: %w: %s", err, strings.TrimSpace(stderr))
	}
	return nil
}

// newService is a Service of type LoadBalancer for the pods.
func newService(name string, policy corev1.ServiceExternalTrafficPolicy) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels()},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: labels(), ExternalTrafficPolicy: policy,
			AllocateLoadBalancerNodePorts: new(bool), // there are but 2,768, and kube-proxy needs none for an address
			Ports:                         []corev1.ServicePort{{Port: port, TargetPort: intstr.FromInt32(podPort)}},
		},
	}
}

// makeServices makes Services in parallel.
func (b *Bench) makeServices(ctx context.Context, count int, policy corev1.ServiceExternalTrafficPolicy) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range count {
		group.Go(func() error {
			_, err := b.lab.API().CoreV1().Services(namespace).Create(ctx, newService(serviceName(i), policy), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("make Service %s: %w", serviceName(i), err)
			}
			return nil
		})
	}
	return group.Wait()
}

func serviceName(i int) string { return "bench-" + strconv.Itoa(i) }

// addresses waits until a number of Services have theirs, and answers them in the order of the list.
func (b *Bench) addresses(ctx context.Context, count int) ([]netip.Addr, error) {
	var given []netip.Addr
	err := until(ctx, func(ctx context.Context) error {
		list, err := b.lab.API().CoreV1().Services(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		given = given[:0]
		for i := range list.Items {
			if address, ok := addressOf(&list.Items[i]); ok {
				given = append(given, address)
			}
		}
		if len(given) != count {
			return fmt.Errorf("%d of %d Services have an address", len(given), count)
		}
		return nil
	})
	return given, err
}

// addressOf answers the first address of a Service that has one.
func addressOf(service *corev1.Service) (netip.Addr, bool) {
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(service.Status.LoadBalancer.Ingress[0].IP)
	return address, err == nil
}

// owners asks the segment who has each address, and answers the names of those that said so. More than one, or nobody,
// is an error: nothing can be measured then.
func (b *Bench) owners(addresses []netip.Addr) (map[netip.Addr]string, error) {
	const wait, askedAtOnce = 200 * time.Millisecond, 20
	answers := make([][]string, len(addresses))
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for i, address := range addresses {
		group.Go(func() (err error) { answers[i], err = b.lab.Client().WhoHas(address, wait); return err })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	owners := map[netip.Addr]string{}
	for i, macs := range answers {
		if len(macs) != 1 {
			return nil, fmt.Errorf("%d hosts answer for %s", len(macs), addresses[i])
		}
		owners[addresses[i]] = b.lab.NameOf(macs[0])
	}
	return owners, nil
}
