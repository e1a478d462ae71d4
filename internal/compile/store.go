package compile

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
)

// Store keeps every API object compiled: each is parsed once, when it changes, and endpoints are added up once per
// change of a slice. Snapshot then costs next to nothing. All methods may be called from several goroutines.
type Store struct {
	options Options

	mu             sync.Mutex // guards all below
	services       table[cluster.Name, *cluster.Service]
	pools          table[string, *cluster.Pool]
	nodes          table[string, *cluster.Node]
	advertisements table[string, *cluster.Advertisement]
	cidrs          map[string][]netip.Prefix
	slices         map[cluster.Name]*Slice
	byService      map[cluster.Name]map[cluster.Name]*Slice // Service → slice name → slice
}

// NewStore makes an empty store.
func NewStore(options Options) *Store {
	return &Store{
		options: options,
		services: table[cluster.Name, *cluster.Service]{
			key:     func(s *cluster.Service) cluster.Name { return s.Name },
			compare: cluster.Name.Compare,
		},
		pools:          table[string, *cluster.Pool]{key: func(p *cluster.Pool) string { return p.Name }, compare: strings.Compare},
		nodes:          table[string, *cluster.Node]{key: func(n *cluster.Node) string { return n.Name }, compare: strings.Compare},
		advertisements: table[string, *cluster.Advertisement]{key: func(a *cluster.Advertisement) string { return a.Name }, compare: strings.Compare},
		cidrs:          map[string][]netip.Prefix{},
		slices:         map[cluster.Name]*Slice{},
		byService:      map[cluster.Name]map[cluster.Name]*Slice{},
	}
}

// SetService takes a Service in. One that is not of type LoadBalancer counts as deleted.
func (s *Store) SetService(object *corev1.Service) {
	service := Service(object, s.options)
	s.mu.Lock()
	defer s.mu.Unlock()
	if service == nil {
		s.services.remove(cluster.Name{Namespace: object.Namespace, Name: object.Name})
		return
	}
	service.Endpoints4 = s.endpoints(service.Name, cluster.IPv4)
	service.Endpoints6 = s.endpoints(service.Name, cluster.IPv6)
	s.services.set(service)
}

// DeleteService forgets a Service.
func (s *Store) DeleteService(name cluster.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services.remove(name)
}

// SetSlice takes an EndpointSlice in.
func (s *Store) SetSlice(object *discoveryv1.EndpointSlice) {
	name := cluster.Name{Namespace: object.Namespace, Name: object.Name}
	slice := EndpointSlice(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropSlice(name)
	if slice == nil {
		return
	}
	s.slices[name] = slice
	if s.byService[slice.Service] == nil {
		s.byService[slice.Service] = map[cluster.Name]*Slice{}
	}
	s.byService[slice.Service][name] = slice
	s.refresh(slice.Service, slice.Family)
}

// DeleteSlice forgets an EndpointSlice.
func (s *Store) DeleteSlice(name cluster.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropSlice(name)
}

// dropSlice takes a slice out of the index and refreshes the Service it belonged to.
func (s *Store) dropSlice(name cluster.Name) {
	old := s.slices[name]
	if old == nil {
		return
	}
	delete(s.slices, name)
	delete(s.byService[old.Service], name)
	if len(s.byService[old.Service]) == 0 {
		delete(s.byService, old.Service)
	}
	s.refresh(old.Service, old.Family)
}

// refresh replaces a Service by one with its endpoints of a family added up anew.
func (s *Store) refresh(name cluster.Name, family cluster.Family) {
	service, found := s.services.get(name)
	if !found {
		return
	}
	fresh := *service
	if family == cluster.IPv4 {
		fresh.Endpoints4 = s.endpoints(name, family)
	} else {
		fresh.Endpoints6 = s.endpoints(name, family)
	}
	s.services.set(&fresh)
}

// endpoints adds up a Service's endpoints of a family over all its slices (rule P7).
func (s *Store) endpoints(name cluster.Name, family cluster.Family) cluster.Endpoints {
	var all cluster.Endpoints
	for _, slice := range s.byService[name] {
		if slice.Family == family {
			all = append(all, slice.Endpoints...)
		}
	}
	return merge(all)
}

// SetPool takes a pool in.
func (s *Store) SetPool(object *v1beta1.IPAddressPool) {
	pool := Pool(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools.set(pool)
}

// DeletePool forgets a pool.
func (s *Store) DeletePool(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools.remove(name)
}

// SetNode takes a Node in.
func (s *Store) SetNode(object *corev1.Node) {
	node := Node(object, s.options)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes.set(node)
}

// DeleteNode forgets a Node.
func (s *Store) DeleteNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes.remove(name)
}

// SetAdvertisement takes an advertisement in. One that cannot be used drops out; its condition says why (rule P20).
func (s *Store) SetAdvertisement(object *v1beta1.L2Advertisement) {
	advertisement, problem := Advertisement(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	if problem != nil {
		s.advertisements.remove(object.Name)
		return
	}
	s.advertisements.set(advertisement)
}

// DeleteAdvertisement forgets an advertisement.
func (s *Store) DeleteAdvertisement(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advertisements.remove(name)
}

// FailbackDelays are those of all advertisements that have one.
func (s *Store) FailbackDelays() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var delays []time.Duration
	for _, advertisement := range s.advertisements.list() {
		if advertisement.FailbackDelay > 0 {
			delays = append(delays, advertisement.FailbackDelay)
		}
	}
	return delays
}

// SetServiceCIDR takes a ServiceCIDR in.
func (s *Store) SetServiceCIDR(object *networkingv1.ServiceCIDR) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cidrs[object.Name] = ServiceCIDR(object)
}

// DeleteServiceCIDR forgets a ServiceCIDR.
func (s *Store) DeleteServiceCIDR(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cidrs, name)
}

// ServiceCIDR compiles a ServiceCIDR: the prefixes the cluster takes its ClusterIPs from.
func ServiceCIDR(object *networkingv1.ServiceCIDR) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range object.Spec.CIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			prefixes = append(prefixes, prefix.Masked())
		}
	}
	return prefixes
}

// Snapshot is the picture of all objects taken in so far, with the facts and the time given.
func (s *Store) Snapshot(facts cluster.Facts, now time.Time) *cluster.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &cluster.Snapshot{
		Services:       s.services.list(),
		Pools:          s.pools.list(),
		Nodes:          s.nodes.list(),
		Advertisements: s.advertisements.list(),
		ServiceCIDRs:   s.serviceCIDRs(),
		Facts:          facts,
		Now:            now,
	}
}

// serviceCIDRs are the prefixes of all ServiceCIDRs, sorted.
func (s *Store) serviceCIDRs() []netip.Prefix {
	var all []netip.Prefix
	for _, prefixes := range s.cidrs {
		all = append(all, prefixes...)
	}
	sortPrefixes(all)
	return all
}
