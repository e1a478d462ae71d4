package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/controller/internal/announced"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/reason"
)

// announcedWriter reads the condition berth.dev/Announced from the cache and writes it to the API server.
type announcedWriter struct {
	reader client.Reader
	writer *kube.ServiceWriter
	events *kube.Recorder
}

// Recorded is the condition that the Service has now; false if it has none, or there is no such Service.
func (w *announcedWriter) Recorded(name cluster.Name) (announced.Condition, bool) {
	object := &corev1.Service{}
	if err := w.reader.Get(context.Background(), types.NamespacedName(name), object); err != nil {
		return announced.Condition{}, false // the cache knows no other error than that there is none
	}
	stored := meta.FindStatusCondition(object.Status.Conditions, v1beta1.ConditionAnnounced)
	if stored == nil {
		return announced.Condition{}, false
	}
	return announced.Condition{
		Service: name, UID: string(object.UID), True: stored.Status == metav1.ConditionTrue,
		Why: &reason.Reason{Word: reason.Word(stored.Reason), Message: stored.Message},
	}, true
}

// WriteAnnounced writes the condition, and an event where it changes.
func (w *announcedWriter) WriteAnnounced(ctx context.Context, condition announced.Condition) error {
	object := &corev1.Service{}
	if err := w.reader.Get(ctx, types.NamespacedName(condition.Service), object); err != nil {
		return client.IgnoreNotFound(err) //nolint:wrapcheck // the cache knows no other error
	}
	if string(object.UID) != condition.UID {
		return nil // made anew: it is decided about again when it is seen
	}
	result := w.writer.SetAnnounced(ctx, object, kube.Condition{True: condition.True, Reason: *condition.Why})
	switch result.Outcome {
	case kube.Unchanged:
		return nil
	case kube.Written:
		w.events.Event(corev1.ObjectReference{
			APIVersion: "v1", Kind: "Service", Namespace: object.Namespace, Name: object.Name, UID: object.UID,
		}, "Announce", *condition.Why)
		return nil
	default:
		return fmt.Errorf("write condition Announced of Service %s: %w", condition.Service, result.Err)
	}
}
