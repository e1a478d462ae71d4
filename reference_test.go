package berth_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/berthlb/berth/internal/reason"
)

// TestReferenceIsGenerated checks that the pages made from the sources say what the sources say; -update writes them.
func TestReferenceIsGenerated(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"docs/reference/reasons.md": reasonsPage(),
		"docs/reference/api.md":     apiPage(t),
	} {
		if *update {
			if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !exists(name) || readFile(t, name) != want {
			t.Errorf("%s is not what the sources say: run go test . -run Reference -update", name)
		}
	}
}

const generated = "\n<!-- Made by go test . -run Reference -update. -->\n"

// reasonsPage lists every reason.
func reasonsPage() string {
	var page strings.Builder
	page.WriteString("# Reasons\n" + generated + `
Every word that Berth gives for what it does or does not do, in the conditions of Services, pools, reservations,
advertisements and speakers, and in events. The message beside it names the object and the rule. Good: as it should be.
Waiting: will pass by itself. Warning: somebody may have to act.

| reason | | meaning |
|---|---|---|
`)
	entries := slices.SortedFunc(slices.Values(reason.Catalogue()), func(a, b reason.Entry) int {
		return strings.Compare(string(a.Word), string(b.Word))
	})
	names := map[reason.Severity]string{reason.Normal: "good", reason.Waiting: "waiting", reason.Warning: "warning"}
	for _, entry := range entries {
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", entry.Word, names[entry.Severity], entry.Meaning)
	}
	return page.String()
}

// property is the part of an OpenAPI schema that the page of the API shows.
type property struct {
	Type        string              `json:"type"`
	Description string              `json:"description"`
	Default     any                 `json:"default"`
	Enum        []string            `json:"enum"`
	Required    []string            `json:"required"`
	Properties  map[string]property `json:"properties"`
	Items       *property           `json:"items"`
}

// apiPage lists the fields of every kind.
func apiPage(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("config/crd/berth.dev_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in config/crd (%v): run make generate", err)
	}
	var page strings.Builder
	page.WriteString("# API\n" + generated + `
The kinds of ` + "`berth.dev/v1beta1`" + `, all without a namespace, and their fields. What a field does beyond its form is in the
[rules](../rules.md).
`)
	for _, file := range files {
		writeKind(t, &page, readFile(t, filepath.ToSlash(file)))
	}
	return page.String()
}

// writeKind writes the part of a page that a CRD gives.
func writeKind(t *testing.T, page *strings.Builder, text string) {
	t.Helper()
	var crd struct {
		Spec struct {
			Names    struct{ Kind string }
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema property `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
		t.Fatal(err)
	}
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n| field | type | meaning |\n|---|---|---|\n", crd.Spec.Names.Kind, oneLine(root.Description))
	for _, group := range []string{"spec", "status"} {
		if of, has := root.Properties[group]; has {
			writeFields(page, group, &of)
		}
	}
}

// writeFields writes a row for each field below a property. Those that Kubernetes documents itself stay closed.
func writeFields(page *strings.Builder, path string, of *property) {
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		field := of.Properties[name]
		meaning := oneLine(field.Description)
		if slices.Contains(of.Required, name) {
			meaning += " Required."
		}
		if len(field.Enum) > 0 {
			meaning += " One of " + strings.Join(field.Enum, ", ") + "."
		}
		if field.Default != nil {
			meaning += fmt.Sprintf(" Default: %v.", field.Default)
		}
		fmt.Fprintf(page, "| `%s.%s` | %s | %s |\n", path, name, typeOf(&field), meaning)
		foreign := name == "conditions" || strings.HasSuffix(name, "Selectors") || name == "preference"
		switch {
		case foreign && name != "preferredNodeSelectors":
		case field.Items != nil:
			writeFields(page, path+"."+name+"[]", field.Items)
		default:
			writeFields(page, path+"."+name, &field)
		}
	}
}

// typeOf is the type of a field in words.
func typeOf(field *property) string {
	if field.Type == "array" {
		return "list of " + field.Items.Type
	}
	return field.Type
}

// oneLine is a description without what would break a table.
func oneLine(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
