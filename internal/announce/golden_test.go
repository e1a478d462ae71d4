package announce_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
)

// TestGoldens decides the clusters in testdata and compares every answer and every reason with what is written there.
// With -update it writes them.
//
// A file has the manifests as objects.yaml, what gossip says as facts.yaml, and the answers as want: for each address who
// answers and for whom, then every Service and node for which that is not so, and the condition of each Service.
func TestGoldens(t *testing.T) {
	t.Parallel()
	update := flag.Lookup("update").Value.String() == "true"
	for _, path := range goldens(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive := readArchive(t, path)
			snapshot := readSnapshot(t, archive)
			got := describe(snapshot, announce.Decide(snapshot))
			if update {
				writeWant(t, path, archive, got)
				return
			}
			if diff := cmp.Diff(section(t, archive, "want"), got); diff != "" {
				t.Errorf("%s (go test ./internal/announce -update writes it):\n%s", path, diff)
			}
		})
	}
}

// TestEveryReasonHasAGolden: each word that this package gives, and each that compile gives about nodes, occurs in one.
func TestEveryReasonHasAGolden(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, path := range goldens(t) {
		all.WriteString(section(t, readArchive(t, path), "want"))
	}
	words := wordsIn(t, ".", "../compile/node.go")
	if len(words) < 15 {
		t.Fatalf("found only %d words in the sources: %v", len(words), words)
	}
	for word := range words {
		if !regexp.MustCompile(`\b` + word + `: `).MatchString(all.String()) {
			t.Errorf("no golden in testdata shows %s with its message", word)
		}
	}
}

// wordsIn are the words of package reason that Go sources name: the files, and those of folders but for tests.
func wordsIn(t *testing.T, paths ...string) map[string]bool {
	t.Helper()
	words := map[string]bool{}
	for _, path := range paths {
		files := []string{path}
		if !strings.HasSuffix(path, ".go") {
			files, _ = filepath.Glob(filepath.Join(path, "*.go")) // the pattern is good
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				collectWords(t, file, words)
			}
		}
	}
	return words
}

// collectWords adds the words of a file: every reason.X but its functions and types.
func collectWords(t *testing.T, file string, words map[string]bool) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(tree, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if name, ok := selector.X.(*ast.Ident); ok && name.Name == "reason" && selector.Sel.Name != "New" && selector.Sel.Name != "Reason" {
				words[selector.Sel.Name] = true
			}
		}
		return true
	})
}

func goldens(t *testing.T) []string {
	t.Helper()
	paths, _ := filepath.Glob("testdata/*.txtar") // the pattern is good
	if len(paths) == 0 {
		t.Fatal("no goldens in testdata")
	}
	return paths
}

func readArchive(t *testing.T, path string) *txtar.Archive {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// section is a file of an archive.
func section(t *testing.T, archive *txtar.Archive, name string) string {
	t.Helper()
	for i := range archive.Files {
		if archive.Files[i].Name == name {
			return string(archive.Files[i].Data)
		}
	}
	t.Fatalf("the golden has no file %s", name)
	return ""
}

func writeWant(t *testing.T, path string, archive *txtar.Archive, want string) {
	t.Helper()
	for i := range archive.Files {
		if archive.Files[i].Name == "want" {
			archive.Files[i].Data = []byte(want)
		}
	}
	if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
		t.Fatal(err)
	}
}

// readSnapshot feeds a store with the manifests, and takes a picture with the facts.
func readSnapshot(t *testing.T, archive *txtar.Archive) *cluster.Snapshot {
	t.Helper()
	store := compile.NewStore(compile.Options{Default: true})
	for document := range strings.SplitSeq(section(t, archive, "objects.yaml"), "\n---\n") {
		setDocument(t, store, []byte(document))
	}
	var facts cluster.Facts
	decode(t, []byte(section(t, archive, "facts.yaml")), &facts)
	return store.Snapshot(facts, lbtest.Now())
}

func setDocument(t *testing.T, store *compile.Store, document []byte) {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		t.Fatal(err)
	}
	switch kind.Kind {
	case "Service":
		store.SetService(decode(t, document, new(corev1.Service)))
	case "EndpointSlice":
		store.SetSlice(decode(t, document, new(discoveryv1.EndpointSlice)))
	case "Node":
		store.SetNode(decode(t, document, new(corev1.Node)))
	case "ServiceCIDR":
		store.SetServiceCIDR(decode(t, document, new(networkingv1.ServiceCIDR)))
	case "IPAddressPool":
		store.SetPool(decode(t, document, new(v1beta1.IPAddressPool)))
	case "L2Advertisement":
		store.SetAdvertisement(decode(t, document, new(v1beta1.L2Advertisement)))
	default:
		t.Fatalf("no such kind in a golden: %q", kind.Kind)
	}
}

// decode reads YAML strictly: a field that does not exist is a mistake.
func decode[T any](t *testing.T, document []byte, into *T) *T {
	t.Helper()
	if err := yaml.UnmarshalStrict(document, into); err != nil {
		t.Fatalf("%v in %s", err, document)
	}
	return into
}

// describe writes all answers of a table down.
func describe(snapshot *cluster.Snapshot, table *announce.Table) string {
	var out bytes.Buffer
	for _, one := range table.Verdicts() {
		if one.Owner == "" {
			fmt.Fprintf(&out, "%s nobody: %s\n", one.Address, one.Why)
		} else {
			fmt.Fprintf(&out, "%s %s on %s for %s\n", one.Address, one.Owner, one.Link, strings.Join(serviceNames(one.Services), ", "))
		}
		for _, other := range one.Others {
			if !other.Why.Equal(one.Why) {
				fmt.Fprintf(&out, "    not for %s: %s\n", other.Service.Name, other.Why)
			}
		}
		for _, exclusion := range table.Exclusions(one.Address) {
			fmt.Fprintf(&out, "    not %s: %s\n", exclusion.Node, exclusion.Why)
		}
	}
	for _, service := range snapshot.Services {
		answered, why := table.Announced(service)
		fmt.Fprintf(&out, "Service %s announced=%v %s\n", service.Name, answered, why)
	}
	return out.String()
}
