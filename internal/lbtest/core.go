package lbtest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

// PoolName is the pool that addresses come from.
const PoolName = "pool"

// Service is a Service of ours, "namespace/name", that holds the addresses, given an hour ago from the pool PoolName. It
// has no endpoints yet: see Ready and Serving.
func Service(name string, addresses []string, edits ...func(*cluster.Service)) *cluster.Service {
	service := &cluster.Service{
		Name:    ParseName(name),
		UID:     "uid of " + name,
		Created: created(),
		Ours:    true,
		Recorded: cluster.Record{
			ByUs:  true,
			Since: created(),
		},
	}
	for _, text := range addresses {
		address := netip.MustParseAddr(text)
		service.Families = append(service.Families, cluster.FamilyOf(address))
		service.Recorded.Addresses = append(service.Recorded.Addresses, address)
		service.Recorded.Named = append(service.Recorded.Named, address)
		service.Recorded.Pools = append(service.Recorded.Pools, PoolName)
	}
	for _, edit := range edits {
		edit(service)
	}
	return service
}

// Local makes the traffic policy Local.
func Local(service *cluster.Service) { service.Policy = cluster.PolicyLocal }

// Labelled gives a Service labels, as "key=value".
func Labelled(labels ...string) func(*cluster.Service) {
	return func(service *cluster.Service) { service.Labels = Labels(labels...) }
}

// Since makes the Service hold its addresses since then.
func Since(since time.Time) func(*cluster.Service) {
	return func(service *cluster.Service) { service.Recorded.Since = since }
}

// Ready adds a ready endpoint on each of the nodes; "" is an endpoint that names no node.
func Ready(nodes ...string) func(*cluster.Service) {
	return func(service *cluster.Service) {
		for _, node := range nodes {
			addEndpoint(service, cluster.NodeEndpoints{Node: node, Ready: 1})
		}
	}
}

// Serving adds an endpoint that terminates and still serves on each of the nodes.
func Serving(nodes ...string) func(*cluster.Service) {
	return func(service *cluster.Service) {
		for _, node := range nodes {
			addEndpoint(service, cluster.NodeEndpoints{Node: node, Serving: 1})
		}
	}
}

// addEndpoint adds one to the endpoints of both families, which stay sorted by node.
func addEndpoint(service *cluster.Service, added cluster.NodeEndpoints) {
	i, found := slices.BinarySearchFunc(service.Endpoints4, added.Node, func(e cluster.NodeEndpoints, node string) int {
		return strings.Compare(e.Node, node)
	})
	if found {
		service.Endpoints4[i].Ready += added.Ready
		service.Endpoints4[i].Serving += added.Serving
	} else {
		service.Endpoints4 = slices.Insert(service.Endpoints4, i, added)
	}
	service.Endpoints6 = slices.Clone(service.Endpoints4)
}

// Node is a node that has been ready for an hour.
func Node(name string, edits ...func(*cluster.Node)) *cluster.Node {
	node := &cluster.Node{Name: name, Ready: true, ReadySince: created()}
	for _, edit := range edits {
		edit(node)
	}
	return node
}

// Member is the live speaker of a node, with one link, eth0, in 192.0.2.0/24.
func Member(node string, edits ...func(*cluster.Member)) *cluster.Member {
	member := &cluster.Member{Node: node, ProxyReady: true, Settled: true, Links: []cluster.Link{Link("eth0", "192.0.2.0/24")}, Versions: []int{1}}
	for _, edit := range edits {
		edit(member)
	}
	return member
}

// Links makes these the speaker's links.
func Links(links ...cluster.Link) func(*cluster.Member) {
	return func(member *cluster.Member) { member.Links = links }
}

// Link is a link that is up, with addresses in these subnets.
func Link(name string, subnets ...string) cluster.Link {
	link := cluster.Link{Name: name}
	for _, text := range subnets {
		prefix := netip.MustParsePrefix(text)
		link.Subnets = append(link.Subnets, prefix)
		link.IPv4 = link.IPv4 || prefix.Addr().Is4()
		if prefix.Addr().IsLinkLocalUnicast() && prefix.Addr().Is6() {
			link.LinkLocal = prefix.Addr().Next()
		}
	}
	return link
}

