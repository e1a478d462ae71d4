package cgroup

import (
	"fmt"
	"strings"
)

// String writes trees for an environment variable; Parse reads them again.
func (ts Trees) String() string {
	var parts []string
	for _, tree := range ts {
		parts = append(parts, tree.Controllers+":"+tree.Dir)
	}
	return strings.Join(parts, ";")
}

// Parse reads what String wrote.
func Parse(text string) (Trees, error) {
	var trees Trees
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ";") {
		controllers, dir, found := strings.Cut(part, ":")
		if !found || dir == "" {
			return nil, fmt.Errorf("read control groups: %q is not CONTROLLERS:FOLDER", part)
		}
		trees = append(trees, Tree{Controllers: controllers, Dir: dir})
	}
	return trees, nil
}
