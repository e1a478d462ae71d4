package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPAddressPool is a set of addresses Berth may give to Services of type LoadBalancer. An address that was given stays
// with its Service whatever becomes of the pool: editing or deleting a pool moves nothing (rules P5, A10).
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=pool,categories=berth
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Auto",type=boolean,JSONPath=`.spec.autoAssign`
// +kubebuilder:printcolumn:name="IPv4 size",type=integer,JSONPath=`.status.ipv4.capacity`,priority=1
// +kubebuilder:printcolumn:name="IPv4 assigned",type=integer,JSONPath=`.status.ipv4.assigned`
// +kubebuilder:printcolumn:name="IPv4 free",type=integer,JSONPath=`.status.ipv4.available`
// +kubebuilder:printcolumn:name="IPv6 size",type=integer,JSONPath=`.status.ipv6.capacity`,priority=1
// +kubebuilder:printcolumn:name="IPv6 assigned",type=integer,JSONPath=`.status.ipv6.assigned`
// +kubebuilder:printcolumn:name="IPv6 free",type=integer,JSONPath=`.status.ipv6.available`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPAddressPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the pool's author wants.
	// +required
	Spec IPAddressPoolSpec `json:"spec"`
	// status is what Berth reports about the pool. Example: {ipv4: {capacity: 256, assigned: 3, available: 253}}.
	// +optional
	Status IPAddressPoolStatus `json:"status,omitempty"`
}

// IPAddressPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type IPAddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAddressPool `json:"items"`
}

// AddressText is a CIDR, a range FIRST-LAST or a single address.
//
// The rules, in order: the form; no host bits in a CIDR; both ends of a range of one family; FIRST not above LAST. The
// last one only for IPv4: for IPv6 a comparison does not fit the cost that the API server allows to a rule, and a pool
// that has one is not used, condition Ready=False with reason InvalidRange (rule A6).
//
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=90
// +kubebuilder:validation:XValidation:rule="isCIDR(self) || isIP(self) || (self.split('-').size() == 2 && self.split('-').all(x, isIP(x.trim())))",messageExpression="'\"' + self + '\" is not a CIDR (192.0.2.0/24), a range (192.0.2.10-192.0.2.20) or a single address (192.0.2.10)'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",messageExpression="self + ' has host bits set: write the network address of this prefix, or FIRST-LAST for a part of it'"
// +kubebuilder:validation:XValidation:rule="self.split('-').size() != 2 || !self.split('-').all(x, isIP(x.trim())) || ip(self.split('-')[0].trim()).family() == ip(self.split('-')[1].trim()).family()",messageExpression="self + ' mixes IPv4 and IPv6: both ends of a range must be of one family'"
// +kubebuilder:validation:XValidation:rule="!self.matches('^ *([0-9]+[.]){3}[0-9]+ *- *([0-9]+[.]){3}[0-9]+ *$') || int(self.split('.')[0].trim()) * 16777216 + int(self.split('.')[1]) * 65536 + int(self.split('.')[2]) * 256 + int(self.split('.')[3].split('-')[0].trim()) <= int(self.split('.')[3].split('-')[1].trim()) * 16777216 + int(self.split('.')[4]) * 65536 + int(self.split('.')[5]) * 256 + int(self.split('.')[6].trim())",messageExpression="self + ' ends before it starts: write the lower address first'"
type AddressText string

// IPAddressPoolSpec is what a pool's author wants.
type IPAddressPoolSpec struct {
	// addresses are the pool's addresses: CIDRs, ranges FIRST-LAST (spaces around the dash are allowed) and single
	// addresses, IPv4 and IPv6 mixed as you like. The pool is exactly the set written here.
	//
	// A CIDR with host bits set, such as 198.51.100.200/28, is refused because it can be read in two ways: as the
	// whole prefix (198.51.100.192/28, which starts at .192), or as a part of it (198.51.100.200-198.51.100.207).
	// Write the one you mean.
	// Example: ["192.0.2.0/24", "198.51.100.10-198.51.100.20", "2001:db8::/64"].
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	Addresses []AddressText `json:"addresses"`

	// exclude are addresses taken out of the pool, in the same forms. Example: ["192.0.2.1", "192.0.2.128/25"].
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	Exclude []AddressText `json:"exclude,omitempty"`

	// autoAssign tells whether Services that name neither a pool nor an address get addresses of this pool.
	// Example: false.
	// +optional
	// +default=true
	AutoAssign *bool `json:"autoAssign,omitempty"`

	// avoidBuggyIPs leaves out IPv4 addresses that end in .0 or .255, which some old equipment drops. It concerns no
	// other first or last address of a prefix, and no IPv6 address. Example: true.
	// +optional
	AvoidBuggyIPs bool `json:"avoidBuggyIPs,omitempty"`

	// serviceAllocation restricts which Services may have addresses of this pool, and orders pools. An empty one is
	// the same as none. Example: {priority: 10, namespaces: ["shop"]}.
	// +optional
	ServiceAllocation *ServiceAllocation `json:"serviceAllocation,omitempty"`

	// sharing says which Services may share an address of this pool, if they have the same berth.dev/sharing-key and go
	// together on one address: those of one namespace (SameNamespace), those of other namespaces too, if the Service that
	// has held the address longest lists them in berth.dev/sharing-namespaces (AcrossNamespaces), or none (Never). A
	// change binds new allocations only. Example: AcrossNamespaces.
	// +optional
	// +default="SameNamespace"
	Sharing SharingMode `json:"sharing,omitempty"`

	// quota limits how much of this pool Services may hold. A change binds new allocations only.
	// Example: {perNamespace: 5}.
	// +optional
	Quota *PoolQuota `json:"quota,omitempty"`

	// releaseDelay is for how long an address that a Service has given up is kept from all other Services; the Service of
	// the same namespace and name gets it back. At most 24h. Example: "10m".
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(ms|s|m|h)){1,4}$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(ms|s|m|h)){1,4}$') || duration(self) <= duration('24h')",messageExpression="self + ' is too long: an address is kept from others for 24h at most'"
	ReleaseDelay *metav1.Duration `json:"releaseDelay,omitempty"`
}

