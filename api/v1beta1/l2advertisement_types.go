package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// L2Advertisement makes nodes answer ARP and neighbour discovery for addresses of pools: of all nodes that qualify,
// exactly one per address.
// Several advertisements for one Service add up: a node qualifies if one of them selects it (rules E1, E12).
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=l2adv,categories=berth
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.spec.ipAddressPools`
// +kubebuilder:printcolumn:name="Interfaces",type=string,JSONPath=`.spec.interfaces`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type L2Advertisement struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the advertisement's author wants. An empty one means: every pool, every Service, every node.
	// +optional
	Spec L2AdvertisementSpec `json:"spec,omitempty"`
	// status is what Berth reports about the advertisement.
	// +optional
	Status L2AdvertisementStatus `json:"status,omitempty"`
}

// L2AdvertisementList is a list of advertisements.
//
// +kubebuilder:object:root=true
type L2AdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []L2Advertisement `json:"items"`
}

// L2AdvertisementSpec is what an advertisement's author wants.
type L2AdvertisementSpec struct {
	// ipAddressPools are names of pools whose addresses are announced. With neither this nor ipAddressPoolSelectors,
	// every pool's are. Example: ["public"].
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	IPAddressPools []string `json:"ipAddressPools,omitempty"`

	// ipAddressPoolSelectors select such pools by label. Example: [{matchLabels: {zone: dmz}}].
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	IPAddressPoolSelectors []metav1.LabelSelector `json:"ipAddressPoolSelectors,omitempty"`

	// serviceSelectors restrict the advertisement to Services by label. Example: [{matchLabels: {app: web}}].
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	ServiceSelectors []metav1.LabelSelector `json:"serviceSelectors,omitempty"`

	// nodeSelectors restrict the advertisement to nodes by label. Example: [{matchLabels: {role: edge}}].
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	NodeSelectors []metav1.LabelSelector `json:"nodeSelectors,omitempty"`

	// preferredNodeSelectors make some nodes better owners than others: a node's weights add up, and the highest sum
	// wins before the even spread decides. Example: [{weight: 50, preference: {matchLabels: {rack: a}}}].
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	PreferredNodeSelectors []PreferredNodeSelector `json:"preferredNodeSelectors,omitempty"`

	// failbackDelay is for how long a node that comes back owns no address, as long as another one can that was there
	// before: time for caches to fill, and for a node that comes and goes to cost its addresses one move and not many. At
	// most 24h; none means that it counts at once. If several advertisements are for an address the longest counts.
	// Example: "5m".
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(ms|s|m|h)){1,4}$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(ms|s|m|h)){1,4}$') || duration(self) <= duration('24h')",messageExpression="self + ' is too long: a node that is back waits for 24h at most'"
	FailbackDelay *metav1.Duration `json:"failbackDelay,omitempty"`

	// interfaces are the names of the links that may answer; with none, every link of the node that is up, belongs
	// to no other link and is not a pod's. Example: ["eth0", "bond0.100"].
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=15
	// +listType=set
	Interfaces []string `json:"interfaces,omitempty"`
}

// PreferredNodeSelector gives nodes a weight.
type PreferredNodeSelector struct {
	// weight is added to that of each node selected. Example: 50.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`

	// preference selects the nodes by label. Example: {matchLabels: {rack: a}}.
	// +required
	Preference metav1.LabelSelector `json:"preference"`
}

// L2AdvertisementStatus is what Berth reports about an advertisement.
type L2AdvertisementStatus struct {
	// conditions: Ready tells whether the advertisement is used as written. Example: [{type: Ready, status: "True",
	// reason: InUse}].
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
