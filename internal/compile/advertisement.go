package compile

import (
	"slices"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// Advertisement compiles an advertisement; nil, with the problem, if it cannot be used (rule P20).
func Advertisement(object *v1beta1.L2Advertisement) (*cluster.Advertisement, *reason.Reason) {
	spec := &object.Spec
	advertisement := &cluster.Advertisement{
		Name:       object.Name,
		Pools:      slices.Sorted(slices.Values(spec.IPAddressPools)),
		Interfaces: slices.Sorted(slices.Values(spec.Interfaces)),
	}
	if spec.FailbackDelay != nil {
		advertisement.FailbackDelay = spec.FailbackDelay.Duration
	}
	var problem *reason.Reason
	if advertisement.PoolSelectors, problem = selectors("ipAddressPoolSelectors", spec.IPAddressPoolSelectors); problem != nil {
		return nil, problem
	}
	if advertisement.ServiceSelectors, problem = selectors("serviceSelectors", spec.ServiceSelectors); problem != nil {
		return nil, problem
	}
	if advertisement.NodeSelectors, problem = selectors("nodeSelectors", spec.NodeSelectors); problem != nil {
		return nil, problem
	}
	for i := range spec.PreferredNodeSelectors {
		preference, err := selector(&spec.PreferredNodeSelectors[i].Preference)
		if err != nil {
			return nil, reason.New(reason.InvalidSelector, "spec.preferredNodeSelectors[%d]: %v", i, err)
		}
		weight := int(spec.PreferredNodeSelectors[i].Weight)
		advertisement.Preferred = append(advertisement.Preferred, cluster.Preference{Weight: weight, Nodes: preference})
	}
	return advertisement, nil
}
