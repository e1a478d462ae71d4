package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berthlb/berth/e2e/lab"
)

// planFixture is the cluster that is planned: as in BenchmarkPlan of internal/announce, but that fewer Services can be
// Local.
type planFixture struct{ PlanLoad }

const (
	planPool = "198.18.0.0/15"
	// planAdvertisements is how many advertisements there are: half by one label, which together are for every Service, and
	// half by another for a few.
	planAdvertisements = 8
	planGroups         = planAdvertisements / 2
	planApps           = 100
	planSlices         = 2 // of each Service
	planSharing        = 10
)

// locals is how many Services are Local: half of them, or as many as can be.
func (f planFixture) locals() int { return min(f.Services/2, MostLocal) }

// local spreads them evenly.
func (f planFixture) local(i int) bool { return i*f.locals()/f.Services != (i+1)*f.locals()/f.Services }

// address is that of a Service: every tenth shares that of the one before it.
func (f planFixture) address(i int) netip.Addr {
	if i%planSharing == 1 {
		i--
	}
	address := netip.MustParsePrefix(planPool).Addr().As4()
	address[2], address[3] = byte((i+1)>>8), byte(i+1) //nolint:gosec // the address's last two bytes
	return netip.AddrFrom4(address)
}

func (f planFixture) node(i int) string { return fmt.Sprintf("n%d", i+1) }

// ignored tells kube-proxy that another proxy serves these.
func ignored() map[string]string {
	return map[string]string{"service.kubernetes.io/service-proxy-name": "bench"}
}

func (f planFixture) service(i int) *corev1.Service {
	no := false
	labels := ignored()
	labels["app"], labels["tier"] = fmt.Sprintf("app-%d", i%planApps), fmt.Sprintf("tier-%d", i%planGroups)
	service := newService(serviceName(i), corev1.ServiceExternalTrafficPolicyCluster)
	service.Labels, service.Spec.Selector = labels, nil // nobody but us makes its slices
	service.Spec.AllocateLoadBalancerNodePorts = &no
	if f.local(i) {
		service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	return service
}

// slice is one of the two slices of a Service, with three or two endpoints on random nodes; Services that share an
// address have the same.
func (f planFixture) slice(i, part int) *discoveryv1.EndpointSlice {
	group := i
	if i%planSharing == 1 {
		group--
	}
	random := rand.New(rand.NewPCG(uint64(group), uint64(part))) //nolint:gosec // the same cluster in every run
	labels := ignored()
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = serviceName(i), "bench"
	protocol, number, name := corev1.ProtocolTCP, int32(podPort), ""
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", serviceName(i), part), Labels: labels},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &number}},
	}
	for at := range 3 - part {
		ready, node := true, f.node(random.IntN(f.Nodes))
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.246.%d.%d", part*3+at, 1+i%250)}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return slice
}

// status is that of a Service which has had its address for a while.
func (f planFixture) status(i int) corev1.ServiceStatus {
	condition := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
		}
	}
	mode := corev1.LoadBalancerIPModeVIP
	address := f.address(i).String()
	return corev1.ServiceStatus{
		LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: address, IPMode: &mode}}},
		Conditions: []metav1.Condition{
			condition("berth.dev/Allocated", "Allocated", address+" from pool "+fromPool),
			condition("berth.dev/Pool", "Recorded", fromPool),
			condition("berth.dev/Announced", "Announced", "announced"),
		},
	}
}

// planClient is a client that speaks protobuf, which is cheaper for all, without a limit.
func (b *Bench) planClient() (kubernetes.Interface, error) {
	config, err := b.lab.Config("admin", b.lab.Client().Space())
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}

// makePlan makes everything but the slices. The controller runs for as long as it takes to make the gossip key.
func (b *Bench) makePlan(ctx context.Context, f planFixture) error {
	if err := b.lab.InstallBerth(ctx); err != nil {
		return err
	}
	if err := b.lab.StartController(ctx, controllerName, lab.Extra{}); err != nil {
		return err
	}
	if err := b.awaitKey(ctx); err != nil {
		return err
	}
	if err := b.stopController(ctx); err != nil {
		return err
	}
	if err := b.makePlanPolicy(ctx); err != nil {
		return err
	}
	client, err := b.planClient()
	if err != nil {
		return err
	}
	nodes, services := client.CoreV1().Nodes(), client.CoreV1().Services(namespace)
	for i := f.Speakers; i < f.Nodes; i++ {
		labels := map[string]string{"role": "edge", "rack": fmt.Sprintf("rack-%d", i%planGroups)}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.node(i), Labels: labels}}
		if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make Node %s: %w", f.node(i), err)
		}
	}
	return inParallel(ctx, f.Services, func(ctx context.Context, i int) error {
		made, err := services.Create(ctx, f.service(i), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("make Service %s: %w", serviceName(i), err)
		}
		made.Status = f.status(i)
		if _, err := services.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("give Service %s its address: %w", serviceName(i), err)
		}
		return nil
	})
}