// Advertisement is one for every pool, Service, node and link.
func Advertisement(name string, edits ...func(*cluster.Advertisement)) *cluster.Advertisement {
	advertisement := &cluster.Advertisement{Name: name}
	for _, edit := range edits {
		edit(advertisement)
	}
	return advertisement
}

// Interfaces limits an advertisement to links by name.
func Interfaces(names ...string) func(*cluster.Advertisement) {
	return func(advertisement *cluster.Advertisement) {
		advertisement.Interfaces = slices.Sorted(slices.Values(names))
	}
}

// ForServices limits an advertisement to Services with all of these labels, as "key=value".
func ForServices(labels ...string) func(*cluster.Advertisement) {
	return func(advertisement *cluster.Advertisement) {
		advertisement.ServiceSelectors = append(advertisement.ServiceSelectors, Selector(labels...))
	}
}

// ForNodes limits an advertisement to nodes with all of these labels, as "key=value".
func ForNodes(labels ...string) func(*cluster.Advertisement) {
	return func(advertisement *cluster.Advertisement) {
		advertisement.NodeSelectors = append(advertisement.NodeSelectors, Selector(labels...))
	}
}

// Prefer gives nodes with all of these labels, as "key=value", a weight.
func Prefer(weight int, labels ...string) func(*cluster.Advertisement) {
	return func(advertisement *cluster.Advertisement) {
		advertisement.Preferred = append(advertisement.Preferred, cluster.Preference{Weight: weight, Nodes: Selector(labels...)})
	}
}

// Failback has nodes that are back wait for so long.
func Failback(delay time.Duration) func(*cluster.Advertisement) {
	return func(advertisement *cluster.Advertisement) { advertisement.FailbackDelay = delay }
}

// Selector selects objects with all of these labels, as "key=value".
func Selector(labels ...string) cluster.Selector {
	var selector cluster.Selector
	for _, text := range labels {
		key, value, _ := strings.Cut(text, "=")
		selector = append(selector, cluster.Requirement{Key: key, Operator: cluster.In, Values: []string{value}})
	}
	return selector
}

// Labels reads labels written as "key=value".
func Labels(texts ...string) map[string]string {
	labels := map[string]string{}
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		labels[key] = value
	}
	return labels
}

// Snapshot is the picture of all these parts, each made by one of the functions above. Without an advertisement among
// them it has one for everything.
func Snapshot(parts ...any) *cluster.Snapshot {
	snapshot := &cluster.Snapshot{Now: Now(), Facts: cluster.Facts{Members: map[string]*cluster.Member{}, Down: map[string]bool{}}}
	for _, part := range parts {
		add(snapshot, part)
	}
	if len(snapshot.Advertisements) == 0 {
		snapshot.Advertisements = []*cluster.Advertisement{Advertisement("all")}
	}
	slices.SortFunc(snapshot.Services, func(a, b *cluster.Service) int { return a.Name.Compare(b.Name) })
	slices.SortFunc(snapshot.Pools, func(a, b *cluster.Pool) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(snapshot.Nodes, func(a, b *cluster.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(snapshot.Advertisements, func(a, b *cluster.Advertisement) int { return strings.Compare(a.Name, b.Name) })
	return snapshot
}

func add(snapshot *cluster.Snapshot, part any) {
	switch part := part.(type) {
	case *cluster.Service:
		snapshot.Services = append(snapshot.Services, part)
	case *cluster.Pool:
		snapshot.Pools = append(snapshot.Pools, part)
	case *cluster.Node:
		snapshot.Nodes = append(snapshot.Nodes, part)
	case *cluster.Member:
		snapshot.Facts.Members[part.Node] = part
	case *cluster.Advertisement:
		snapshot.Advertisements = append(snapshot.Advertisements, part)
	case Dead:
		snapshot.Facts.Down[string(part)] = true
	case []any:
		for _, one := range part {
			add(snapshot, one)
		}
	default:
		panic(fmt.Sprintf("lbtest: a snapshot has no part of type %T", part))
	}
}

// Dead is a node whose speaker was alive and is held dead.
type Dead string

// Nodes are nodes that are ready, each with a live speaker.
func Nodes(names ...string) []any {
	var parts []any
	for _, name := range names {
		parts = append(parts, Node(name), Member(name))
	}
	return parts
}
