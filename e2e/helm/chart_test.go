// Package helm_test shows that the chart and config/default are the same. Its module is also the helm that the lab installs
// Berth with.
package helm_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const keepPolicy = "helm.sh/resource-policy"

// objects are Kubernetes objects by kind, namespace and name.
type objects map[string]map[string]any

// TestChartIsConfig shows that the chart with its own values makes what config/default makes: the same CRDs, rights,
// Deployment and DaemonSet, to the field. Only the namespace is for the user to make, and the CRDs carry in the chart the
// mark that keeps helm from removing them (rule O2).
func TestChartIsConfig(t *testing.T) {
	t.Parallel()
	chart, config := rendered(t, "berth-system", nil), kustomized(t)
	if config["Namespace//berth-system"] == nil {
		t.Error("config/default makes no namespace")
	}
	delete(config, "Namespace//berth-system")
	for name, object := range chart {
		if !strings.HasPrefix(name, "CustomResourceDefinition/") {
			continue
		}
		annotations, _, err := unstructured.NestedStringMap(object, "metadata", "annotations")
		if err != nil || annotations[keepPolicy] != "keep" {
			t.Errorf("%s: helm would remove it with the chart: annotations %v, %v", name, annotations, err)
		}
		unstructured.RemoveNestedField(object, "metadata", "annotations", keepPolicy)
	}
	if diff := cmp.Diff(config, chart); diff != "" {
		t.Errorf("config/default (-) and the chart (+) differ:\n%s", diff)
	}
}

// TestNamespace shows that a release in another namespace has all there, and that the policy of rule O6 binds the
// speakers' ServiceAccount of that namespace.
func TestNamespace(t *testing.T) {
	t.Parallel()
	for name, object := range rendered(t, "elsewhere", nil) {
		text, err := (&unstructured.Unstructured{Object: object}).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("berth-system")) {
			t.Errorf("%s speaks of berth-system though the release is elsewhere", name)
		}
	}
}

// TestValues shows what values do, each for one field.
func TestValues(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		values map[string]any
		object string
		path   []string
		want   any
	}{
		"replicas": {
			reason: "One controller is enough for a test cluster.",
			values: map[string]any{"controller": map[string]any{"replicas": int64(1)}},
			object: "Deployment/berth-system/controller", path: []string{"spec", "replicas"}, want: float64(1),
		},
		"node selector": {
			reason: "Speakers may be kept to some nodes.",
			values: map[string]any{"speaker": map[string]any{"nodeSelector": map[string]any{"role": "edge"}}},
			object: "DaemonSet/berth-system/speaker", path: []string{"spec", "template", "spec", "nodeSelector"},
			want: map[string]any{"role": "edge"},
		},
		"pull secrets": {
			reason: "A private registry asks who is there.",
			values: map[string]any{"imagePullSecrets": []any{map[string]any{"name": "registry"}}},
			object: "DaemonSet/berth-system/speaker", path: []string{"spec", "template", "spec", "imagePullSecrets"},
			want: []any{map[string]any{"name": "registry"}},
		},
		"tolerations": {
			reason: "No toleration is a value too.",
			values: map[string]any{"speaker": map[string]any{"tolerations": []any{}}},
			object: "DaemonSet/berth-system/speaker", path: []string{"spec", "template", "spec", "tolerations"}, want: nil,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, err := unstructured.NestedFieldNoCopy(rendered(t, "berth-system", tc.values)[tc.object], tc.path...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
		})
	}
}

// TestImagesAndFlags shows the fields inside the one container of each workload.
func TestImagesAndFlags(t *testing.T) {
	t.Parallel()
	all := rendered(t, "berth-system", map[string]any{
		"image":      map[string]any{"repository": "registry.example/berth", "tag": "v9", "pullPolicy": "Never"},
		"controller": map[string]any{"extraArgs": []any{"--default=false"}},
		"speaker":    map[string]any{"extraArgs": []any{"--default=false"}},
	})
	for object, want := range map[string]map[string]any{
		"Deployment/berth-system/controller": {
			"image": "registry.example/berth/controller:v9", "imagePullPolicy": "Never", "args": []any{"--default=false"},
		},
		"DaemonSet/berth-system/speaker": {
			"image": "registry.example/berth/speaker:v9", "imagePullPolicy": "Never",
			"args": []any{"--health-socket=/run/berth/health.sock", "--default=false"},
		},
	} {
		containers, _, err := unstructured.NestedSlice(all[object], "spec", "template", "spec", "containers")
		if err != nil || len(containers) != 1 {
			t.Fatalf("%s: %d containers, %v", object, len(containers), err)
		}
		container, _ := containers[0].(map[string]any)
		for field, value := range want {
			if diff := cmp.Diff(value, container[field]); diff != "" {
				t.Errorf("%s: %s\n%s", object, field, diff)
			}
		}
	}
}

// TestWrongValuesAreRefused shows that a misspelt value is an error, not a default.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	for reason, values := range map[string]map[string]any{
		"replica is no value":       {"controller": map[string]any{"replica": int64(1)}},
		"no controller at all":      {"controller": map[string]any{"replicas": int64(0)}},
		"a policy Kubernetes lacks": {"image": map[string]any{"pullPolicy": "Sometimes"}},
	} {
		if _, err := render("berth-system", values); err == nil {
			t.Errorf("%s: the chart was rendered", reason)
		}
	}
}

func rendered(t *testing.T, namespace string, values map[string]any) objects {
	t.Helper()
	text, err := render(namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

// render answers the manifests of a release.
func render(namespace string, values map[string]any) (string, error) {
	chart, err := loader.Load("../../charts/berth")
	if err != nil {
		return "", err
	}
	release := common.ReleaseOptions{Name: "berth", Namespace: namespace, Revision: 1, IsInstall: true}
	merged, err := util.ToRenderValues(chart, values, release, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, merged)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			all.WriteString("\n---\n" + files[name])
		}
	}
	return all.String(), nil
}

// kustomized answers what kubectl apply -k config/default applies.
func kustomized(t *testing.T) objects {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/default")
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func parse(t *testing.T, text string) objects {
	t.Helper()
	all := objects{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) == 0 {
			continue
		}
		name := object.GetKind() + "/" + object.GetNamespace() + "/" + object.GetName()
		if all[name] != nil {
			t.Errorf("%s is made twice", name)
		}
		all[name] = object.Object
	}
}
