package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// joinNode makes a group as a node has it and enters it, where the sandbox has groups.
func joinNode() error {
	groups, err := Groups()
	if err != nil || len(groups) == 0 {
		return err
	}
	node, err := groups.Child("n1")
	if err != nil {
		return err
	}
	return node.Join()
}

// TestGroupsAreRemoved shows that control groups, which outlive their processes, are gone after an ordinary end, and after
// a kill when the next lab starts.
func TestGroupsAreRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		end    func(t *testing.T, o *outside)
		next   bool // only the next start can tidy up
	}{
		"Ended":       {"an ordinary end removes them", endInner, false},
		"InnerKilled": {"so does the end of the sandbox alone", killInner, false},
		"OuterKilled": {"nobody is left who could", killOuter, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := start(t, RungA)
			groups := groupsOf(t, o)
			for _, dir := range groups {
				if _, err := os.Stat(filepath.Join(dir, "n1")); err != nil {
					t.Fatalf("the test must see what could be left: %v", err)
				}
			}
			test.end(t, o)
			_ = o.cmd.Wait()
			if test.next {
				eventually(t, test.reason, recordsIn(o.cache).endOrphans)
			}
			for _, dir := range groups {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: %s is left: %v", test.reason, dir, err)
				}
			}
		})
	}
}

// groupsOf answers the control groups that the record of the test's sandbox names.
func groupsOf(t *testing.T, o *outside) []string {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(o.cache, "labs", "*.json"))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var rec record
		if err := json.Unmarshal(text, &rec); err == nil && len(rec.Groups) > 0 {
			return rec.Groups
		}
	}
	t.Fatalf("no record in %s names control groups", o.cache)
	return nil
}
