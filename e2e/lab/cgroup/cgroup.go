// Package cgroup gives the lab's nodes control groups of their own, in which a kubelet may do as it likes. It knows both
// forms the kernel has: version 1, where each controller is a tree of its own (and a controller-less tree of version 2
// may stand beside them, which is called hybrid), and version 2, one tree of all controllers (cgroups(7)).
//
// A sandbox has one group in each tree, its base, beneath the group that the process which makes it is in. What it makes
// is written down and removed by whoever comes next, should the sandbox not live to do so: the kernel ends namespaces
// with their last process, and keeps groups.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is one mounted tree of control groups.
type Tree struct {
	// Controllers is what mounts it: "memory", "cpu,cpuacct", "name=systemd". Empty for the tree of version 2.
	Controllers string `json:"controllers"`
	// Dir is the folder, on the machine's own mount, of the group that the tree is looked at from.
	Dir string `json:"dir"`
}

// V2 tells whether the tree is that of version 2.
func (t Tree) V2() bool { return t.Controllers == "" }

// Trees are all trees that are mounted here, those of version 1 first.
type Trees []Tree

// V1 tells whether the controllers that a kubelet needs are in trees of version 1.
func (ts Trees) V1() bool {
	return slices.ContainsFunc(ts, func(t Tree) bool { return slices.Contains(strings.Split(t.Controllers, ","), "memory") })
}

// Own answers the trees of this machine, each at the group that this process is in.
func Own() (Trees, error) {
	groups, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("read this process's control groups: %w", err)
	}
	defer groups.Close()
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	defer mounts.Close()
	return parse(groups, mounts)
}

// parse reads the two files: cgroups(7), /proc/[pid]/cgroup, and proc_pid_mountinfo(5).
func parse(groups, mounts io.Reader) (Trees, error) {
	paths := map[string]string{} // of the process, by the name of the tree
	lines := bufio.NewScanner(groups)
	for lines.Scan() {
		if parts := strings.SplitN(lines.Text(), ":", 3); len(parts) == 3 {
			paths[sorted(parts[1])] = parts[2]
		}
	}
	var trees Trees
	seen := map[string]bool{}
	lines = bufio.NewScanner(mounts)
	for lines.Scan() {
		m, ok := parseMount(lines.Text())
		path, ours := paths[m.controllers]
		if !ok || !ours || seen[m.controllers] {
			continue
		}
		below, err := filepath.Rel(m.root, path)
		if err != nil || strings.HasPrefix(below, "..") {
			continue // a part of the tree that this process is not in
		}
		seen[m.controllers] = true
		trees = append(trees, Tree{Controllers: m.controllers, Dir: filepath.Join(m.point, below)})
	}
	if len(trees) == 0 {
		return nil, errors.New("no control groups are mounted")
	}
	slices.SortFunc(trees, func(a, b Tree) int {
		if a.V2() != b.V2() {
			return map[bool]int{true: 1, false: -1}[a.V2()]
		}
		return strings.Compare(a.Controllers, b.Controllers)
	})
	return trees, nil
}

// mount is one line of mountinfo that mounts control groups.
type mount struct{ root, point, controllers string }

func parseMount(line string) (mount, bool) {
	before, after, found := strings.Cut(line, " - ")
	fields, rest := strings.Fields(before), strings.Fields(after)
	if !found || len(fields) < 5 || len(rest) < 3 {
		return mount{}, false
	}
	m := mount{root: fields[3], point: fields[4]}
	switch rest[0] {
	case "cgroup2":
		return m, true
	case "cgroup":
		m.controllers = controllersOf(rest[2])
		return m, m.controllers != ""
	default:
		return mount{}, false
	}
}

// controllersOf picks, of a mount's options, those that name controllers or the tree.
func controllersOf(options string) string {
	var names []string
	for option := range strings.SplitSeq(options, ",") {
		switch {
		case option == "rw" || option == "ro" || option == "xattr" || option == "noprefix" || option == "clone_children":
		case strings.Contains(option, "=") && !strings.HasPrefix(option, "name="):
		default:
			names = append(names, option)
		}
	}
	return sorted(strings.Join(names, ","))
}

func sorted(list string) string {
	names := strings.Split(list, ",")
	slices.Sort(names)
	return strings.Join(names, ",")
}
