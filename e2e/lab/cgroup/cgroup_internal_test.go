package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The files as kernels of three kinds show them.
//
//nolint:dupword // a mount's kind and its source have the same name
const (
	hybridGroups = `9:name=systemd:/
4:memory:/session/one
3:cpuset:/
2:cpu,cpuacct:/
0::/
`
	hybridMounts = `22 1 0:21 / /sys rw,nosuid - sysfs sysfs rw
31 22 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset,clone_children
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,release_agent=/x,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	unifiedGroups = "0::/user.slice/user-0.slice/session-1.scope\n"
	unifiedMounts = `30 22 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`
	// containerMounts shows a part of a tree, as a container without a namespace of its own for groups sees it.
	containerGroups = "4:memory:/docker/abc/inner\n"
	containerMounts = `35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory
`
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason, groups, mounts string
		want                   Trees
		v1, fails              bool
	}{
		"hybrid": {
			reason: "Each controller has a tree, that of version 2 comes last, and options of a mount are no controllers.",
			groups: hybridGroups, mounts: hybridMounts, v1: true,
			want: Trees{
				{"cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"}, {"cpuset", "/sys/fs/cgroup/cpuset"},
				{"memory", "/sys/fs/cgroup/memory/session/one"}, {"name=systemd", "/sys/fs/cgroup/systemd"},
				{"", "/sys/fs/cgroup/unified"},
			},
		},
		"unified": {
			reason: "There is one tree, and the process is deep in it.", groups: unifiedGroups, mounts: unifiedMounts,
			want: Trees{{"", "/sys/fs/cgroup/user.slice/user-0.slice/session-1.scope"}},
		},
		"container": {
			reason: "What is mounted begins at the container's own group.", groups: containerGroups, mounts: containerMounts,
			v1: true, want: Trees{{"memory", "/sys/fs/cgroup/memory/inner"}},
		},
		"elsewhere": {
			reason: "A mount of a part in which the process is not is of no use.",
			groups: "4:memory:/other\n", mounts: containerMounts, fails: true,
		},
		"none": {reason: "A machine may mount none.", groups: unifiedGroups, mounts: "22 1 0:21 / / rw - ext4 /dev/vda rw\n", fails: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(strings.NewReader(tc.groups), strings.NewReader(tc.mounts))
			if (err != nil) != tc.fails {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
			if got.V1() != tc.v1 {
				t.Errorf("%s: V1 is %v", tc.reason, got.V1())
			}
			again, err := Parse(got.String())
			if diff := cmp.Diff(got, again); err != nil || diff != "" {
				t.Errorf("written and read again: %v\n%s", err, diff)
			}
		})
	}
}

// unified makes folders that look like a tree of version 2: each group with its files. Writing to them is all that is
// seen; the kernel's rules are not there.
func unified(t *testing.T, groups map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for group, enabled := range groups {
		dir := filepath.Join(root, group)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"cgroup.controllers": "cpuset cpu io memory pids\n", "cgroup.subtree_control": enabled, "cgroup.procs": "41\n42\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

const all = "cpuset cpu io memory pids\n"

// TestDelegating shows beneath which group of version 2 a lab makes its own.
func TestDelegating(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		groups map[string]string
		own    string
		want   string
		typed  bool // the topmost group is not the machine's first: its processes have to make room
	}{
		"container": {
			reason: "In a container's namespace the processes sit in the topmost group there is, which gives nothing.",
			groups: map[string]string{"": ""}, own: "", want: "", typed: true,
		},
		"systemd": {
			reason: "A login's scope gives nothing to children; some group above it does, and nobody has to move.",
			groups: map[string]string{"": all, "user": all, "user/scope": ""}, own: "user/scope", want: "user",
		},
		"memory only": {
			reason: "A group that gives some controllers is not enough.",
			groups: map[string]string{"": all, "user": "memory pids\n", "user/scope": ""}, own: "user/scope", want: "",
		},
		"none yet": {
			reason: "Where no group gives anything the topmost is made to.",
			groups: map[string]string{"": "", "scope": ""}, own: "scope", want: "",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := unified(t, tc.groups)
			if tc.typed {
				if err := os.WriteFile(filepath.Join(root, "cgroup.type"), []byte("domain\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := delegating(filepath.Join(root, tc.own))
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(root, tc.want); got != want {
				t.Errorf("%s\ngot %s, want %s", tc.reason, got, want)
			}
			if exists(filepath.Join(root, "outside")) != tc.typed {
				t.Errorf("%s\nprocesses moved: %v, want %v", tc.reason, !tc.typed, tc.typed)
			}
		})
	}
}

// TestDelegatingRefused shows the sentence of a machine that has no controllers to give.
func TestDelegatingRefused(t *testing.T) {
	t.Parallel()
	root := unified(t, map[string]string{"": ""})
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("hugetlb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := delegating(root); err == nil || !strings.Contains(err.Error(), "offers no controller cpu, cpuset, memory, pids") {
		t.Errorf("said %v", err)
	}
}

// TestBaseAndChildren makes a lab's groups and a node's beneath them, in a tree of each kind, and removes them.
func TestBaseAndChildren(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"memory", "cpuset"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if err := os.WriteFile(filepath.Join(root, "cpuset", name), []byte("0-1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := Trees{{"cpuset", filepath.Join(root, "cpuset")}, {"memory", filepath.Join(root, "memory")}}
	base, err := own.Base("berth-1")
	if err != nil {
		t.Fatal(err)
	}
	node, err := base.Child("n1")
	if err != nil {
		t.Fatal(err)
	}
	cpus, err := os.ReadFile(filepath.Join(node[0].Dir, "cpuset.cpus"))
	if err != nil || string(cpus) != "0-1" {
		t.Errorf("the node's group has processors %q, %v: no process could be in it", cpus, err)
	}
	if err := Remove(node[1].Dir, filepath.Join(root, "never")); err != nil {
		t.Errorf("remove a group, and one that is not there: %v", err)
	}
	if exists(node[1].Dir) || !exists(base[1].Dir) {
		t.Error("not the node's group alone was removed")
	}
}
