// Package v1beta1 holds the objects people and Berth write: data, rules of form (CEL) and nothing that acts. What the
// objects mean is decided in internal/compile and the packages it feeds.
//
// +kubebuilder:object:generate=true
// +groupName=berth.dev
package v1beta1
