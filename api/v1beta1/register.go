package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of every kind of Berth.
const Group = "berth.dev"

// GroupVersion is the group and version of this package's kinds.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1beta1"}
}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(),
		&IPAddressPool{}, &IPAddressPoolList{},
		&AddressReservation{}, &AddressReservationList{},
		&L2Advertisement{}, &L2AdvertisementList{},
		&Speaker{}, &SpeakerList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
