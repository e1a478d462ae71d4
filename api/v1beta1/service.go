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
	// AnnotationAllocatedFrom is written by Berth for people to read: the pools the addresses came from (rule A11).
	AnnotationAllocatedFrom = Group + "/allocated-from"

	// ConditionAllocated on a Service tells whether it holds all addresses it should, and why not (rule A11).
	ConditionAllocated = Group + "/Allocated"
	// ConditionPool on a Service records, in its message, the names of the pools its addresses came from, one per
	// address and in the order of the addresses. It is what Berth itself reads back (rule A11).
	ConditionPool = Group + "/Pool"
	// ConditionAnnounced on a Service tells who answers for its addresses, or why nobody does.
	ConditionAnnounced = Group + "/Announced"
)

// ConditionReady on Berth's own objects tells whether the object is in use as written, and why not.
const ConditionReady = "Ready"
