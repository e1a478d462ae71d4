package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/berthlb/berth/api/v1beta1"
)

// NewScheme is a scheme with the kinds of Kubernetes and of Berth.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register Kubernetes' kinds: %w", err)
	}
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register Berth's kinds: %w", err)
	}
	return scheme, nil
}
