package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/audit"
)

// steps are what is shown, in order.
func (d *demo) steps() []step {
	return []step{
		{
			"Start a cluster of three nodes",
			"Beside them on the same Ethernet stands a client, 172.30.0.100, that is no part of the cluster.",
			d.startCluster,
		},
		d.install(),
		{
			"Say which addresses may be given (kubectl apply -f pool.yaml)",
			"An IPAddressPool lists them. An L2Advertisement says that nodes shall answer for them on their Ethernet.",
			d.makePool,
		},
		{
			"Create a Service of type LoadBalancer for three web pods, one on each node",
			"Without Berth, or a cloud that does it, its EXTERNAL-IP would stay <pending> for ever.",
			d.makeService,
		},
		{
			"Ask the network who has that address",
			"Exactly one node must answer (ARP): with none the address is dead, with two traffic is torn apart.",
			d.findOwner,
		},
		{
			"Fetch the page from the client (externalTrafficPolicy: Cluster, the default)",
			"Every pod takes part. The price is that pods see a node's address in place of the client's.",
			d.fetchCluster,
		},
		{
			"Fetch it again with externalTrafficPolicy: Local",
			"Only pods of the answering node take part, and they see who asks: for logs, limits and firewalls.",
			d.fetchLocal,
		},
		{
			"Pull the answering node's cable while the client opens 50 new connections a second",
			"Nobody tells Berth. The other speakers must find out, and one of them must answer for the address.",
			d.cutOwner,
		},
	}
}

// install is how Berth comes to the nodes there are.
func (d *demo) install() step {
	const what = "\nA controller gives out addresses. On each node a speaker answers the network's questions for them."
	if d.options.Containers {
		return step{
			"Install Berth (helm install berth charts/berth --namespace berth-system --wait)",
			"The images are those of make image, loaded into each node: there is no registry here." + what, d.installBerth,
		}
	}
	return step{"Install Berth", strings.TrimSpace(what), d.installBerth}
}

func (d *demo) startCluster(ctx context.Context) (string, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: nodes, Programs: d.options.Programs, Containers: d.options.Containers})
	if err != nil {
		return "", err
	}
	d.lab = l
	list, err := l.API().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var ready []string
	for i := range list.Items {
		if isReady(&list.Items[i]) {
			ready = append(ready, list.Items[i].Name)
		}
	}
	if len(ready) != nodes {
		return "", fmt.Errorf("of %d nodes %d are Ready: %v", len(list.Items), len(ready), ready)
	}
	version, err := l.API().Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Kubernetes %s, nodes %s Ready (%s).", version, strings.Join(ready, ", "), kindOf(&list.Items[0])), nil
}

