package kube

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// The Secret with which the speakers encrypt their gossip. Speakers read every key of it; the controller makes it with
// one.
const (
	GossipSecret = "berth-gossip"
	gossipKey    = "key"
	gossipBytes  = 32 // AES-256
)

// EnsureGossipSecret makes the Secret if it does not exist, and is true if it did. One that exists is never changed,
// whatever is in it: a changed key would part the speakers that have it from those that do not (rule E4, fault F121).
func EnsureGossipSecret(ctx context.Context, secrets typedcorev1.SecretInterface) (made bool, err error) {
	_, err = secrets.Get(ctx, GossipSecret, metav1.GetOptions{})
	if err == nil {
		return false, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read Secret %s: %w", GossipSecret, err)
	}
	bytes := make([]byte, gossipBytes)
	if _, err := rand.Read(bytes); err != nil {
		return false, fmt.Errorf("make a gossip key: %w", err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: GossipSecret, Labels: map[string]string{"app.kubernetes.io/part-of": "berth"}},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{gossipKey: bytes},
	}
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("create Secret %s: %w", GossipSecret, err)
	}
	return err == nil, nil
}
