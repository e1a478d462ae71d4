package berth_test

import (
	"slices"
	"strings"
	"testing"
)

// TestAllocationPagesAreTheScene shows that what the pages about allocation tell people to type, and the manifests they
// show, are in the scene howto-allocation, the commands in the same order.
func TestAllocationPagesAreTheScene(t *testing.T) {
	t.Parallel()
	script, files, _ := strings.Cut(readFile(t, "e2e/testdata/howto-allocation.txtar"), "\n-- ")
	for page, least := range map[string]int{
		"request-an-address": 4, "share-an-address": 6, "reserve-an-address": 4, "renumber": 3, "limit-a-namespace": 5,
	} {
		text := readFile(t, "docs/howto/"+page+".md")
		typed, commands := strings.Split(script, "\n"), pageCommands(text)
		if len(commands) < least {
			t.Errorf("%s has %d commands: the test would pass for nothing", page, len(commands))
		}
		for _, command := range commands {
			at := slices.Index(typed, command)
			if at < 0 {
				t.Errorf("%s says\n%s\nand the scene does not, or not at this place", page, command)
				break
			}
			typed = typed[at+1:]
		}
		for _, block := range strings.Split(text, "```yaml\n")[1:] {
			if manifest, _, _ := strings.Cut(block, "```"); !strings.Contains(files, manifest) {
				t.Errorf("%s shows\n%s\nand the scene has no such file", page, manifest)
			}
		}
	}
}
