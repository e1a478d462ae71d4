package cgroup

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const mountFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// Mount mounts the tree as the caller's namespace of control groups shows it: with its own group at the root.
func (t Tree) Mount(point string) error {
	kind, options := "cgroup", t.Controllers
	if t.V2() {
		kind, options = "cgroup2", ""
	}
	if err := unix.Mount(kind, point, kind, mountFlags, options); err != nil {
		return fmt.Errorf("mount control groups (%s %s): %w", kind, options, err)
	}
	return nil
}

// MountAll mounts the trees where programs look for them: that of version 2 alone at the root, or those of version 1
// each in a folder of its controllers' names, with that of version 2 in the folder unified.
func (ts Trees) MountAll(root string) error {
	if !ts.V1() {
		for _, tree := range ts {
			if tree.V2() {
				return tree.Mount(root)
			}
		}
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", mountFlags, "mode=755"); err != nil {
		return fmt.Errorf("mount a folder for control groups: %w", err)
	}
	for _, tree := range ts {
		point := filepath.Join(root, tree.folder())
		if err := os.Mkdir(point, 0o755); err != nil {
			return fmt.Errorf("mount control groups: %w", err)
		}
		if err := tree.Mount(point); err != nil {
			return err
		}
	}
	return nil
}

// folder is what the mount of a tree is called by custom.
func (t Tree) folder() string {
	switch {
	case t.V2():
		return "unified"
	case t.Controllers == "name=systemd":
		return "systemd"
	default:
		return t.Controllers
	}
}
