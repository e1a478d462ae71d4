package assign

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/ipam"
)

// picture is what decisions depend on besides Services. Each object is compiled when it changes; one that changes in
// nothing that matters here (a node's heartbeat) keeps its value, so that nothing is rebuilt for it. The Assigner's lock
// guards it.
type picture struct {
	pools        map[string]*cluster.Pool
	reservations map[string]*cluster.Reservation
	nodes        map[string]*cluster.Node
	gateways     map[string][]netip.Addr // by node
	namespaces   map[string]*cluster.Namespace
	cidrs        map[string][]netip.Prefix
	changed      bool
}

func newPicture() *picture {
	return &picture{
		pools:        map[string]*cluster.Pool{},
		reservations: map[string]*cluster.Reservation{},
		nodes:        map[string]*cluster.Node{},
		gateways:     map[string][]netip.Addr{},
		namespaces:   map[string]*cluster.Namespace{},
		cidrs:        map[string][]netip.Prefix{},
	}
}

// put replaces a value unless it is the same.
func put[V any](p *picture, values map[string]V, name string, value V) {
	if known, has := values[name]; has && reflect.DeepEqual(known, value) {
		return
	}
	values[name] = value
	p.changed = true
}

// remove takes a value out.
func remove[V any](p *picture, values map[string]V, name string) {
	if _, has := values[name]; has {
		delete(values, name)
		p.changed = true
	}
}

// setPool takes a pool in. Its status is no part of it, so that our own writes there come to nothing here.
func (p *picture) setPool(object *v1beta1.IPAddressPool) {
	put(p, p.pools, object.Name, compile.Pool(object))
}

func (p *picture) setReservation(object *v1beta1.AddressReservation) {
	put(p, p.reservations, object.Name, compile.Reservation(object))
}

// setSpeaker keeps of what a speaker reports the gateways, which are to be skipped (rule A5).
func (p *picture) setSpeaker(object *v1beta1.Speaker) {
	if gateways := compile.Gateways(object); len(gateways) > 0 {
		put(p, p.gateways, object.Name, gateways)
		return
	}
	remove(p, p.gateways, object.Name)
}

func (p *picture) setNamespace(object *corev1.Namespace) {
	put(p, p.namespaces, object.Name, compile.Namespace(object))
}

func (p *picture) setServiceCIDR(object *networkingv1.ServiceCIDR) {
	put(p, p.cidrs, object.Name, compile.ServiceCIDR(object))
}

// setNode keeps of a node what is to be skipped (rule A5).
func (p *picture) setNode(object *corev1.Node) {
	node := compile.Node(object, compile.Options{})
	put(p, p.nodes, object.Name, &cluster.Node{Name: node.Name, Addresses: node.Addresses, PodCIDRs: node.PodCIDRs})
}

// take hands the picture out if it has changed since the last time.
func (p *picture) take() (taken ipam.Cluster, changed bool) {
	if !p.changed {
		return ipam.Cluster{}, false
	}
	p.changed = false
	taken.Namespaces = make(map[string]*cluster.Namespace, len(p.namespaces))
	maps.Copy(taken.Namespaces, p.namespaces)
	for _, name := range sortedKeys(p.pools) {
		taken.Pools = append(taken.Pools, p.pools[name])
	}
	for _, name := range sortedKeys(p.reservations) {
		taken.Reservations = append(taken.Reservations, p.reservations[name])
	}
	for _, name := range sortedKeys(p.gateways) {
		for _, address := range p.gateways[name] {
			taken.Gateways = append(taken.Gateways, ipam.Gateway{Address: address, Node: name})
		}
	}
	for _, name := range sortedKeys(p.nodes) {
		taken.Nodes = append(taken.Nodes, p.nodes[name])
	}
	for _, name := range sortedKeys(p.cidrs) {
		taken.ServiceCIDRs = append(taken.ServiceCIDRs, p.cidrs[name]...)
	}
	return taken, true
}

func sortedKeys[V any](values map[string]V) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
