package compile_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
)

// TestSelectorsMatchAsKubernetesSays: a compiled selector selects what Kubernetes' own reading of it selects. The twin is
// apimachinery's.
func TestSelectorsMatchAsKubernetesSays(t *testing.T) {
	t.Parallel()
	words := rapid.SampledFrom([]string{"a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		selector := metav1.LabelSelector{MatchLabels: rapid.MapOfN(words, words, 0, 1).Draw(t, "matchLabels")}
		for range rapid.IntRange(0, 2).Draw(t, "expressions") {
			one := metav1.LabelSelectorRequirement{Key: words.Draw(t, "key"), Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
				metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
			}).Draw(t, "operator")}
			if one.Operator == metav1.LabelSelectorOpIn || one.Operator == metav1.LabelSelectorOpNotIn {
				one.Values = rapid.SliceOfN(words, 1, 2).Draw(t, "values")
			}
			selector.MatchExpressions = append(selector.MatchExpressions, one)
		}
		twin, err := metav1.LabelSelectorAsSelector(&selector)
		if err != nil {
			t.Fatal(err)
		}
		object := lbtest.AdvertisementObject("edge", func(spec *v1beta1.L2AdvertisementSpec) {
			spec.NodeSelectors = []metav1.LabelSelector{selector}
		})
		advertisement, problem := compile.Advertisement(object)
		if problem != nil {
			t.Fatal(problem)
		}
		node := rapid.MapOfN(words, words, 0, 3).Draw(t, "labels of a node")
		if got, want := advertisement.MatchesNode(node), twin.Matches(labels.Set(node)); got != want {
			t.Fatalf("%v on %v: %v", metav1.FormatLabelSelector(&selector), node, got)
		}
	})
}
