package kube

import (
	"context"
	"fmt"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Right is a right that a process needs.
type Right struct {
	Verb, Group, Resource, Subresource string
	Namespace                          string // "" for all
	Name                               string // "" for all
}

// String is the right in words: get secrets berth-gossip in namespace berth-system.
func (r Right) String() string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	text := r.Verb + " " + resource
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// MissingRights are those that the process does not have. Without one of them an informer would wait for ever and say so
// only in its log; so it is asked for at the start (each user may ask about itself).
func MissingRights(ctx context.Context, reviews typedauthorizationv1.SelfSubjectAccessReviewInterface, needed []Right) ([]Right, error) {
	granted := make([]bool, len(needed))
	errs := make([]error, len(needed))
	var asking sync.WaitGroup
	for i, right := range needed {
		asking.Go(func() { granted[i], errs[i] = ask(ctx, reviews, right) })
	}
	asking.Wait()
	var missing []Right
	for i, right := range needed {
		if errs[i] != nil {
			return nil, fmt.Errorf("ask for the right to %s: %w", right, errs[i])
		}
		if !granted[i] {
			missing = append(missing, right)
		}
	}
	return missing, nil
}

// ask is true if the process has the right.
func ask(ctx context.Context, reviews typedauthorizationv1.SelfSubjectAccessReviewInterface, right Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: right.Verb, Group: right.Group, Resource: right.Resource, Subresource: right.Subresource,
			Namespace: right.Namespace, Name: right.Name,
		},
	}}
	answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err //nolint:wrapcheck // the caller says what was asked
	}
	return answer.Status.Allowed, nil
}

// List is the rights as words for a sentence.
func List(rights []Right) string {
	words := make([]string, len(rights))
	for i, right := range rights {
		words[i] = right.String()
	}
	return strings.Join(words, "; ")
}
