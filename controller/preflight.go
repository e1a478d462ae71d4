package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/kube"
)

// patience is how long the API server may take to answer at the start.
const patience = 30 * time.Second

// preflight looks, before anything is started, whether what the controller needs is there, and says what is missing and
// where: informers would only wait. It returns whether the API server serves ServiceCIDRs.
func preflight(ctx context.Context, clientset kubernetes.Interface, options *flags, log logr.Logger) (serviceCIDRs bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := findNamespace(ctx, clientset, options.namespace, log); err != nil {
		return false, err
	}
	if err := findKinds(clientset.Discovery()); err != nil {
		return false, err
	}
	serviceCIDRs, err = serves(clientset.Discovery(), "networking.k8s.io/v1", "servicecidrs")
	if err != nil {
		return false, err
	}
	missing, err := kube.MissingRights(ctx, clientset.AuthorizationV1().SelfSubjectAccessReviews(), rights(options, serviceCIDRs))
	if err != nil {
		return false, fmt.Errorf("check rights: %w", err)
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("no right to %s: bind the roles of config/rbac/controller.yaml to this ServiceAccount", kube.List(missing))
	}
	return serviceCIDRs, nil
}

// findNamespace waits until the API server answers, and looks whether the namespace exists.
func findNamespace(ctx context.Context, clientset kubernetes.Interface, name string, log logr.Logger) error {
	said := false
	for {
		_, err := clientset.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			return nil
		case apierrors.IsNotFound(err):
			return fmt.Errorf("namespace %s does not exist (--namespace, POD_NAMESPACE)", name)
		case apierrors.IsForbidden(err):
			return fmt.Errorf("no right to read namespace %s: bind the roles of config/rbac/controller.yaml to this ServiceAccount: %w", name, err)
		case apierrors.IsUnauthorized(err):
			return fmt.Errorf("the API server does not know these credentials (--kubeconfig, or the pod's ServiceAccount): %w", err)
		case !said:
			said = true
			log.Info("waiting for the API server", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server does not answer (--kubeconfig): %w", err)
		case <-time.After(time.Second):
		}
	}
}

// findKinds looks whether Berth's kinds are installed.
func findKinds(client discovery.DiscoveryInterface) error {
	for _, resource := range []string{"ipaddresspools", "addressreservations", "l2advertisements", "speakers"} {
		served, err := serves(client, v1beta1.GroupVersion().String(), resource)
		if err != nil {
			return err
		}
		if !served {
			return fmt.Errorf("the API server does not serve %s.%s: install Berth's kinds (config/crd)", resource, v1beta1.Group)
		}
	}
	return nil
}

// serves is true if the API server serves the resource.
func serves(client discovery.DiscoveryInterface, groupVersion, resource string) (bool, error) {
	list, err := client.ServerResourcesForGroupVersion(groupVersion)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask what the API server serves of %s: %w", groupVersion, err)
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == resource {
			return true, nil
		}
	}
	return false, nil
}

// rights are what config/rbac/controller.yaml grants and this process uses.
func rights(options *flags, serviceCIDRs bool) []kube.Right {
	namespace, lease := options.namespace, options.leaseName
	needed := []kube.Right{
		{Verb: "get", Resource: "services"},
		{Verb: "patch", Resource: "services", Subresource: "status"},
		{Verb: "create", Group: "events.k8s.io", Resource: "events"},
		{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace, Name: lease},
		{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace, Name: lease},
		{Verb: "get", Resource: "secrets", Namespace: namespace, Name: kube.GossipSecret},
		{Verb: "create", Resource: "secrets", Namespace: namespace},
		{Verb: "patch", Group: v1beta1.Group, Resource: "ipaddresspools", Subresource: "status"},
		{Verb: "patch", Group: v1beta1.Group, Resource: "addressreservations", Subresource: "status"},
		{Verb: "patch", Group: v1beta1.Group, Resource: "l2advertisements", Subresource: "status"},
	}
	watched := []kube.Right{
		{Resource: "services"}, {Resource: "nodes"}, {Resource: "namespaces"},
		{Group: "discovery.k8s.io", Resource: "endpointslices"},
		{Group: v1beta1.Group, Resource: "ipaddresspools"},
		{Group: v1beta1.Group, Resource: "addressreservations"},
		{Group: v1beta1.Group, Resource: "l2advertisements"},
		{Group: v1beta1.Group, Resource: "speakers"},
	}
	if serviceCIDRs {
		watched = append(watched, kube.Right{Group: "networking.k8s.io", Resource: "servicecidrs"})
	}
	for _, right := range watched {
		for _, verb := range []string{"list", "watch"} {
			right.Verb = verb
			needed = append(needed, right)
		}
	}
	return needed
}
