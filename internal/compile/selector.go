package compile

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// selectors compiles a field's label selectors. The first that cannot be read is the problem, by field and index.
func selectors(field string, list []metav1.LabelSelector) ([]cluster.Selector, *reason.Reason) {
	compiled := make([]cluster.Selector, 0, len(list))
	for i := range list {
		one, err := selector(&list[i])
		if err != nil {
			return nil, reason.New(reason.InvalidSelector, "spec.%s[%d]: %v", field, i, err)
		}
		compiled = append(compiled, one)
	}
	return compiled, nil
}

// selector compiles one label selector, with the API's own rules about what can be read.
func selector(text *metav1.LabelSelector) (cluster.Selector, error) {
	parsed, err := metav1.LabelSelectorAsSelector(text)
	if err != nil {
		return nil, fmt.Errorf("read label selector: %w", err)
	}
	requirements, _ := parsed.Requirements()
	compiled := make(cluster.Selector, 0, len(requirements))
	for _, requirement := range requirements {
		compiled = append(compiled, compileRequirement(requirement))
	}
	return compiled, nil
}

// compileRequirement translates one requirement. LabelSelectorAsSelector makes no operators but these four.
func compileRequirement(requirement labels.Requirement) cluster.Requirement {
	operator := cluster.DoesNotExist
	switch requirement.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		operator = cluster.In
	case selection.NotIn, selection.NotEquals:
		operator = cluster.NotIn
	case selection.Exists:
		operator = cluster.Exists
	}
	return cluster.Requirement{Key: requirement.Key(), Operator: operator, Values: requirement.ValuesUnsorted()}
}

// canonicalSelector is a pod selector as text that is equal for equal selectors.
func canonicalSelector(selector map[string]string) string {
	pairs := make([]string, 0, len(selector))
	for key, value := range selector {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}
