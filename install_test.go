package berth_test

import (
	"slices"
	"strings"
	"testing"
)

// TestInstallPageIsTheScene shows that what the install page tells people to type is what the scene kubelet-install types,
// in the same order: the page cannot promise what was not seen. The scene does more between the commands.
func TestInstallPageIsTheScene(t *testing.T) {
	t.Parallel()
	page := pageCommands(readFile(t, "docs/howto/install.md"))
	script, _, _ := strings.Cut(readFile(t, "e2e/testdata/kubelet-install.txtar"), "\n-- ")
	typed := strings.Split(script, "\n")
	if len(page) < 10 {
		t.Fatalf("the page has %d commands: the test would pass for nothing", len(page))
	}
	for _, command := range page {
		at := slices.Index(typed, command)
		if at < 0 {
			t.Fatalf("the page says\n%s\nand the scene does not, or not at this place", command)
		}
		typed = typed[at+1:]
	}
}

// pageCommands are the commands of kubectl and helm in a page's blocks of shell.
func pageCommands(page string) []string {
	var commands []string
	shell := false
	for line := range strings.SplitSeq(page, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			shell = line == "```sh"
		case shell && (strings.HasPrefix(line, "kubectl ") || strings.HasPrefix(line, "helm ")):
			commands = append(commands, line)
		}
	}
	return commands
}
