package cluster

import "slices"

// Operator relates a label to the values of a Requirement.
type Operator uint8

// The operators of Kubernetes label selectors
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#resources-that-support-set-based-requirements).
const (
	In Operator = iota
	NotIn
	Exists
	DoesNotExist
)

// Requirement is one condition on one label.
type Requirement struct {
	Key      string
	Operator Operator
	Values   []string
}

// matches is true if labels meet the requirement. As in Kubernetes, NotIn holds for a label that is absent.
func (r Requirement) matches(labels map[string]string) bool {
	value, has := labels[r.Key]
	switch r.Operator {
	case In:
		return has && slices.Contains(r.Values, value)
	case NotIn:
		return !has || !slices.Contains(r.Values, value)
	case Exists:
		return has
	default:
		return !has
	}
}

// Selector selects objects by label: all its requirements must hold. One without requirements selects everything.
type Selector []Requirement

// Matches is true if the selector selects an object with these labels.
func (s Selector) Matches(labels map[string]string) bool {
	for _, requirement := range s {
		if !requirement.matches(labels) {
			return false
		}
	}
	return true
}

// AnyMatches is true if one of the selectors matches. An empty list matches nothing: what the absence of selectors
// means is for the caller to say.
func AnyMatches(selectors []Selector, labels map[string]string) bool {
	for _, selector := range selectors {
		if selector.Matches(labels) {
			return true
		}
	}
	return false
}
