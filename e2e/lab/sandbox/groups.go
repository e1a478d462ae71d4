package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/e2e/lab/cgroup"
)

// groupsVar carries the sandbox's control groups from the outer process to lab-init, and on to the inner one.
const groupsVar = "BERTH_LAB_CGROUPS"

// Groups answers the control groups of the sandbox this process runs in: none but on rung A.
func Groups() (cgroup.Trees, error) { return cgroup.Parse(os.Getenv(groupsVar)) }

// baseGroups makes the groups beneath which a sandbox has all of its own.
func baseGroups() (cgroup.Trees, error) {
	own, err := cgroup.Own()
	if err != nil {
		return nil, err
	}
	groups, err := own.Base("berth-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		return nil, errors.Join(err, cgroup.Remove(groups.Dirs()...))
	}
	return groups, nil
}

// makeGroups makes a sandbox's groups, if its rung has any, writes them down, and answers what removes them again.
func makeGroups(rung Rung, records records) (groups cgroup.Trees, release func() error, err error) {
	if rung != RungA {
		return nil, func() error { return nil }, nil
	}
	if groups, err = baseGroups(); err != nil {
		return nil, nil, err
	}
	// Until there is a sandbox to record the groups are this process's own.
	forget, err := records.add(os.Getpid(), groups.Dirs())
	if err != nil {
		return nil, nil, errors.Join(err, cgroup.Remove(groups.Dirs()...))
	}
	return groups, func() error { defer forget(); return cgroup.Remove(groups.Dirs()...) }, nil
}

// bindGroups puts the groups where they stay visible when the sandbox mounts a /sys of its own, and answers them there.
func bindGroups() (cgroup.Trees, error) {
	groups, err := Groups()
	if err != nil {
		return nil, err
	}
	for i := range groups {
		dir := filepath.Join(Dir, "cgroup", strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount(groups[i].Dir, dir, "", unix.MS_BIND, ""); err != nil {
			return nil, fmt.Errorf("show the sandbox its control groups: %w", err)
		}
		groups[i].Dir = dir
	}
	return groups, nil
}

// tryGroups does what a node with containers does with its control groups: it joins some of its own, makes them the root
// of all it sees, and mounts that.
func tryGroups(groups cgroup.Trees) error {
	if len(groups) == 0 {
		return nil
	}
	runtime.LockOSThread()
	node, err := groups.Child("probe")
	if err != nil {
		return err
	}
	if err := node.Join(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a namespace of control groups: %w", err)
	}
	for _, tree := range groups {
		point := filepath.Join(Dir, "probe", tree.Controllers)
		if err := os.MkdirAll(point, 0o755); err != nil {
			return err
		}
		if err := tree.Mount(point); err != nil {
			return err
		}
	}
	return nil
}