// awaitKey waits until the speakers' key is there: the controller is ready before it has made it.
func (b *Bench) awaitKey(ctx context.Context) error {
	return until(ctx, func(ctx context.Context) error {
		_, err := b.lab.API().CoreV1().Secrets(lab.BerthNamespace).Get(ctx, "berth-gossip", metav1.GetOptions{})
		return err
	})
}

// makePlanSlices makes the slices, and answers them in no order that matters.
func (b *Bench) makePlanSlices(ctx context.Context, f planFixture) ([]*discoveryv1.EndpointSlice, error) {
	client, err := b.planClient()
	if err != nil {
		return nil, err
	}
	made := make([]*discoveryv1.EndpointSlice, planSlices*f.Services)
	err = inParallel(ctx, len(made), func(ctx context.Context, i int) (err error) {
		slice := f.slice(i/planSlices, i%planSlices)
		made[i], err = client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("make EndpointSlice %s: %w", slice.Name, err)
		}
		return nil
	})
	return made, err
}

// inParallel does something for every number below count, several at a time.
func inParallel(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// makePlanPolicy makes the pool and the advertisements, which have selectors of every kind.
func (b *Bench) makePlanPolicy(ctx context.Context) error {
	var manifest strings.Builder
	fmt.Fprintf(&manifest, "apiVersion: berth.dev/v1beta1\nkind: IPAddressPool\nmetadata: {name: %s}\nspec: {addresses: [%s]}\n", fromPool, planPool)
	for i := range planAdvertisements {
		selector := fmt.Sprintf("tier: tier-%d", i%planGroups)
		if i >= planGroups {
			selector = fmt.Sprintf("app: app-%d", i)
		}
		fmt.Fprintf(&manifest, `---
apiVersion: berth.dev/v1beta1
kind: L2Advertisement
metadata: {name: bench-%d}
spec:
  serviceSelectors: [{matchLabels: {%s}}]
  nodeSelectors: [{matchLabels: {role: edge}}]
  preferredNodeSelectors: [{weight: 10, preference: {matchLabels: {rack: rack-%d}}}]
`, i, selector, i%planGroups)
	}
	call := lab.KubectlCall{Kubeconfig: b.lab.Kubeconfig("admin"), Stdin: []byte(manifest.String())}
	if _, stderr, err := b.lab.Kubectl(ctx, call, "apply", "--server-side", "-f", "-"); err != nil {
		return fmt.Errorf("make the pool and advertisements: %w: %s", err, strings.TrimSpace(stderr))
	}
	for _, node := range b.lab.Nodes() {
		call := lab.KubectlCall{Kubeconfig: b.lab.Kubeconfig("admin")}
		if _, stderr, err := b.lab.Kubectl(ctx, call, "label", "node", node.Name, "role=edge", "rack=rack-0"); err != nil {
			return fmt.Errorf("label Node %s: %w: %s", node.Name, err, strings.TrimSpace(stderr))
		}
	}
	return nil
}

// addSubnet gives a node's link an address in the pool's subnet.
func (b *Bench) addSubnet(name string, number int) error {
	node, err := b.lab.Node(name)
	if err != nil {
		return err
	}
	space, err := node.Space()
	if err != nil {
		return err
	}
	links, err := space.Links()
	if err != nil {
		return err
	}
	defer links.Close()
	link, err := links.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find the link of node %s: %w", name, err)
	}
	prefix := netip.MustParsePrefix(planPool)
	mask := net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())
	last := net.IPv4(198, 19, 255, byte(number)) //nolint:gosec // a few nodes
	address := &netlink.Addr{IPNet: &net.IPNet{IP: last, Mask: mask}}
	if err := links.AddrAdd(link, address); err != nil {
		return fmt.Errorf("give node %s the address %s: %w", name, address, err)
	}
	return nil
}
