package compile

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
)

// Options say which Services are this installation's (rule A1), and which nodes leave (rule E6). The controller and the
// speakers of an installation must have the same.
type Options struct {
	// LoadBalancerClass is the class that names this installation. Example: "berth.dev/berth".
	LoadBalancerClass string
	// Default is true if Services without a class are this installation's too.
	Default bool
	// LeaveTaints are the keys of taints with which a node leaves.
	LeaveTaints []string
	// IgnoreExcludeLabel is true if the label node.kubernetes.io/exclude-from-external-load-balancers means nothing.
	IgnoreExcludeLabel bool
}

// DefaultLeaveTaints are the keys of taints that say that a node is out of order or about to be removed.
func DefaultLeaveTaints() []string {
	return []string{corev1.TaintNodeOutOfService, "ToBeDeletedByClusterAutoscaler"}
}

// Service compiles a Service; nil if it is not of type LoadBalancer.
func Service(object *corev1.Service, options Options) *cluster.Service {
	if object.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	service := &cluster.Service{
		Name:             cluster.Name{Namespace: object.Namespace, Name: object.Name},
		UID:              string(object.UID),
		Created:          object.CreationTimestamp.Time,
		Labels:           object.Labels,
		Ours:             object.DeletionTimestamp == nil && options.serves(object.Spec.LoadBalancerClass),
		Families:         families(object),
		FamilyPolicy:     familyPolicy(object.Spec.IPFamilyPolicy),
		Policy:           trafficPolicy(object.Spec.ExternalTrafficPolicy),
		Ports:            ports(object.Spec.Ports),
		Selector:         canonicalSelector(object.Spec.Selector),
		ClusterAddresses: clusterAddresses(object),
		HealthCheckPort:  uint16(object.Spec.HealthCheckNodePort), //nolint:gosec // the API server keeps it in 0..65535
		Recorded:         record(object),
	}
	wish(object, service)
	return service
}

// serves is true if a Service of that class is this installation's.
func (o Options) serves(class *string) bool {
	if class == nil {
		return o.Default
	}
	return *class == o.LoadBalancerClass
}

// families are those of the Service's ClusterIPs; a Service that has none yet, or is headless, wants spec.ipFamilies.
func families(object *corev1.Service) []cluster.Family {
	var wanted []cluster.Family
	for _, text := range object.Spec.ClusterIPs {
		if address, err := netip.ParseAddr(text); err == nil {
			wanted = append(wanted, cluster.FamilyOf(address))
		}
	}
	if len(wanted) > 0 {
		return wanted
	}
	for _, family := range object.Spec.IPFamilies {
		if family == corev1.IPv6Protocol {
			wanted = append(wanted, cluster.IPv6)
		} else {
			wanted = append(wanted, cluster.IPv4)
		}
	}
	return wanted
}

func familyPolicy(policy *corev1.IPFamilyPolicy) cluster.FamilyPolicy {
	switch {
	case policy == nil:
		return cluster.SingleStack
	case *policy == corev1.IPFamilyPolicyPreferDualStack:
		return cluster.PreferDualStack
	case *policy == corev1.IPFamilyPolicyRequireDualStack:
		return cluster.RequireDualStack
	default:
		return cluster.SingleStack
	}
}

func trafficPolicy(policy corev1.ServiceExternalTrafficPolicy) cluster.TrafficPolicy {
	if policy == corev1.ServiceExternalTrafficPolicyLocal {
		return cluster.PolicyLocal
	}
	return cluster.PolicyCluster
}

func ports(list []corev1.ServicePort) []cluster.Port {
	compiled := make([]cluster.Port, 0, len(list))
	for i := range list {
		port := cluster.Port{Protocol: string(list[i].Protocol), Number: uint16(list[i].Port)} //nolint:gosec // 1..65535 by the API
		if port.Protocol == "" {
			port.Protocol = string(corev1.ProtocolTCP)
		}
		compiled = append(compiled, port)
	}
	return compiled
}

func clusterAddresses(object *corev1.Service) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range slices.Concat(object.Spec.ClusterIPs, object.Spec.ExternalIPs) {
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}

// record reads back what the Service's status holds. Entries that are no address, or repeat one, are garbage; a host
// name alone is another load balancer's and garbage too.
func record(object *corev1.Service) cluster.Record {
	var record cluster.Record
	for i := range object.Status.LoadBalancer.Ingress {
		address, err := netip.ParseAddr(object.Status.LoadBalancer.Ingress[i].IP)
		if err != nil || address.Zone() != "" || slices.Contains(record.Addresses, address.Unmap()) {
			record.Garbage = true
			continue
		}
		record.Addresses = append(record.Addresses, address.Unmap())
	}
	if condition := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionAllocated); condition != nil {
		record.ByUs = true
		record.Since = condition.LastTransitionTime.Time
		record.Named = namedIn(condition.Message)
	}
	if condition := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionPool); condition != nil {
		record.Pools = splitPools(condition)
	}
	if condition := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionRenumbered); condition != nil {
		record.Renumbered = condition.Message
	}
	condition := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionAnnounced)
	if condition != nil && condition.Status == metav1.ConditionTrue {
		record.Announced = condition.LastTransitionTime.Time
	}
	return record
}

// namedIn reads back the addresses that the Allocated condition says the Service holds. Its message begins with them, as
// ipam writes it, after "keeps" or nothing: "192.0.2.10 from pool public and 2001:db8::10 from pool six". What follows is
// prose and may quote anything, also what a user wrote: an address there is not one we gave (rule A14).
func namedIn(message string) []netip.Addr {
	var named []netip.Addr
	words := strings.Fields(strings.TrimPrefix(message, "keeps "))
	for len(words) >= 4 && words[1] == "from" && words[2] == "pool" {
		address, err := netip.ParseAddr(words[0])
		if err != nil {
			break
		}
		named = append(named, address.Unmap())
		if len(words) == 4 || words[4] != "and" {
			break
		}
		words = words[5:]
	}
	return named
}

// splitPools reads the pools' names, one per address, from the Pool condition.
func splitPools(condition *metav1.Condition) []string {
	if condition.Message == "" {
		return nil
	}
	names := strings.Split(condition.Message, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}
