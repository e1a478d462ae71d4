package berth_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestArchitecture checks every Go file of the repository against the five laws and the arrows (arch_rules_test.go).
func TestArchitecture(t *testing.T) {
	t.Parallel()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go files found: the test would pass for nothing")
	}
	for _, s := range all {
		for _, violation := range violations(s) {
			t.Error(violation)
		}
	}
}

// violations answers a sentence for everything in the file that breaks a rule. Tests may look where they like; what is
// asked of them is that they belong to a package that has a layer.
func violations(s source) []string {
	own, known := layerOf(s.dir)
	if !known {
		return []string{s.dir + ": no layer in arch_rules_test.go matches this folder: say there what it may import"}
	}
	found := append(checkFolder(s), checkSleep(s)...)
	if s.isTest() {
		return found
	}
	if !s.isSupport() {
		found = append(found, checkArrows(s, own)...)
		found = append(found, checkEngines(s)...)
	}
	if own.pure {
		found = append(found, checkPure(s)...)
	}
	found = append(found, checkWriters(s)...)
	found = append(found, checkDeclarations(s)...)
	return append(found, checkLength(s)...)
}

func (s source) violation(format string, args ...any) string {
	return s.path + ": " + fmt.Sprintf(format, args...)
}

// checkFolder refuses folders whose names say nothing.
func checkFolder(s source) []string {
	for part := range strings.SplitSeq(s.dir, "/") {
		if slices.Contains(vague(), part) {
			return []string{s.violation("a folder named %s says nothing of what is in it: name it for its one idea", part)}
		}
	}
	return nil
}

// checkSleep refuses to wait for a time where something else is awaited. Under testing/synctest, where the clock is made
// up, sleeping is how time passes.
func checkSleep(s source) []string {
	if matches("e2e/...", s.dir) || slices.Contains(s.imports(), "testing/synctest") {
		return nil
	}
	for _, line := range s.uses("time", []string{"Sleep"}) {
		return []string{s.violation("sleeps in line %d: wait for what is awaited, or use testing/synctest", line)}
	}
	return nil
}

// checkArrows checks the imports of our own packages and, where the layer lists them, of other modules.
func checkArrows(s source, own layer) []string {
	var found []string
	for _, imported := range s.imports() {
		dir, isOurs := strings.CutPrefix(imported, ours)
		switch {
		case isOurs && strings.HasSuffix(dir, "test"):
			found = append(found, s.violation("imports %s, which is for tests", dir))
		case isOurs && !own.mayImport(dir):
			found = append(found, s.violation("imports %s: no arrow leads from %s to it", dir, own.pattern))
		case !isOurs && own.foreign != nil && isModule(imported) && !beneathAny(own.foreign, imported):
			found = append(found, s.violation("imports %s: %s may import of other modules only %v", imported, own.pattern, own.foreign))
		}
	}
	return found
}

func (l layer) mayImport(dir string) bool {
	if matches(l.pattern, dir) {
		return true
	}
	return matchesAny(l.arrows, dir)
}

// isModule tells a module's package from one of the standard library: the first element of its path has a dot.
func isModule(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".")
}

func beneath(root, imported string) bool {
	return imported == root || strings.HasPrefix(imported, root+"/")
}

func beneathAny(roots []string, imported string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return beneath(root, imported) })
}

// checkEngines is law 4 for libraries.
func checkEngines(s source) []string {
	var found []string
	for _, imported := range s.imports() {
		for engine, owners := range engines() {
			if beneath(engine, imported) && !matchesAny(owners, s.dir) {
				found = append(found, s.violation("imports %s, which only %v may (law 4)", imported, owners))
			}
		}
	}
	return found
}

// checkPure is law 1.
func checkPure(s source) []string {
	var found []string
	for _, imported := range s.imports() {
		if imported == "net/netip" {
			continue
		}
		for forbidden, brings := range impure() {
			if imported == forbidden || (strings.HasSuffix(forbidden, "/") && strings.HasPrefix(imported, forbidden)) {
				found = append(found, s.violation("imports %s, and the core has no part in %s (law 1)", imported, brings))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.uses("time", clocks()))) {
		found = append(found, s.violation("calls time.%s: time is an argument in the core (law 1)", name))
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		if statement, ok := node.(*ast.GoStmt); ok {
			found = append(found, s.violation("starts a goroutine in line %d: the core has none (law 1)", s.line(statement)))
		}
		return true
	})
	return found
}

// checkWriters is law 4 for the API server.
func checkWriters(s source) []string {
	if mayWrite(s.dir) {
		return nil
	}
	var found []string
	for client, names := range writers() {
		for name, line := range s.uses(client, names) {
			found = append(found, s.violation("uses %s.%s in line %d: only internal/kube writes to the API server (law 4)", path.Base(client), name, line))
		}
	}
	slices.Sort(found)
	return found
}

// checkDeclarations is law 5: no variables of a package but errors and embedded files, no init outside the API.
func checkDeclarations(s source) []string {
	var found []string
	for _, declaration := range s.file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" && !matches("api/...", s.dir) {
				found = append(found, s.violation("has an init function in line %d: wiring happens in main (law 5)", s.line(d)))
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				found = append(found, s.checkVariables(d)...)
			}
		}
	}
	return found
}

func (s source) checkVariables(d *ast.GenDecl) []string {
	var found []string
	for _, spec := range d.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || isError(value) || isEmbed(d, value) || s.isVersion(value) {
			continue
		}
		for _, name := range value.Names {
			if name.Name != "_" { // a claim for the compiler, not a variable
				found = append(found, s.violation("has the package variable %s: only errors and embedded files may be one (law 5)", name.Name))
			}
		}
	}
	return found
}

// isError tells whether every value of a declaration is made by errors.New or fmt.Errorf.
func isError(value *ast.ValueSpec) bool {
	for _, expression := range value.Values {
		call, ok := expression.(*ast.CallExpr)
		if !ok {
			return false
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || (function.Sel.Name != "New" && function.Sel.Name != "Errorf") {
			return false
		}
		if from, ok := function.X.(*ast.Ident); !ok || (from.Name != "errors" && from.Name != "fmt") {
			return false
		}
	}
	return len(value.Values) > 0
}

// isEmbed tells whether the declaration's comment has the directive that fills it.
func isEmbed(d *ast.GenDecl, value *ast.ValueSpec) bool {
	for _, group := range []*ast.CommentGroup{d.Doc, value.Doc} {
		if group == nil {
			continue
		}
		for _, comment := range group.List {
			if strings.HasPrefix(comment.Text, "//go:embed ") {
				return true
			}
		}
	}
	return false
}

// isVersion tells whether it is the one variable that the linker writes (-X main.version), which must be a variable.
func (s source) isVersion(value *ast.ValueSpec) bool {
	return s.file.Name.Name == "main" && len(value.Names) == 1 && value.Names[0].Name == "version"
}

// longest is the most lines a file may have; most have fewer than 400.
const longest = 600

func checkLength(s source) []string {
	if lines := s.lines(); lines > longest && !s.isGenerated() {
		return []string{s.violation("has %d lines, more than %d: it holds more than one idea", lines, longest)}
	}
	return nil
}
