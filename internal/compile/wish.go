package compile

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// renumberLimit is how long a consent may be: the condition that records it holds it as it is.
const renumberLimit = 63

// wish reads what the Service's owner asks for in annotations (rules A3, A4, A7, A10, A13). Of several problems the first
// one is given, so that it stays the same until it is mended.
func wish(object *corev1.Service, into *cluster.Service) {
	var problems [4]*reason.Reason
	into.Request, problems[0] = request(object)
	into.RequestPool, problems[1] = requestPool(object)
	into.SharingKey = annotation(object, v1beta1.AnnotationSharingKey, v1beta1.MetalLBSharingKey).value
	into.SharingNamespaces, problems[2] = sharingNamespaces(object)
	into.Renumber, problems[3] = renumber(object)
	for _, problem := range problems {
		if problem != nil && into.RequestProblem == nil {
			into.RequestProblem = problem
		}
	}
}

// text is what an annotation says, with its key.
type text struct{ key, value string }

// annotation reads an annotation, or the one of MetalLB that means the same: ours wins, then the one with the prefix that
// is in use today (rule A13). One that is empty counts as absent.
func annotation(object *corev1.Service, ours, alias string) text {
	for _, key := range []string{ours, v1beta1.MetalLBPrefix + alias, v1beta1.MetalLBOldPrefix + alias} {
		if value := strings.TrimSpace(object.Annotations[key]); value != "" {
			return text{key, value}
		}
	}
	return text{}
}

// request reads the wish for addresses: the annotation, else spec.loadBalancerIP (rule A3).
func request(object *corev1.Service) ([]netip.Addr, *reason.Reason) {
	asked := annotation(object, v1beta1.AnnotationAddresses, v1beta1.MetalLBAddresses)
	source := "annotation " + asked.key
	if asked.value == "" {
		source, asked.value = "spec.loadBalancerIP", strings.TrimSpace(object.Spec.LoadBalancerIP)
	}
	if asked.value == "" {
		return nil, nil
	}
	var wish []netip.Addr
	for part := range strings.SplitSeq(asked.value, ",") {
		address, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil || address.Zone() != "" {
			return nil, reason.New(reason.InvalidRequest, "%s: %q is not an IP address", source, clip(strings.TrimSpace(part)))
		}
		address = address.Unmap()
		if slices.ContainsFunc(wish, func(a netip.Addr) bool { return cluster.FamilyOf(a) == cluster.FamilyOf(address) }) {
			return nil, reason.New(reason.InvalidRequest, "%s: %q names two %s addresses, at most one of each family can be had",
				source, clip(asked.value), cluster.FamilyOf(address))
		}
		wish = append(wish, address)
	}
	return wish, nil
}

// requestPool reads the wish for a pool. What is no object's name is refused here, before it gets into other messages.
func requestPool(object *corev1.Service) (string, *reason.Reason) {
	asked := annotation(object, v1beta1.AnnotationPool, v1beta1.MetalLBPool)
	if asked.value != "" && len(validation.IsDNS1123Subdomain(asked.value)) > 0 {
		return "", reason.New(reason.InvalidRequest, "annotation %s: %q is not the name of a pool", asked.key, clip(asked.value))
	}
	return asked.value, nil
}

// sharingNamespaces reads the namespaces whose Services may share the Service's address, sorted and each once.
func sharingNamespaces(object *corev1.Service) ([]string, *reason.Reason) {
	listed := strings.TrimSpace(object.Annotations[v1beta1.AnnotationSharingNamespaces])
	if listed == "" {
		return nil, nil
	}
	var names []string
	for part := range strings.SplitSeq(listed, ",") {
		name := strings.TrimSpace(part)
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, reason.New(reason.InvalidRequest, "annotation %s: %q is not the name of a namespace",
				v1beta1.AnnotationSharingNamespaces, clip(name))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// renumber reads the consent to another address.
func renumber(object *corev1.Service) (string, *reason.Reason) {
	value := strings.TrimSpace(object.Annotations[v1beta1.AnnotationRenumber])
	if len(value) > renumberLimit {
		return "", reason.New(reason.InvalidRequest, "annotation %s: %q has more than %d characters",
			v1beta1.AnnotationRenumber, clip(value), renumberLimit)
	}
	return value, nil
}

// UnknownAnnotations are the keys under berth.dev/ on a Service that mean nothing, sorted: spelling mistakes, most likely
// (rule A13).
func UnknownAnnotations(object *corev1.Service) []string {
	var unknown []string
	for key := range object.Annotations {
		if strings.HasPrefix(key, v1beta1.Group+"/") && !slices.Contains(v1beta1.Annotations(), key) {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// clip shortens a user's text for a message: an annotation may have 256 KiB, a condition's message has 32 at most, and
// one that the API server refuses would keep the Service's whole status from being written.
func clip(text string) string {
	const most = 100
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