// kindOf says what kind of node it is: a bare one has nothing that runs containers.
func kindOf(node *corev1.Node) string {
	if runtime := node.Status.NodeInfo.ContainerRuntimeVersion; runtime != "" {
		return "kubelet " + node.Status.NodeInfo.KubeletVersion + ", " + runtime
	}
	return "bare nodes: pods are processes"
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// installBerth needs no look of its own: StartBerth waits until each process, or helm each pod, says that it is ready.
func (d *demo) installBerth(ctx context.Context) (string, error) {
	if err := d.lab.StartBerth(ctx); err != nil {
		return "", err
	}
	if d.options.Containers {
		return "the chart is deployed: the pods of two controllers and three speakers are ready.", nil
	}
	return "CRDs and rights are applied; the controller and three speakers say that they are ready.", nil
}

func (d *demo) makePool(ctx context.Context) (string, error) {
	if err := d.apply(ctx, "pool.yaml"); err != nil {
		return "", err
	}
	const want = "InUse 20 free of 20"
	err := until(ctx, func(ctx context.Context) error {
		said, err := d.kubectl(ctx, nil, "get", "ipaddresspool", "demo", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].reason} {.status.ipv4.available} free of {.status.ipv4.capacity}`)
		if err == nil && said != want {
			return fmt.Errorf("the pool's status says %q, not %q", said, want)
		}
		return err
	})
	return "the pool demo, 172.30.0.200 to .219, is in use; 20 of its 20 addresses are free.", err
}

// makeService waits for the pods first, so that the time it shows is that of the address alone.
func (d *demo) makeService(ctx context.Context) (string, error) {
	if err := d.apply(ctx, "deployment.yaml"); err != nil {
		return "", err
	}
	if _, err := d.kubectl(ctx, nil, "rollout", "status", "deployment/web", "--timeout="+patience.String()); err != nil {
		return "", err
	}
	if err := d.apply(ctx, "service.yaml"); err != nil {
		return "", err
	}
	var said string
	if err := until(ctx, func(ctx context.Context) (err error) { said, err = d.readAddress(ctx); return err }); err != nil {
		return "", err
	}
	var took time.Duration
	err := until(ctx, func(context.Context) (err error) { took, err = d.allocationTook(); return err })
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("EXTERNAL-IP %s, %d ms after the Service was created (API server's audit log).\n"+
		"Where from, in the Service's status: %q.", d.address, took.Milliseconds(), said), nil
}

// readAddress takes the Service's address, which must be the pool's, and answers what its status says of it.
func (d *demo) readAddress(ctx context.Context) (string, error) {
	service, err := d.lab.API().CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	condition := conditionOf(service, "berth.dev/Allocated")
	if len(service.Status.LoadBalancer.Ingress) != 1 {
		return "", fmt.Errorf("the Service has %d addresses; its status says %q", len(service.Status.LoadBalancer.Ingress), condition.Message)
	}
	address, err := netip.ParseAddr(service.Status.LoadBalancer.Ingress[0].IP)
	if err != nil {
		return "", fmt.Errorf("the Service's address: %w", err)
	}
	first, last := netip.MustParseAddr("172.30.0.200"), netip.MustParseAddr("172.30.0.219")
	if address.Less(first) || last.Less(address) {
		return "", fmt.Errorf("the Service got %s, which is not in the pool", address)
	}
	if condition.Status != metav1.ConditionTrue || !strings.Contains(condition.Message, "demo") {
		return "", fmt.Errorf("the Service has %s, and its status does not name the pool: %q", address, condition.Message)
	}
	d.address = address
	return condition.Message, nil
}

// conditionOf answers a condition of the Service; one that says nothing if it has none of that type.
func conditionOf(service *corev1.Service, kind string) metav1.Condition {
	for _, condition := range service.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return metav1.Condition{Message: "no condition " + kind}
}

// allocationTook reads in the audit log how long after its creation the Service's status was first written.
func (d *demo) allocationTook() (time.Duration, error) {
	writes, err := d.lab.Writes(audit.Filter{})
	if err != nil {
		return 0, err
	}
	var created time.Time
	for _, w := range writes {
		switch {
		case w.Namespace != metav1.NamespaceDefault || w.Name != "web" || w.Code/100 != 2:
		case w.Resource == "services" && created.IsZero():
			created = w.Time
		case w.Resource == "services/status" && !created.IsZero():
			return w.Time.Sub(created), nil
		}
	}
	return 0, errors.New("the audit log shows no write of the Service's status")
}

func (d *demo) findOwner(ctx context.Context) (string, error) {
	const questions = 5
	var mac string
	err := until(ctx, func(context.Context) error {
		names, macs, err := d.answering(questions)
		if err == nil && len(names) != 1 {
			err = fmt.Errorf("%d hosts answered for %s: %v", len(names), d.address, names)
		}
		if err == nil {
			d.owner, mac = names[0], macs[0]
		}
		return err
	})
	if err != nil {
		return "", err
	}
	said, err := d.awaitAnnounced(ctx, d.owner)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("node %s, MAC %s, and nobody else, to %d questions.\nThe Service's status says so too: %q.",
		d.owner, mac, questions, said), nil
}

// awaitAnnounced waits until the Service's status says that a node answers, and answers its words.
func (d *demo) awaitAnnounced(ctx context.Context, node string) (said string, err error) {
	err = until(ctx, func(ctx context.Context) error {
		service, err := d.lab.API().CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := conditionOf(service, "berth.dev/Announced")
		said = condition.Message
		if condition.Status != metav1.ConditionTrue || !strings.Contains(said, "node "+node) {
			return fmt.Errorf("node %s answers, and the Service's status says %q (%s)", node, said, condition.Reason)
		}
		return nil
	})
	return said, err
}
