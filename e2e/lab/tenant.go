package lab

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// AddNamespace makes a namespace and waits until Pods can be made in it.
func (l *Lab) AddNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := l.api.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return poll(ctx, askEvery, startLimit, func(ctx context.Context) error {
		_, err := l.api.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// sceneKinds are the cluster-scoped kinds that a scene makes objects of.
func sceneKinds() []schema.GroupVersionResource {
	var kinds []schema.GroupVersionResource
	for _, resource := range []string{"ipaddresspools", "addressreservations", "l2advertisements"} {
		kinds = append(kinds, schema.GroupVersionResource{Group: "berth.dev", Version: "v1beta1", Resource: resource})
	}
	return kinds
}

// RemoveScene removes a scene's namespace, others whose names begin with it, and those of Berth's cluster-scoped objects
// whose names do. It does not wait until the namespaces' contents are gone.
func (l *Lab) RemoveScene(ctx context.Context, namespace string) error {
	config, err := l.Config("admin", l.Control())
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	namespaces, err := l.namespacesOf(ctx, namespace)
	if err != nil {
		return err
	}
	for _, name := range namespaces {
		if err := l.removeServices(ctx, name); err != nil {
			return err
		}
	}
	for _, kind := range sceneKinds() {
		if err := removeNamed(ctx, client.Resource(kind), namespace); err != nil {
			return fmt.Errorf("remove %s of scene %s: %w", kind.Resource, namespace, err)
		}
	}
	now := int64(0)
	for _, name := range namespaces {
		err := l.api.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove namespace %s: %w", name, err)
		}
	}
	return nil
}

// namespacesOf are a scene's namespace and those that the scene made.
func (l *Lab) namespacesOf(ctx context.Context, scene string) ([]string, error) {
	list, err := l.api.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the namespaces of scene %s: %w", scene, err)
	}
	var names []string
	for i := range list.Items {
		if name := list.Items[i].Name; ofScene(name, scene) {
			names = append(names, name)
		}
	}
	return names, nil
}

// ofScene is true for the name of something that a scene made: its namespace's, or one that begins with it.
func ofScene(name, scene string) bool { return name == scene || strings.HasPrefix(name, scene+"-") }

// removeNamed removes the objects that are named after a scene's namespace. A kind that does not exist has none.
func removeNamed(ctx context.Context, objects dynamic.ResourceInterface, namespace string) error {
	list, err := objects.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, object := range list.Items {
		name := object.GetName()
		if !ofScene(name, namespace) {
			continue
		}
		if err := objects.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// removeServices removes a namespace's Services at once: the namespace's own end would leave them, and what answers
// for their addresses, for many seconds.
func (l *Lab) removeServices(ctx context.Context, namespace string) error {
	services := l.api.CoreV1().Services(namespace)
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the Services of %s: %w", namespace, err)
	}
	for i := range list.Items {
		if err := services.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove Service %s/%s: %w", namespace, list.Items[i].Name, err)
		}
	}
	return nil
}
