package berth_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// source is one Go file, parsed.
type source struct {
	// path is relative to the repository's root, dir its folder.
	path, dir string
	text      []byte
	file      *ast.File
	set       *token.FileSet
}

// parse reads the text of a file that lies, or would lie, at a path of the repository.
func parse(name string, text []byte) (source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, fmt.Errorf("parse %s: %w", name, err)
	}
	return source{path: name, dir: path.Dir(name), text: text, file: file, set: set}, nil
}

// sources parses every Go file of the repository, those of its other modules too. Parsing the files themselves, rather
// than asking `go list`, sees every build tag and needs no cache.
func sources() ([]source, error) {
	var all []source
	root := os.DirFS(".")
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && isSkipped(name) {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return fmt.Errorf("read a source: %w", err)
		}
		parsed, err := parse(name, text)
		all = append(all, parsed)
		return err
	})
	return all, err
}

// isSkipped tells the folders that hold no sources of ours: hidden ones, test data, and what make build leaves.
func isSkipped(dir string) bool {
	base := path.Base(dir)
	return dir != "." && (strings.HasPrefix(base, ".") || base == "testdata" || dir == "bin")
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// isSupport tells whether the file is part of a package made for tests, which has a name that says so.
func (s source) isSupport() bool { return strings.HasSuffix(s.dir, "test") }

func (s source) isGenerated() bool { return ast.IsGenerated(s.file) }

// lines counts the file's lines.
func (s source) lines() int { return bytes.Count(s.text, []byte("\n")) }

// imports answers the paths of all imports, sorted.
func (s source) imports() []string {
	paths := make([]string, 0, len(s.file.Imports))
	for _, spec := range s.file.Imports {
		paths = append(paths, importPath(spec))
	}
	slices.Sort(paths)
	return paths
}

func importPath(spec *ast.ImportSpec) string {
	text, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return text
}

// nameOf answers the name by which the file calls an imported package, empty if it does not import it.
func (s source) nameOf(imported string) string {
	for _, spec := range s.file.Imports {
		if importPath(spec) != imported {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(imported)
	}
	return ""
}

// uses answers which of the names of an imported package the file refers to, each with the line of its first use.
func (s source) uses(imported string, names []string) map[string]int {
	found := map[string]int{}
	local := s.nameOf(imported)
	if local == "" {
		return found
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := selector.X.(*ast.Ident)
		name := selector.Sel.Name
		if ok && from.Name == local && slices.Contains(names, name) && found[name] == 0 {
			found[name] = s.line(selector)
		}
		return true
	})
	return found
}

func (s source) line(node ast.Node) int { return s.set.Position(node.Pos()).Line }
