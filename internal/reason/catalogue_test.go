package reason_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/internal/reason"
)

// pending are the words that no code gives yet, because it is still being written. A word that is given must not be here.
func pending() []string {
	return nil
}

// TestEveryConstantIsInTheCatalogue reads the sources: a constant that is not in the catalogue has no severity and no
// place in the reference, and an entry without a constant is given by nobody.
func TestEveryConstantIsInTheCatalogue(t *testing.T) {
	t.Parallel()
	var entries []string
	for _, entry := range reason.Catalogue() {
		entries = append(entries, string(entry.Word))
	}
	constants := constants(t)
	slices.Sort(entries)
	if diff := cmp.Diff(slices.Sorted(maps.Values(constants)), entries); diff != "" {
		t.Errorf("constants and catalogue differ: %s", diff)
	}
	for name, word := range constants {
		if name != word {
			t.Errorf("the constant %s is the word %q: people look for the word they see", name, word)
		}
	}
}

// TestEntries: each entry can be shown: a CamelCase word as conditions take it, a whole sentence, a severity that
// SeverityOf finds.
func TestEntries(t *testing.T) {
	t.Parallel()
	for _, entry := range reason.Catalogue() {
		word := string(entry.Word)
		if word == "" || strings.ToUpper(word[:1]) != word[:1] || strings.ContainsAny(word, " .:_-") {
			t.Errorf("%q is no CamelCase word", word)
		}
		if !strings.HasSuffix(entry.Meaning, ".") || len(entry.Meaning) < 20 {
			t.Errorf("%s: %q is no sentence", word, entry.Meaning)
		}
		if got := reason.SeverityOf(entry.Word); got != entry.Severity {
			t.Errorf("SeverityOf(%s) is %v", word, got)
		}
	}
}

// TestUnknownWordHasNoSeverity: to ask for it is a mistake in the program.
func TestUnknownWordHasNoSeverity(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	reason.SeverityOf("NoSuchWord")
}

// TestEveryWordIsGiven parses the module: each word must be given by some code outside this package.
func TestEveryWordIsGiven(t *testing.T) {
	t.Parallel()
	given := given(t, "../..")
	for name := range constants(t) {
		switch isPending := slices.Contains(pending(), name); {
		case given[name] && isPending:
			t.Errorf("%s is given: take it off the list of pending words", name)
		case !given[name] && !isPending:
			t.Errorf("%s is given by no code", name)
		}
	}
}

// constants are the words that catalogue.go declares, by the names of their constants.
func constants(t *testing.T) map[string]string {
	t.Helper()
	words := map[string]string{}
	ast.Inspect(parse(t, "catalogue.go"), func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Word" {
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s is no literal", spec.Names[0].Name)
			}
			words[spec.Names[0].Name], _ = strconv.Unquote(literal.Value) // it has been parsed
		}
		return true
	})
	if len(words) < 20 {
		t.Fatalf("found only %d constants in catalogue.go", len(words))
	}
	return words
}

// given are the names of this package that the module's code uses, tests and other modules aside.
func given(t *testing.T, root string) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "e2e" || name == "hack" || name == "testdata" || (strings.HasPrefix(name, ".") && name != "..")):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			collect(parse(t, path), used)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// collect adds what a file uses of this package.
func collect(file *ast.File, used map[string]bool) {
	ast.Inspect(file, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if name, ok := selector.X.(*ast.Ident); ok && name.Name == "reason" {
				used[selector.Sel.Name] = true
			}
		}
		return true
	})
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
