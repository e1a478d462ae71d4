package cluster

import (
	"net/netip"
	"time"

	"github.com/berthlb/berth/internal/reason"
)

// TrafficPolicy is a Service's externalTrafficPolicy.
type TrafficPolicy uint8

// The traffic policies. Cluster: every node forwards to any endpoint. Local: a node forwards to its own endpoints only,
// and the client's source address is kept.
const (
	PolicyCluster TrafficPolicy = iota
	PolicyLocal
)

// String is the policy as Kubernetes spells it.
func (p TrafficPolicy) String() string {
	if p == PolicyLocal {
		return "Local"
	}
	return "Cluster"
}

// FamilyPolicy is a Service's ipFamilyPolicy.
type FamilyPolicy uint8

// The family policies (rule A2).
const (
	SingleStack FamilyPolicy = iota
	PreferDualStack
	RequireDualStack
)

// Port is a port of a Service. Protocol is TCP, UDP or SCTP: the same number under two protocols is two ports.
type Port struct {
	Protocol string
	Number   uint16
}

// Service is a Service of type LoadBalancer, as far as Berth is concerned.
type Service struct {
	Name    Name
	UID     string
	Created time.Time // creationTimestamp, in whole seconds
	Labels  map[string]string

	// Ours is false for a Service of another load balancer's class, or one that is being deleted: it is left alone,
	// gets no address and is not announced (rule A1).
	Ours bool

	Families     []Family // wanted, in the order of the Service's ClusterIPs; at most one of each (rule A2)
	FamilyPolicy FamilyPolicy
	Policy       TrafficPolicy
	Ports        []Port
	Selector     string // the pod selector in canonical form, to compare with another's

	// Request is the whole wish for addresses, at most one per family; empty if the Service asks for none (rule A3).
	Request []netip.Addr
	// RequestPool is the pool asked for; empty if the Service asks for none (rule A4).
	RequestPool string
	// RequestProblem says what is wrong with the wish where it cannot be read; nil otherwise. Such a Service is kept
	// as it is and given nothing new.
	RequestProblem *reason.Reason

	// SharingKey is the key of the Services it would share an address with; empty if it shares with none (rule A7).
	SharingKey string
	// SharingNamespaces are the other namespaces whose Services may share its address, where the pool allows that; sorted.
	SharingNamespaces []string
	// Renumber is the value of the annotation by which the owner consents to another address; empty if there is none
	// (rule A10).
	Renumber string

	// ClusterAddresses are its clusterIPs and externalIPs: never to be handed out (rule A5).
	ClusterAddresses []netip.Addr

	// HealthCheckPort is the port on which kube-proxy tells whether this node has endpoints; 0 unless Local.
	HealthCheckPort uint16

	// Endpoints of the Service, for IPv4 and IPv6: kube-proxy keeps the two apart, so do we (rule P7).
	Endpoints4, Endpoints6 Endpoints

	Recorded Record
}

// EndpointsOf are the Service's endpoints of one family.
func (s *Service) EndpointsOf(family Family) Endpoints {
	if family == IPv4 {
		return s.Endpoints4
	}
	return s.Endpoints6
}

// Record is what a Service's status holds: what was given to it before.
type Record struct {
	// Addresses are the valid entries of status.loadBalancer.ingress, canonical, in order, without repetitions.
	Addresses []netip.Addr
	// Garbage is true if the status holds entries that are no valid address: those are dropped (rule A14).
	Garbage bool
	// Pools are the pools recorded for the addresses, one for each in order; nil without a record of ours. The name
	// stays after the pool is gone (rule A10).
	Pools []string
	// ByUs is true if the Service carries an Allocated condition of ours.
	ByUs bool
	// Named are the addresses that condition names: those are from Berth, whatever pools say today (rule A14).
	Named []netip.Addr
	// Since is when the Allocated condition last changed; zero without a record of ours.
	Since time.Time
	// Renumbered is the consent that was used up, see Service.Renumber; empty if none was.
	Renumbered string
	// Announced is since when the Service's condition has said that it is announced, which may be a moment before it is
	// (rules L5, P21); zero if it does not.
	Announced time.Time
}

// PoolOf is the pool recorded for an address, "" if none is.
func (r Record) PoolOf(address netip.Addr) string {
	for i, held := range r.Addresses {
		if held == address && i < len(r.Pools) {
			return r.Pools[i]
		}
	}
	return ""
}
