package ipam

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/berthlb/berth/internal/cluster"
)

// skipped are the addresses of nodes and of the cluster itself: they are never handed out, though a pool may contain
// them (rule A5).
type skipped struct {
	nodes    map[netip.Addr]string         // address → node that has it
	gateways map[netip.Addr]string         // address → node whose default gateway it is
	services map[netip.Addr][]cluster.Name // address → Services with it among their clusterIPs and externalIPs
	prefixes []skippedPrefix
	ranges   []netipx.IPRange // of the prefixes: sorted, without overlaps
}

// skippedPrefix is a prefix the cluster uses, and what for.
type skippedPrefix struct {
	prefix netip.Prefix
	use    string
}

// setCluster takes in the addresses of nodes, pods and Services' networks.
func (s *skipped) setCluster(nodes []*cluster.Node, gateways []Gateway, serviceCIDRs []netip.Prefix) {
	s.nodes, s.gateways = map[netip.Addr]string{}, map[netip.Addr]string{}
	for _, gateway := range gateways {
		if node, known := s.gateways[gateway.Address]; !known || gateway.Node < node {
			s.gateways[gateway.Address] = gateway.Node
		}
	}
	s.prefixes = nil
	for _, node := range nodes {
		for _, address := range node.Addresses {
			if _, known := s.nodes[address]; !known {
				s.nodes[address] = node.Name
			}
		}
		for _, prefix := range node.PodCIDRs {
			s.prefixes = append(s.prefixes, skippedPrefix{prefix, "the pods of node " + node.Name})
		}
	}
	for _, prefix := range serviceCIDRs {
		s.prefixes = append(s.prefixes, skippedPrefix{prefix, "the cluster's Services"})
	}
	var set netipx.IPSetBuilder
	for _, one := range s.prefixes {
		set.AddPrefix(one.prefix)
	}
	united, err := set.IPSet()
	if err != nil {
		panic(fmt.Sprintf("ipam: a prefix of the cluster is not valid: %v", err))
	}
	s.ranges = united.Ranges()
}

// addService adds a Service's own address.
func (s *skipped) addService(address netip.Addr, name cluster.Name) {
	s.services[address] = append(s.services[address], name)
}

// removeService takes a Service's own address out and is true if no other Service has it.
func (s *skipped) removeService(address netip.Addr, name cluster.Name) bool {
	names := s.services[address]
	if i := slices.Index(names, name); i >= 0 {
		names = slices.Delete(slices.Clone(names), i, i+1)
	}
	if len(names) == 0 {
		delete(s.services, address)
		return true
	}
	s.services[address] = names
	return false
}

// inPrefix is true if the address lies in a prefix that the cluster uses.
func (s *skipped) inPrefix(address netip.Addr) bool {
	i, found := slices.BinarySearchFunc(s.ranges, address, compareRange)
	return found && s.ranges[i].Contains(address)
}

// has is true if the address is to be skipped.
func (s *skipped) has(address netip.Addr) bool {
	return len(s.services[address]) > 0 || s.ofCluster(address)
}

// ofCluster is true if the address is a node's or a gateway's, or in a prefix that the cluster uses: what is not announced
// either (rule A14).
func (s *skipped) ofCluster(address netip.Addr) bool {
	if _, ofNode := s.nodes[address]; ofNode {
		return true
	}
	if _, gateway := s.gateways[address]; gateway {
		return true
	}
	return s.inPrefix(address)
}

// single are the addresses that are skipped one by one; some may come twice.
func (s *skipped) single() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for address := range s.nodes {
			if !yield(address) {
				return
			}
		}
		for address := range s.gateways {
			if !yield(address) {
				return
			}
		}
		for address := range s.services {
			if !yield(address) {
				return
			}
		}
	}
}

// why says whose address it is; "" if it is nobody's. more are Services that have it too.
func (s *skipped) why(address netip.Addr, more ...cluster.Name) string {
	if node, ofNode := s.nodes[address]; ofNode {
		return "an address of node " + node
	}
	if node, gateway := s.gateways[address]; gateway {
		return "the default gateway of node " + node
	}
	if names := slices.Concat(s.services[address], more); len(names) > 0 {
		return "a cluster or external IP of Service " + slices.MinFunc(names, cluster.Name.Compare).String()
	}
	for _, one := range s.prefixes {
		if one.prefix.Contains(address) {
			return "in " + one.prefix.String() + ", which is for " + one.use
		}
	}
	return ""
}

// clone is a copy that can be changed.
func (s *skipped) clone() skipped {
	copied := *s // nodes, gateways, prefixes and ranges are replaced as a whole, never changed
	copied.services = make(map[netip.Addr][]cluster.Name, len(s.services))
	for address, names := range s.services {
		copied.services[address] = slices.Clone(names)
	}
	return copied
}

// compareRange orders a range and an address for a binary search.
func compareRange(r netipx.IPRange, address netip.Addr) int {
	switch {
	case r.To().Less(address):
		return -1
	case address.Less(r.From()):
		return 1
	default:
		return 0
	}
}
