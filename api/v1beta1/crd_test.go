package v1beta1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// schema is the part of an OpenAPI schema these tests look at.
type schema struct {
	Type        string            `json:"type"`
	Format      string            `json:"format"`
	Pattern     string            `json:"pattern"`
	MaxLength   int               `json:"maxLength"`
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
	Validations []struct {
		Rule              string `json:"rule"`
		MessageExpression string `json:"messageExpression"`
	} `json:"x-kubernetes-validations"`
}

// walk calls visit for a schema and everything below it, with the path of its field.
func (s *schema) walk(path string, visit func(path string, field *schema)) {
	visit(path, s)
	if s.Items != nil {
		s.Items.walk(path+"[]", visit)
	}
	for name, property := range s.Properties {
		property.walk(path+"."+name, visit)
	}
}

// crds are the schemas of the generated CRDs, by kind.
func crds(t *testing.T) map[string]*schema {
	t.Helper()
	files, err := filepath.Glob("../../config/crd/berth.dev_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in config/crd (%v): run make generate", err)
	}
	found := map[string]*schema{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema schema `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[crd.Spec.Names.Kind] = &crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return found
}

// TestEveryRuleIsTriedOnTheAPIServer: a rule of form counts only if the API server has been seen refusing by it. The
// scene api-rules holds, for each, an object that is refused and the message it is refused with.
func TestEveryRuleIsTriedOnTheAPIServer(t *testing.T) {
	t.Parallel()
	scene, err := os.ReadFile("../../e2e/testdata/api-rules.txtar")
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`' ([a-z][^']{10,})`) // the constant part of a message
	rules := 0
	for kind, root := range crds(t) {
		root.walk(kind, func(path string, field *schema) {
			for _, validation := range field.Validations {
				rules++
				words := literal.FindStringSubmatch(validation.MessageExpression)
				if words == nil {
					words = regexp.MustCompile(`(is not a CIDR)`).FindStringSubmatch(validation.MessageExpression)
				}
				if words == nil {
					t.Errorf("%s: the message of rule %q quotes nothing a person could act on", path, validation.Rule)
					continue
				}
				if first, _, _ := strings.Cut(words[1], "("); !strings.Contains(string(scene), strings.TrimSpace(first)) {
					t.Errorf("%s: no object in the scene api-rules is refused with %q", path, words[1])
				}
			}
		})
	}
	if rules == 0 {
		t.Error("the CRDs have no rules of form: this test looks in the wrong place")
	}
}

// TestEveryFieldHasAnExample: a field's documentation shows what to write. Kubernetes' own fields are documented there.
func TestEveryFieldHasAnExample(t *testing.T) {
	t.Parallel()
	foreign := regexp.MustCompile(`(Selectors?(\[\])?|preference|conditions\[\])\.|\.metadata|\.apiVersion|\.kind`)
	for kind, root := range crds(t) {
		root.walk(kind, func(path string, field *schema) {
			name := path[strings.LastIndex(path, ".")+1:]
			group := field.Properties != nil && (name == "spec" || name == "status")
			if path == kind || group || strings.HasSuffix(path, "[]") || foreign.MatchString(path) {
				return
			}
			if !strings.Contains(field.Description, "Example:") {
				t.Errorf("%s: the documentation has no example", path)
			}
		})
	}
}

// TestNoFieldIsReadMoreStrictlyThanItsSchema: format: duration lets "3 days" pass, which the typed decoder then refuses,
// for every object in a list at once.
func TestNoFieldIsReadMoreStrictlyThanItsSchema(t *testing.T) {
	t.Parallel()
	for kind, root := range crds(t) {
		root.walk(kind, func(path string, field *schema) {
			if field.Format == "duration" {
				t.Errorf("%s: format duration admits what the typed decoder refuses", path)
			}
		})
	}
}

// TestEveryDurationIsRead: what the pattern of a duration admits the typed decoder takes, since one object that it does not
// take would keep every list of them from being read.
func TestEveryDurationIsRead(t *testing.T) {
	t.Parallel()
	durations := 0
	for kind, root := range crds(t) {
		root.walk(kind, func(path string, field *schema) {
			if !strings.Contains(field.Pattern, "ms|s") {
				return
			}
			durations++
			texts := rapid.StringMatching(field.Pattern).Filter(func(text string) bool { return len(text) <= field.MaxLength })
			rapid.Check(t, func(t *rapid.T) {
				text := texts.Draw(t, "duration")
				var read metav1.Duration
				if err := yaml.Unmarshal([]byte(`"`+text+`"`), &read); err != nil {
					t.Fatalf("%s: %v", path, err)
				}
			})
		})
	}
	if durations == 0 {
		t.Error("the CRDs have no duration: this test looks in the wrong place")
	}
}
