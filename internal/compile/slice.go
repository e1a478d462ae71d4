package compile

import (
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/berthlb/berth/internal/cluster"
)

// Slice is one EndpointSlice: which Service and family it belongs to, and its endpoints by node.
type Slice struct {
	Service   cluster.Name
	Family    cluster.Family
	Endpoints cluster.Endpoints
}

// EndpointSlice compiles an EndpointSlice; nil if it belongs to no Service or holds host names.
func EndpointSlice(object *discoveryv1.EndpointSlice) *Slice {
	service := object.Labels[discoveryv1.LabelServiceName]
	if service == "" || object.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	slice := &Slice{Service: cluster.Name{Namespace: object.Namespace, Name: service}, Family: cluster.IPv4}
	if object.AddressType == discoveryv1.AddressTypeIPv6 {
		slice.Family = cluster.IPv6
	}
	for i := range object.Endpoints {
		endpoint := &object.Endpoints[i]
		entry := cluster.NodeEndpoints{}
		if endpoint.NodeName != nil {
			entry.Node = *endpoint.NodeName
		}
		switch {
		case orTrue(endpoint.Conditions.Ready):
			entry.Ready = 1
		case orTrue(endpoint.Conditions.Serving) && endpoint.Conditions.Terminating != nil && *endpoint.Conditions.Terminating:
			entry.Serving = 1
		default:
			continue
		}
		slice.Endpoints = append(slice.Endpoints, entry)
	}
	slice.Endpoints = merge(slice.Endpoints)
	return slice
}

// orTrue reads an optional condition: one that does not say counts as true, as the API documents it.
func orTrue(condition *bool) bool { return condition == nil || *condition }

// merge sorts endpoints by node and adds up those of one node.
func merge(list cluster.Endpoints) cluster.Endpoints {
	slices.SortFunc(list, func(a, b cluster.NodeEndpoints) int { return strings.Compare(a.Node, b.Node) })
	merged := list[:0]
	for _, entry := range list {
		if last := len(merged) - 1; last >= 0 && merged[last].Node == entry.Node {
			merged[last].Ready += entry.Ready
			merged[last].Serving += entry.Serving
			continue
		}
		merged = append(merged, entry)
	}
	return slices.Clip(merged)
}
