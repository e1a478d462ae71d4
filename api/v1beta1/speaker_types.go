package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Speaker is what the speaker of one node says about itself, for people and for the controller. It is named after its
// node and owned by it. Nothing that elects an owner reads it: that travels in gossip (rule E8).
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.membersSeen`
// +kubebuilder:printcolumn:name="Answers for",type=integer,JSONPath=`.status.l2AddressCount`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Speaker struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what the speaker reports.
	// +optional
	Status SpeakerStatus `json:"status,omitempty"`
}

// SpeakerList is a list of speakers.
//
// +kubebuilder:object:root=true
type SpeakerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Speaker `json:"items"`
}

// SpeakerStatus is what a speaker reports: changes of state within a second, the rest at most every 30 seconds.
type SpeakerStatus struct {
	// conditions: Ready tells whether the speaker can announce, and what keeps it from it. Example: [{type: Ready,
	// status: "False", reason: NoNetRaw}].
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// version of the speaker. Example: "v0.1.0".
	// +optional
	Version string `json:"version,omitempty"`

	// bootID of the node as the kernel tells it: a new one after each boot. Example:
	// "3c8f2d5e-9d6b-4d4a-8b68-2f2f4f4b8f9e".
	// +optional
	BootID string `json:"bootID,omitempty"`

	// gossipAddress is where the other speakers reach this one. Example: "192.0.2.11:7948".
	// +optional
	GossipAddress string `json:"gossipAddress,omitempty"`

	// membersSeen is how many speakers this one sees alive, itself included. Example: 3.
	// +optional
	MembersSeen int32 `json:"membersSeen"`

	// members are the names of those speakers' nodes, in order. Example: ["n1", "n2", "n3"].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Members []string `json:"members,omitempty"`

	// stale is true while the speaker has not heard from the API server for 30 seconds. Example: false.
	// +optional
	Stale bool `json:"stale,omitempty"`

	// proxyReady tells whether kube-proxy has served on this node since it booted (rule P21). Example: true.
	// +optional
	ProxyReady bool `json:"proxyReady,omitempty"`

	// settled is false while the node is held back by failbackDelay, since it has come back to others that were there
	// before (rule E8). Example: true.
	// +optional
	Settled bool `json:"settled,omitempty"`

	// outlived is the longest failbackDelay in use that a node which is not settled has been back for. Example: "5m0s".
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(\.[0-9]{1,9})?(ms|s|m|h)){1,4}$`
	// +kubebuilder:validation:MaxLength=32
	Outlived *metav1.Duration `json:"outlived,omitempty"`

	// electionVersions are the versions of the owner election this speaker can compute (rule E11). Example: [1].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ElectionVersions []int32 `json:"electionVersions,omitempty"`

	// links are the node's links that can carry announcements. Example: [{name: eth0, mac: "02:00:5e:00:53:01",
	// subnets: ["192.0.2.0/24"]}].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Links []SpeakerLink `json:"links,omitempty"`

	// gateways are the next hops of the node's default routes, in order; link-local ones are left out. No Service is
	// given such an address. Example: ["192.0.2.1"].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Gateways []string `json:"gateways,omitempty"`

	// l2Addresses are the first 250 addresses this node answers for, in order. Example: ["192.0.2.10"].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=250
	L2Addresses []string `json:"l2Addresses,omitempty"`

	// l2AddressCount is how many addresses this node answers for. Example: 1.
	// +optional
	L2AddressCount int32 `json:"l2AddressCount"`
}

// SpeakerLink is a link of a node that can carry announcements.
type SpeakerLink struct {
	// name of the link. Example: "eth0".
	// +required
	Name string `json:"name"`
	// mac is the hardware address of the link. Example: "02:00:5e:00:53:01".
	// +required
	MAC string `json:"mac"`
	// subnets are the prefixes of the link's addresses. Example: ["192.0.2.0/24"].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Subnets []string `json:"subnets,omitempty"`
	// linkLocal is the IPv6 address of the link that neighbour discovery is answered from. Without one no IPv6 address is
	// announced there. Example: "fe80::5eff:fe00:5301".
	// +optional
	// +kubebuilder:validation:MaxLength=39
	LinkLocal string `json:"linkLocal,omitempty"`
}
