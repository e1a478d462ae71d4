package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestFlagsSayWhatIsMissing: every refusal names the setting to mend.
func TestFlagsSayWhatIsMissing(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	for name, c := range map[string]struct {
		args []string
		want string // in the error; "" if there is none
	}{
		"no namespace":      {nil, "--namespace"},
		"no lease":          {[]string{"--namespace=berth-system", "--lease-name="}, "--lease-name"},
		"nobody is served":  {[]string{"--namespace=berth-system", "--load-balancer-class=", "--default=false"}, "--load-balancer-class"},
		"an unknown flag":   {[]string{"--nonsense"}, "--nonsense"},
		"version is enough": {[]string{"--version"}, ""},
		"all is well":       {[]string{"--namespace=berth-system"}, ""},
	} {
		_, err := parseFlags(c.args)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want one that names %q", name, err, c.want)
		}
	}
	t.Setenv("POD_NAMESPACE", "elsewhere")
	if options, err := parseFlags(nil); err != nil || options.namespace != "elsewhere" {
		t.Errorf("the namespace of the environment: %+v, %v", options, err)
	}
}

// TestPortInUse: the refusal names the port and the setting.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = newHealth(t.Context(), taken.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "--listen") || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("error %v", err)
	}
}

// TestHealth: alive at once, ready once the caches are synced.
func TestHealth(t *testing.T) {
	t.Parallel()
	health, err := newHealth(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- health.serve(ctx) }()
	status := func(path string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health.listener.Addr().String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	if alive, ready := status("/healthz"), status("/readyz"); alive != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("before the caches are synced: healthz %d, readyz %d", alive, ready)
	}
	health.synced.Store(true)
	if ready, metrics := status("/readyz"), status("/metrics"); ready != http.StatusOK || metrics != http.StatusOK {
		t.Errorf("after: readyz %d, metrics %d", ready, metrics)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// complete is an API server with everything in place.
func complete() *fake.Clientset {
	clientset := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "berth-system"}})
	discovery, _ := clientset.Discovery().(*fakediscovery.FakeDiscovery)
	discovery.Resources = []*metav1.APIResourceList{
		{GroupVersion: "berth.dev/v1beta1", APIResources: []metav1.APIResource{{Name: "ipaddresspools"}, {Name: "addressreservations"}, {Name: "l2advertisements"}, {Name: "speakers"}}},
		{GroupVersion: "networking.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "servicecidrs"}}},
	}
	allow(clientset, func(*authorizationv1.ResourceAttributes) bool { return true })
	return clientset
}

// allow answers questions about rights.
func allow(clientset *fake.Clientset, allowed func(*authorizationv1.ResourceAttributes) bool) {
	clientset.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, _ := action.(clienttesting.CreateAction)
		review, _ := create.GetObject().(*authorizationv1.SelfSubjectAccessReview)
		answered := review.DeepCopy()
		answered.Status.Allowed = allowed(review.Spec.ResourceAttributes)
		return true, answered, nil
	})
}

// failing makes reading namespaces fail.
func failing(clientset *fake.Clientset, err error) {
	clientset.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// TestPreflightSaysWhatIsMissing: whatever is not there, the process says what, and what to do, instead of waiting.
func TestPreflightSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	namespaces := schema.GroupResource{Resource: "namespaces"}
	for name, c := range map[string]struct {
		edit  func(*fake.Clientset, *flags)
		want  string // in the error; "" if there is none
		cidrs bool
	}{
		"all is there": {func(*fake.Clientset, *flags) {}, "", true},
		"an API server without ServiceCIDRs": {func(c *fake.Clientset, _ *flags) {
			discovery, _ := c.Discovery().(*fakediscovery.FakeDiscovery)
			discovery.Resources = discovery.Resources[:1]
		}, "", false},
		"no such namespace": {func(_ *fake.Clientset, f *flags) { f.namespace = "nowhere" }, "namespace nowhere does not exist (--namespace", false},
		"no right to read the namespace": {func(c *fake.Clientset, _ *flags) {
			failing(c, apierrors.NewForbidden(namespaces, "berth-system", nil))
		}, "config/rbac/controller.yaml", false},
		"credentials nobody knows": {func(c *fake.Clientset, _ *flags) {
			failing(c, apierrors.NewUnauthorized("who?"))
		}, "--kubeconfig", false},
		"no answer": {func(c *fake.Clientset, _ *flags) {
			failing(c, apierrors.NewInternalError(context.DeadlineExceeded))
		}, "does not answer (--kubeconfig)", false},
		"kinds not installed": {func(c *fake.Clientset, _ *flags) {
			discovery, _ := c.Discovery().(*fakediscovery.FakeDiscovery)
			discovery.Resources[0].APIResources = discovery.Resources[0].APIResources[:1]
		}, "addressreservations.berth.dev: install Berth's kinds (config/crd)", true},
		"no right to write statuses": {func(c *fake.Clientset, _ *flags) {
			allow(c, func(a *authorizationv1.ResourceAttributes) bool { return a.Subresource != "status" })
		}, "no right to patch services/status; patch ipaddresspools.berth.dev/status; patch addressreservations.berth.dev/status; patch l2advertisements.berth.dev/status", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			clientset, options := complete(), &flags{namespace: "berth-system", leaseName: "berth-controller"}
			c.edit(clientset, options)
			begun := time.Now()
			cidrs, err := preflight(t.Context(), clientset, options, logr.Discard())
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) || (err == nil && cidrs != c.cidrs) {
				t.Errorf("%s: %v, %v; want ServiceCIDRs %v and an error with %q", name, cidrs, err, c.cidrs, c.want)
			}
			if took := time.Since(begun); took > patience {
				t.Errorf("%s: took %s", name, took)
			}
		})
	}
}
