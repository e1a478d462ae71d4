package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthlb/berth/e2e/loopback"
)

// What was not shown without namespaces, and how it can be.
const withoutNamespaces = `ARP and HTTP were not shown: this machine allows no network namespaces, so there is no network that could be
asked. As root, or where unprivileged user namespaces are allowed (sysctl user.max_user_namespaces, and
kernel.unprivileged_userns_clone or kernel.apparmor_restrict_unprivileged_userns where they exist), they are.
`

const loopbackIntro = `Berth gives Kubernetes Services of type LoadBalancer an address that hosts outside the cluster reach.
Without namespaces its controller and three speakers run on loopback here, beside a real API server.
`

// small is a showing without namespaces.
type small struct {
	options Options
	lab     *loopback.Lab
	address string // of the Service, once it has one
}

// RunLoopback shows what can be shown without namespaces: addresses, reasons, speakers that know each other, and a
// controller's death. dir takes the lab's files.
func RunLoopback(ctx context.Context, dir string, options Options) error {
	s := &small{options: options}
	out := &printer{out: options.Out}
	err := present(ctx, out, loopbackIntro, s.steps(dir))
	if s.lab != nil {
		err = errors.Join(err, s.lab.Close())
	}
	if err != nil {
		if failed := os.CopyFS(options.Failed, os.DirFS(filepath.Join(dir, "log"))); failed == nil {
			out.printf("    The logs of all programs are in %s\n", options.Failed)
		}
		return err
	}
	out.printf("\n%s", withoutNamespaces)
	return nil
}

func (s *small) steps(dir string) []step {
	return []step{
		{
			"Start an API server with three Nodes", "It is a real one, with etcd. The Nodes are names only: no pod can run.",
			func(ctx context.Context) (string, error) { return s.start(ctx, dir) },
		},
		{
			"Install Berth", "A controller gives out addresses. On each node a speaker finds out who answers for them.",
			s.install,
		},
		{
			"Create a pool and a Service of type LoadBalancer", "Without Berth its EXTERNAL-IP would stay <pending> for ever.",
			s.allocate,
		},
		{
			"Ask for an address that no pool has", "What cannot be had is refused with a reason, and harms nobody.",
			s.refuse,
		},
		{
			"Ask why nobody answers for the first address", "The speakers have no network here, and Berth says so.",
			s.explain,
		},
		{
			"Kill the controller and start another", "A restart writes nothing, and addresses are given again.",
			s.restart,
		},
	}
}

func (s *small) start(ctx context.Context, dir string) (string, error) {
	var err error
	if s.lab, err = loopback.Start(ctx, dir, s.options.Programs); err != nil {
		return "", err
	}
	nodes, err := s.lab.Kubectl(ctx, nil, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
	return fmt.Sprintf("Nodes %s.", nodes), err
}

func (s *small) install(ctx context.Context) (string, error) {
	if err := s.lab.StartController(ctx, "a"); err != nil {
		return "", err
	}
	if err := s.lab.StartSpeakers(ctx); err != nil {
		return "", err
	}
	err := s.says(ctx, "3 3 3", "get", "speakers.berth.dev", "-o", "jsonpath={.items[*].status.membersSeen}")
	return "three speakers, and each of them sees all three.", err
}

const smallPool = `apiVersion: berth.dev/v1beta1
kind: IPAddressPool
metadata: {name: demo}
spec: {addresses: [192.0.2.10-192.0.2.20]}
---
apiVersion: berth.dev/v1beta1
kind: L2Advertisement
metadata: {name: demo}
`

// smallService is a Service with an endpoint on every node, as pods would make it.
const smallService = `apiVersion: v1
kind: Service
metadata: {name: NAME, annotations: {berth.dev/addresses: "WISH"}}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: NAME, labels: {kubernetes.io/service-name: NAME}}
addressType: IPv4
ports: [{port: 80}]
endpoints:
- {addresses: [10.245.1.2], nodeName: n1}
- {addresses: [10.245.2.2], nodeName: n2}
- {addresses: [10.245.3.2], nodeName: n3}
`

// create applies a Service of that name that asks for an address; it asks for none if that is empty.
func (s *small) create(ctx context.Context, name, wish string) error {
	text := strings.NewReplacer("NAME", name, "WISH", wish).Replace(smallService)
	_, err := s.lab.Kubectl(ctx, []byte(text), "apply", "-f", "-")
	return err
}

func (s *small) allocate(ctx context.Context) (string, error) {
	if _, err := s.lab.Kubectl(ctx, []byte(smallPool), "apply", "-f", "-"); err != nil {
		return "", err
	}
	if err := s.create(ctx, "web", ""); err != nil {
		return "", err
	}
	s.address = "192.0.2.10"
	if err := s.says(ctx, s.address, "get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"); err != nil {
		return "", err
	}
	from, err := s.lab.Kubectl(ctx, nil, "get", "service", "web", "-o", `jsonpath={.status.conditions[?(@.type=="berth.dev/Allocated")].message}`)
	return fmt.Sprintf("%s, the first of the pool. Its status says: %q.", s.address, from), err
}

func (s *small) refuse(ctx context.Context) (string, error) {
	if err := s.create(ctx, "wish", "203.0.113.9"); err != nil {
		return "", err
	}
	err := s.says(ctx, "NotInPool 203.0.113.9 is in no pool", "get", "service", "wish", "-o",
		`jsonpath={.status.conditions[?(@.type=="berth.dev/Allocated")].reason} {.status.conditions[?(@.type=="berth.dev/Allocated")].message}`)
	if err != nil {
		return "", err
	}
	err = s.says(ctx, s.address, "get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	return `the Service "wish" is pending: "NotInPool: 203.0.113.9 is in no pool". The first one keeps its address.`, err
}

func (s *small) explain(ctx context.Context) (string, error) {
	const condition = `{.status.conditions[?(@.type=="berth.dev/Announced")]`
	const want = "False NoCandidates every node is excluded: no link with an IPv4 address is up"
	err := s.says(ctx, want, "get", "service", "web", "-o",
		"jsonpath="+condition+".status} "+condition+".reason} "+condition+".message}")
	return fmt.Sprintf("the condition Announced says: %q.", want), err
}

func (s *small) restart(ctx context.Context) (string, error) {
	if err := s.lab.KillController("a"); err != nil {
		return "", err
	}
	begin := time.Now()
	if err := s.lab.StartController(ctx, "b"); err != nil {
		return "", err
	}
	if err := s.create(ctx, "second", ""); err != nil {
		return "", err
	}
	if err := s.says(ctx, "192.0.2.11", "get", "service", "second", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"); err != nil {
		return "", err
	}
	took := time.Since(begin)
	writes, err := s.lab.Writes(begin)
	if err != nil {
		return "", err
	}
	for _, write := range writes {
		if write.Resource == "services/status" && write.Name != "second" {
			return "", fmt.Errorf("the new controller wrote a Service that had not changed: %s", write)
		}
	}
	return fmt.Sprintf("after kill -9 the next Service had its address, 192.0.2.11, %.1f s later (the lease of the dead one must end),\n"+
		"and the API server's audit log shows no write to the others.", took.Seconds()), nil
}

// says waits until kubectl prints that text.
func (s *small) says(ctx context.Context, want string, args ...string) error {
	return until(ctx, func(ctx context.Context) error {
		said, err := s.lab.Kubectl(ctx, nil, args...)
		if err == nil && said != want {
			return fmt.Errorf("kubectl %s says %q, not %q", strings.Join(args, " "), said, want)
		}
		return err
	})
}
