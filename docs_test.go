package berth_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/election"
)

var update = flag.Bool("update", false, "write what is generated in docs: the lines of faults.md that say which tests name a fault, and pages of reference")

// TestLinks checks that every relative link of a page leads to a file of the repository, and its anchor to a heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := filesWith(t, ".md")
	if len(pages) == 0 {
		t.Fatal("no pages found: the test would pass for nothing")
	}
	for name, text := range pages {
		for _, broken := range brokenLinks(name, text, pages) {
			t.Error(broken)
		}
	}
}

// TestDecisionsListed checks that docs/README.md lists every decision, under the number and title it has.
func TestDecisionsListed(t *testing.T) {
	t.Parallel()
	list := readFile(t, "docs/README.md")
	for name, text := range filesWith(t, ".md") {
		link, ok := strings.CutPrefix(name, "docs/")
		if !ok || path.Dir(link) != "decisions" {
			continue
		}
		heading, _, _ := strings.Cut(text, "\n")
		if want := fmt.Sprintf("- [%s](%s)\n", strings.TrimPrefix(heading, "# "), link); !strings.Contains(list, want) {
			t.Errorf("docs/README.md lacks the line %q", want)
		}
	}
}

// TestLinksFindsBroken shows that a link to nowhere is found.
func TestLinksFindsBroken(t *testing.T) {
	t.Parallel()
	pages := map[string]string{"a.md": "# A page\n", "docs/b.md": ""}
	text := "[good](../a.md#a-page) [web](https://example.org/x) [here](#own)\n## Own\n" +
		"[gone](../c.md) [no anchor](../a.md#b-page)\n```\n[code](nowhere.md)\n```\n"
	got := brokenLinks("docs/b.md", text, pages)
	want := []string{
		"docs/b.md: links to ../c.md, which does not exist",
		"docs/b.md: links to ../a.md#b-page, and a.md has no such heading",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// brokenLinks answers a sentence for each relative link of the page that leads nowhere.
func brokenLinks(name, text string, pages map[string]string) []string {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	prose := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`").ReplaceAllString(text, "")
	var broken []string
	for _, match := range link.FindAllStringSubmatch(prose, -1) {
		to := match[1]
		if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(to, "#")
		target, heading := name, text
		if file != "" {
			target = path.Join(path.Dir(name), file)
			heading = pages[target]
		}
		if _, isPage := pages[target]; !isPage && !exists(target) {
			broken = append(broken, fmt.Sprintf("%s: links to %s, which does not exist", name, to))
		} else if anchor != "" && !slices.Contains(anchors(heading), anchor) {
			broken = append(broken, fmt.Sprintf("%s: links to %s, and %s has no such heading", name, to, target))
		}
	}
	return broken
}

// anchors answers what the headings of a page are called in links.
func anchors(text string) []string {
	heading := regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	var all []string
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return all
}

// TestRulesCited checks that every rule that code, tests and pages cite ("rule A5", "rules P3, P5 and E2") is in
// docs/rules.md.
func TestRulesCited(t *testing.T) {
	t.Parallel()
	rules := map[string]bool{}
	page := readFile(t, "docs/rules.md")
	for _, match := range regexp.MustCompile(`(?m)^### ([A-Z]\d+) `).FindAllStringSubmatch(page, -1) {
		rules[match[1]] = true
	}
	if len(rules) == 0 {
		t.Fatal("docs/rules.md has no rules: the test would pass for nothing")
	}
	cited := 0
	for name, text := range filesWith(t, ".go", ".md", ".txtar", ".yaml") {
		for _, rule := range citedRules(text) {
			cited++
			if !rules[rule] {
				t.Errorf("%s: cites rule %s, which docs/rules.md does not have", name, rule)
			}
		}
	}
	if cited == 0 {
		t.Error("no citation found: the test would pass for nothing")
	}
}

// TestCitedRules shows which forms of a citation are found.
func TestCitedRules(t *testing.T) {
	t.Parallel()
	got := citedRules("rule A5; Rules P3, P5 to P7 and E2; rules E1 or\n// E12; the rule of A9; ruler B1")
	want := []string{"A5", "P3", "P5", "P7", "E2", "E1", "E12"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func citedRules(text string) []string {
	number := `[A-Z]\d{1,2}\b`
	citation := regexp.MustCompile(`\b[Rr]ules?\s+(` + number + `(?:(?:,|\s+and|\s+or|\s+to)[\s/]+` + number + `)*)`)
	var all []string
	for _, match := range citation.FindAllStringSubmatch(text, -1) {
		all = append(all, regexp.MustCompile(number).FindAllString(match[1], -1)...)
	}
	return all
}

// TestFaults checks that docs/faults.md says of each fault which tests name it, or why none does.
func TestFaults(t *testing.T) {
	t.Parallel()
	named := map[string][]string{}
	for name, text := range filesWith(t, "_test.go", ".txtar") {
		if path.Dir(name) == "." {
			continue // the tests of the pages themselves
		}
		for _, fault := range faultsNamed(text) {
			named[fault] = append(named[fault], name)
		}
	}
	page := readFile(t, "docs/faults.md")
	fresh, unknown := testedBy(page, named)
	for _, fault := range unknown {
		t.Errorf("%s: names %s, which docs/faults.md does not have", strings.Join(named[fault], ", "), fault)
	}
	if fresh == page {
		return
	}
	if *update {
		if err := os.WriteFile("docs/faults.md", []byte(fresh), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	before, after := strings.Split(page, "\n"), strings.Split(fresh, "\n")
	for i := range before {
		if before[i] != after[i] {
			t.Errorf("docs/faults.md:%d: %q should be %q: run go test . -run Faults -update", i+1, before[i], after[i])
		}
	}
}

// TestTestedBy shows how the lines of docs/faults.md follow the tests.
func TestTestedBy(t *testing.T) {
	t.Parallel()
	page := "### F01 A (S1)\n\nTested by: not yet: no test names this fault.\n" +
		"### F02 B (S1)\n\nTested by: a_test.go, gone_test.go\n" +
		"### F03 C (S1)\n\nTested by: not yet: BGP is planned.\n" +
		"### F04 D (S1)\n\nTested by: gone_test.go\n"
	want := "### F01 A (S1)\n\nTested by: a_test.go, b.txtar\n" +
		"### F02 B (S1)\n\nTested by: a_test.go\n" +
		"### F03 C (S1)\n\nTested by: not yet: BGP is planned.\n" +
		"### F04 D (S1)\n\nTested by: not yet: no test names this fault.\n"
	named := map[string][]string{"F01": {"b.txtar", "a_test.go"}, "F02": {"a_test.go"}, "F99": {"a_test.go"}}
	got, unknown := testedBy(page, named)
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if !slices.Equal(unknown, []string{"F99"}) {
		t.Errorf("unknown: got %q, want F99", unknown)
	}
}

// testedBy answers the page with its lines "Tested by" as they should be, and the faults named that it does not have.
func testedBy(page string, named map[string][]string) (fresh string, unknown []string) {
	const prefix, notYet = "Tested by: ", "Tested by: not yet: "
	lines := strings.Split(page, "\n")
	known := map[string]bool{}
	fault := ""
	for i, line := range lines {
		if heading, ok := strings.CutPrefix(line, "### "); ok {
			fault, _, _ = strings.Cut(heading, " ")
			known[fault] = true
		}
		switch files := slices.Sorted(slices.Values(named[fault])); {
		case !strings.HasPrefix(line, prefix):
		case len(files) > 0:
			lines[i] = prefix + strings.Join(slices.Compact(files), ", ")
		case !strings.HasPrefix(line, notYet):
			lines[i] = notYet + "no test names this fault."
		}
	}
	for _, fault := range slices.Sorted(maps.Keys(named)) {
		if !known[fault] {
			unknown = append(unknown, fault)
		}
	}
	return strings.Join(lines, "\n"), unknown
}

// faultsNamed finds the numbers of faults in comments, and in the names of tests: TestF01, TestF29And30.
func faultsNamed(text string) []string {
	named := regexp.MustCompile(`\bF\d{2,3}\b`).FindAllString(text, -1)
	for _, match := range regexp.MustCompile(`\bTestF(\d{2,3})(?:And(\d{2,3}))?`).FindAllStringSubmatch(text, -1) {
		for _, number := range match[1:] {
			if number != "" {
				named = append(named, "F"+number)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(named)))
}

// TestElectionExamples computes the table of docs/reference/election.md, by which others can check their own election.
func TestElectionExamples(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile(`(?m)^\| (\S+) \| (n\d) \| ([0-9a-f]{16}) \| (n\d) \|$`)
	rows := row.FindAllStringSubmatch(readFile(t, "docs/reference/election.md"), -1)
	if len(rows) == 0 {
		t.Fatal("docs/reference/election.md has no examples: the test would pass for nothing")
	}
	for _, columns := range rows {
		address := netip.MustParseAddr(columns[1])
		score := fmt.Sprintf("%016x", election.Score(election.Seed(columns[2]), election.KeyOf(address)))
		owner := election.Winner([]string{"n1", "n2", "n3"}, address)
		if score != columns[3] || owner != columns[4] {
			t.Errorf("%s: computed score %s and owner %s", columns[0], score, owner)
		}
	}
}

// TestManifestsInPages decodes every manifest of ours that a page shows, as strictly as `kubectl apply` would.
func TestManifestsInPages(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	decoded := 0
	for name, text := range filesWith(t, ".md") {
		for _, match := range block.FindAllStringSubmatch(text, -1) {
			for manifest := range strings.SplitSeq(match[1], "\n---\n") {
				object, ok := objectOf(manifest)
				if !ok {
					continue
				}
				decoded++
				if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
					t.Errorf("%s: %v in\n%s", name, err, manifest)
				}
			}
		}
	}
	if decoded == 0 {
		t.Error("no manifest found: the test would pass for nothing")
	}
}

// objectOf answers an empty object of the manifest's kind, if it is one of ours.
func objectOf(manifest string) (any, bool) {
	switch match := regexp.MustCompile(`(?m)^apiVersion: berth.dev/v1beta1\nkind: (\w+)$`).FindStringSubmatch(manifest); {
	case match == nil:
		return nil, false
	case match[1] == "IPAddressPool":
		return &v1beta1.IPAddressPool{}, true
	case match[1] == "AddressReservation":
		return &v1beta1.AddressReservation{}, true
	case match[1] == "L2Advertisement":
		return &v1beta1.L2Advertisement{}, true
	default:
		return &struct{}{}, true // a kind that does not exist decodes into nothing, so its fields are errors
	}
}

// TestMakeTargets checks that every make target that pages speak of exists.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(readFile(t, "Makefile"), -1) {
		targets[match[1]] = true
	}
	mentioned := regexp.MustCompile("(?m)(?:`|^)make ([a-z0-9-]+)")
	for name, text := range filesWith(t, ".md") {
		for _, match := range mentioned.FindAllStringSubmatch(text, -1) {
			if !targets[match[1]] {
				t.Errorf("%s: speaks of make %s, which the Makefile does not have", name, match[1])
			}
		}
	}
}

// filesWith answers the text of every file of the repository whose name ends in one of the suffixes, by its path.
func filesWith(t *testing.T, suffixes ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if isSkipped(name) && path.Base(name) != "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) }) {
			found[name] = readFile(t, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := fs.ReadFile(os.DirFS("."), name)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
