package cluster

import (
	"net/netip"
	"slices"
	"time"
)

// Advertisement is an L2Advertisement.
type Advertisement struct {
	Name string

	Pools            []string // sorted
	PoolSelectors    []Selector
	ServiceSelectors []Selector
	NodeSelectors    []Selector
	Preferred        []Preference
	Interfaces       []string // sorted; none means every link
	// FailbackDelay is for how long a node that is back owns no address that a settled one can own (rule E8).
	FailbackDelay time.Duration
}

// Preference gives the nodes it selects a weight (rule E2).
type Preference struct {
	Weight int
	Nodes  Selector
}

// MatchesNode is true if the advertisement selects a node with these labels.
func (a *Advertisement) MatchesNode(labels map[string]string) bool {
	return len(a.NodeSelectors) == 0 || AnyMatches(a.NodeSelectors, labels)
}

// WeightOf is the sum of the weights the advertisement gives to a node with these labels.
func (a *Advertisement) WeightOf(labels map[string]string) int {
	sum := 0
	for _, preference := range a.Preferred {
		if preference.Nodes.Matches(labels) {
			sum += preference.Weight
		}
	}
	return sum
}

// MatchesService is true if the advertisement is for addresses that the Service has from the pool of that name. pool is
// nil if there is none any more: then its name alone decides (rule A10).
func (a *Advertisement) MatchesService(service *Service, poolName string, pool *Pool) bool {
	if len(a.ServiceSelectors) > 0 && !AnyMatches(a.ServiceSelectors, service.Labels) {
		return false
	}
	if len(a.Pools)+len(a.PoolSelectors) == 0 {
		return true
	}
	if slices.Contains(a.Pools, poolName) {
		return true
	}
	return pool != nil && AnyMatches(a.PoolSelectors, pool.Labels)
}

// Snapshot is one picture of the cluster, complete and immutable. Lists are sorted by name.
type Snapshot struct {
	Services       []*Service // of type LoadBalancer, ours or not
	Pools          []*Pool
	Nodes          []*Node
	Advertisements []*Advertisement
	ServiceCIDRs   []netip.Prefix
	Facts          Facts
	// Now is the time the picture was taken, on the API server's clock as far as it is known.
	Now time.Time
}