// SharingMode says which Services may share an address of a pool (rule A7).
//
// +kubebuilder:validation:Enum=SameNamespace;AcrossNamespaces;Never
type SharingMode string

// The modes of sharing.
const (
	SharingSameNamespace    SharingMode = "SameNamespace"
	SharingAcrossNamespaces SharingMode = "AcrossNamespaces"
	SharingNever            SharingMode = "Never"
)

// PoolQuota limits how much of a pool Services may hold (rule A8).
type PoolQuota struct {
	// perNamespace is how many addresses of this pool the Services of one namespace may hold, of each family; an address
	// shared by several counts once. Example: 5.
	// +required
	// +kubebuilder:validation:Minimum=1
	PerNamespace int64 `json:"perNamespace"`
}

// ServiceAllocation restricts a pool to Services. namespaces and namespaceSelectors together say which namespaces (one
// match is enough), serviceSelectors which Services by label; where both are given both must match.
type ServiceAllocation struct {
	// priority orders the pools that match: the lowest number is tried first, pools without one last, then by name.
	// Example: 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Priority *int32 `json:"priority,omitempty"`

	// namespaces are the names of namespaces whose Services may have addresses of this pool. Example: ["shop"].
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"`

	// namespaceSelectors select such namespaces by label. Example: [{matchLabels: {team: shop}}].
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	NamespaceSelectors []metav1.LabelSelector `json:"namespaceSelectors,omitempty"`

	// serviceSelectors select Services by label. Example: [{matchLabels: {exposure: public}}].
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	ServiceSelectors []metav1.LabelSelector `json:"serviceSelectors,omitempty"`
}

// IPAddressPoolStatus is what Berth reports about a pool.
type IPAddressPoolStatus struct {
	// conditions: Ready tells whether the pool is used as written; Overlaps whether an older pool has some of its
	// addresses and keeps them. Example: [{type: Ready, status: "True", reason: InUse}].
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ipv4 counts the pool's IPv4 addresses. Example: {capacity: 256, assigned: 3, available: 253}.
	// +optional
	IPv4 *AddressCount `json:"ipv4,omitempty"`

	// ipv6 counts the pool's IPv6 addresses. Example: {capacity: 16, assigned: 0, available: 16}.
	// +optional
	IPv6 *AddressCount `json:"ipv6,omitempty"`

	// skipped are addresses of the pool that no Service is given, because a node or the cluster itself has them: the
	// first 64, in order. Example: [{addresses: "192.0.2.1", why: "the default gateway of node n1"}].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Skipped []SkippedAddresses `json:"skipped,omitempty"`

	// moreSkipped is true if there are others than those listed in skipped. Example: true.
	// +optional
	MoreSkipped bool `json:"moreSkipped,omitempty"`

	// quarantine are freed addresses that are kept from all but the Service that had them, see releaseDelay; at most 1024,
	// those that are kept longest. A controller that starts goes by this list.
	// Example: [{address: "192.0.2.10", service: "shop/web", until: "2026-01-01T12:10:00Z"}].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Quarantine []QuarantinedAddress `json:"quarantine,omitempty"`
}

// SkippedAddresses is a part of a pool that no Service is given (rule A5).
type SkippedAddresses struct {
	// addresses are a single address or a range FIRST-LAST. Example: "192.0.2.1".
	// +required
	// +kubebuilder:validation:MaxLength=90
	Addresses string `json:"addresses"`
	// why says whose they are. Example: "an address of node n1".
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Why string `json:"why"`
}

// QuarantinedAddress is a freed address that is kept from others (rule A9).
type QuarantinedAddress struct {
	// address that was freed. Example: "192.0.2.10".
	// +required
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address"`
	// service is the one that had it, NAMESPACE/NAME, and gets it back if it wants one before that. Example: "shop/web".
	// +required
	// +kubebuilder:validation:MaxLength=320
	Service string `json:"service"`
	// until is when the address is free for everybody. Example: "2026-01-01T12:10:00Z".
	// +required
	Until metav1.Time `json:"until"`
}

// AddressCount counts addresses of one family. Numbers above 9223372036854775807 (2^63-1) are shown as that.
type AddressCount struct {
	// capacity is how many addresses the pool has: what addresses says, less exclude. Example: 256.
	// +required
	Capacity int64 `json:"capacity"`
	// assigned is how many of them Services hold; an address shared by several counts once. Example: 3.
	// +required
	Assigned int64 `json:"assigned"`
	// available is how many can still be given to any Service: not held, not reserved, not in quarantine, not an older
	// pool's, and not skipped because a node or the cluster has them, or because of avoidBuggyIPs. Example: 253.
	// +required
	Available int64 `json:"available"`
}
