package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressReservation keeps addresses for one Service, whether it exists or not: no other is given them, and that Service
// is given no others of their family while it may have them (rule A9). A Service that holds one already keeps it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=reservation,categories=berth
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.service.namespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AddressReservation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is reserved, and for whom.
	// +required
	Spec AddressReservationSpec `json:"spec"`
	// status is what Berth reports about the reservation.
	// +optional
	Status AddressReservationStatus `json:"status,omitempty"`
}

// AddressReservationList is a list of reservations.
//
// +kubebuilder:object:root=true
type AddressReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AddressReservation `json:"items"`
}

// AddressReservationSpec is what is reserved, and for whom.
type AddressReservationSpec struct {
	// addresses are what is reserved: CIDRs, ranges FIRST-LAST and single addresses. A pool must contain them too: they are
	// given from there. Where two reservations overlap, the older one counts.
	// Example: ["192.0.2.53", "2001:db8::53"].
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	Addresses []AddressText `json:"addresses"`

	// service is the one that may have them. Example: {namespace: infra, name: dns}.
	// +required
	Service ServiceReference `json:"service"`
}

// ServiceReference names a Service. It need not exist.
type ServiceReference struct {
	// namespace of the Service. Example: "infra".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name of the Service. Example: "dns".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// AddressReservationStatus is what Berth reports about a reservation.
type AddressReservationStatus struct {
	// conditions: Ready tells whether the reservation is used as written, and why not. Example: [{type: Ready, status:
	// "True", reason: InUse}].
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
