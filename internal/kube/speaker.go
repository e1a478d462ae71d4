package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
)

// errNoNode is what a speaker sees whose Node is gone: there is nothing its object could belong to.
var errNoNode = errors.New("the Node does not exist")

// SpeakerWriter writes the Speaker object of one node.
type SpeakerWriter struct {
	Client client.Client
	Node   string
}

// WriteSpeaker writes the status, and makes the object first where it does not exist or belongs to a Node that has been
// made anew since.
func (w *SpeakerWriter) WriteSpeaker(ctx context.Context, status v1beta1.SpeakerStatus) error {
	speaker, err := w.ensure(ctx)
	if err != nil {
		return err
	}
	speaker.Status = status
	if err := w.Client.Status().Update(ctx, speaker); err != nil {
		return fmt.Errorf("write status of Speaker %s: %w", w.Node, err)
	}
	return nil
}

// ensure reads the object, or makes it, owned by the Node: it goes when the Node goes.
func (w *SpeakerWriter) ensure(ctx context.Context) (*v1beta1.Speaker, error) {
	owner, err := w.owner(ctx)
	if err != nil {
		return nil, err
	}
	speaker := &v1beta1.Speaker{}
	err = w.Client.Get(ctx, types.NamespacedName{Name: w.Node}, speaker)
	switch {
	case apierrors.IsNotFound(err):
		speaker = &v1beta1.Speaker{ObjectMeta: metav1.ObjectMeta{Name: w.Node, OwnerReferences: owner}}
		if err := w.Client.Create(ctx, speaker); err != nil {
			return nil, fmt.Errorf("create Speaker %s: %w", w.Node, err)
		}
	case err != nil:
		return nil, fmt.Errorf("read Speaker %s: %w", w.Node, err)
	case len(speaker.OwnerReferences) != 1 || speaker.OwnerReferences[0].UID != owner[0].UID:
		speaker.OwnerReferences = owner
		if err := w.Client.Update(ctx, speaker); err != nil {
			return nil, fmt.Errorf("give Speaker %s to its Node: %w", w.Node, err)
		}
	}
	return speaker, nil
}

// owner is the reference to the Node.
func (w *SpeakerWriter) owner(ctx context.Context) ([]metav1.OwnerReference, error) {
	node := &corev1.Node{}
	err := w.Client.Get(ctx, types.NamespacedName{Name: w.Node}, node)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("write Speaker %s: %w", w.Node, errNoNode)
	}
	if err != nil {
		return nil, fmt.Errorf("read Node %s: %w", w.Node, err)
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}, nil
}
