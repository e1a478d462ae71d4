package kube_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/reason"
)

func TestF121GossipSecretIsMadeOnceAndNeverChanged(t *testing.T) {
	t.Parallel()
	secrets := fake.NewClientset().CoreV1().Secrets("berth-system")
	made, err := kube.EnsureGossipSecret(t.Context(), secrets)
	if err != nil || !made {
		t.Fatalf("made %v, %v", made, err)
	}
	first, err := secrets.Get(t.Context(), kube.GossipSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Data["key"]) != 32 {
		t.Fatalf("the key has %d bytes", len(first.Data["key"]))
	}
	for range 2 {
		if made, err := kube.EnsureGossipSecret(t.Context(), secrets); err != nil || made {
			t.Fatalf("made again: %v, %v", made, err)
		}
	}
	again, err := secrets.Get(t.Context(), kube.GossipSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the Secret has changed:\n%s", diff)
	}
}

func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	clientset := fake.NewClientset()
	clientset.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, _ := action.(clienttesting.CreateAction)
		review, _ := create.GetObject().(*authorizationv1.SelfSubjectAccessReview)
		answered := review.DeepCopy()
		answered.Status.Allowed = review.Spec.ResourceAttributes.Verb != "watch"
		return true, answered, nil
	})
	missing, err := kube.MissingRights(t.Context(), clientset.AuthorizationV1().SelfSubjectAccessReviews(), []kube.Right{
		{Verb: "list", Resource: "services"},
		{Verb: "watch", Resource: "services"},
		{Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: "berth-system", Name: "berth-controller"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "watch services; watch leases.coordination.k8s.io berth-controller in namespace berth-system"
	if got := kube.List(missing); got != want {
		t.Errorf("missing: %q, want %q", got, want)
	}
}

// TestEventsSayTwiceWhatDiffers: two events with one reason and different texts are two events.
func TestEventsSayTwiceWhatDiffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset()
		var written []string
		clientset.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
			create, _ := action.(clienttesting.CreateAction)
			event, _ := create.GetObject().(*eventsv1.Event)
			written = append(written, strings.Join([]string{event.Namespace, event.Regarding.Name, event.Type, event.Reason, event.Note}, " "))
			return true, event, nil
		})
		recorder := kube.NewRecorder(clientset.EventsV1(), "host_1", logr.Discard(), func() { t.Error("an event is dropped") })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = recorder.Start(ctx) }()
		web := corev1.ObjectReference{Kind: "Service", Namespace: "shop", Name: "web"}
		for _, said := range []reason.Reason{
			{Word: reason.Allocated, Message: "assigned 192.0.2.10 from pool public"},
			{Word: reason.Allocated, Message: "assigned 192.0.2.11 from pool public"},
			{Word: reason.PoolFull, Message: strings.Repeat("x", 2000)},
		} {
			recorder.Event(web, "Allocate", said)
			synctest.Wait()
		}
		recorder.Event(corev1.ObjectReference{Kind: "IPAddressPool", Name: "public"}, "Check", reason.Reason{Word: reason.Overlaps, Message: "b"})
		stop()
		<-ended
		want := []string{
			"shop web Normal Allocated assigned 192.0.2.10 from pool public",
			"shop web Normal Allocated assigned 192.0.2.11 from pool public",
			"shop web Warning PoolFull " + strings.Repeat("x", 1021) + "...",
			"default public Warning Overlaps b",
		}
		if diff := cmp.Diff(want, written); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}
	})
}

// TestEventOnceIsRecordedOnce: the same said of the same object has the same name, so that the API server refuses the
// second one, and that is no loss.
func TestEventOnceIsRecordedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset()
		web := corev1.ObjectReference{Kind: "Service", Namespace: "shop", Name: "web", UID: "1"}
		for range 2 { // a controller and the next one
			recorder := kube.NewRecorder(clientset.EventsV1(), "host_1", logr.Discard(), func() { t.Error("an event is dropped") })
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = recorder.Start(ctx) }()
			recorder.EventOnce(web, "Read", reason.Reason{Word: reason.UnknownAnnotation, Message: "a"})
			recorder.EventOnce(web, "Read", reason.Reason{Word: reason.UnknownAnnotation, Message: "b"})
			synctest.Wait()
			stop()
			<-ended
		}
		list, err := clientset.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			t.Errorf("%d events, %v; want one for each of two texts", len(list.Items), err)
		}
	})
}
