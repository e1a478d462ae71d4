package v1beta1

// What Berth reads from and writes to Services. Every key under berth.dev/ is listed here: another one on a Service is
// a spelling mistake and gets one Warning event (rule A13).
const (
	// LoadBalancerClass is the spec.loadBalancerClass that asks for Berth by name (rule A1).
	LoadBalancerClass = Group + "/berth"

	// AnnotationAddresses asks for addresses: a comma-separated list with at most one of each family (rule A3).
	// Example: "192.0.2.10" or "192.0.2.10, 2001:db8::10".
	AnnotationAddresses = Group + "/addresses"
	// AnnotationPool names the pool to take the addresses from (rule A4). Example: "public".
	AnnotationPool = Group + "/pool"
	// AnnotationSharingKey has Services with the same key share addresses, as far as their ports and policies, and the
	// pool, allow it (rule A7). Example: "dns".
	AnnotationSharingKey = Group + "/sharing-key"
	// AnnotationSharingNamespaces lists the other namespaces whose Services may share this one's address, separated by
	// commas, where the pool says AcrossNamespaces (rule A7). Example: "mail, web".
	AnnotationSharingNamespaces = Group + "/sharing-namespaces"
	// AnnotationRenumber consents to another address, once for each new value of at most 63 characters: an address that no
	// pool contains any more is given up for one that can be had (rule A10). Example: "2026-01-01".
	AnnotationRenumber = Group + "/renumber"
	// AnnotationAllocatedFrom is written by Berth for people to read: the pools the addresses came from (rule A11).
	AnnotationAllocatedFrom = Group + "/allocated-from"

	// ConditionAllocated on a Service tells whether it holds all addresses it should, and why not (rule A11).
	ConditionAllocated = Group + "/Allocated"
	// ConditionPool on a Service records, in its message, the names of the pools its addresses came from, one per
	// address and in the order of the addresses. It is what Berth itself reads back (rule A11).
	ConditionPool = Group + "/Pool"
	// ConditionRenumbered on a Service records, in its message, the value of AnnotationRenumber that has been used up
	// (rule A10).
	ConditionRenumbered = Group + "/Renumbered"
	// ConditionAnnounced on a Service tells who answers for its addresses, or why nobody does.
	ConditionAnnounced = Group + "/Announced"
)

// The keys of MetalLB's annotations that mean the same as ours; ours win, and the first prefix wins over the second
// (rule A13).
const (
	MetalLBPrefix    = "metallb.io/"
	MetalLBOldPrefix = "metallb.universe.tf/"

	MetalLBAddresses  = "loadBalancerIPs"
	MetalLBPool       = "address-pool"
	MetalLBSharingKey = "allow-shared-ip"
)

// The conditions of Berth's own objects.
const (
	// ConditionReady tells whether the object is in use as written, and why not.
	ConditionReady = "Ready"
	// ConditionOverlaps on a pool tells whether an older pool has some of its addresses (rule A6).
	ConditionOverlaps = "Overlaps"
)

// Annotations are the keys under berth.dev/ that mean something on a Service.
func Annotations() []string {
	return []string{
		AnnotationAddresses, AnnotationPool, AnnotationSharingKey, AnnotationSharingNamespaces, AnnotationRenumber,
		AnnotationAllocatedFrom,
	}
}
