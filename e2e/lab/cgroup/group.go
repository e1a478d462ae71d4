package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// wanted are the controllers that a kubelet does not work without (version 2).
func wanted() []string { return []string{"cpu", "cpuset", "memory", "pids"} }

// Base makes a group of the given name in each tree, beneath this process's own or, in the one tree of version 2, beneath
// the nearest group above it that has controllers to give, and answers the trees at the new groups. What was made before
// an error is answered with it.
func (ts Trees) Base(name string) (Trees, error) {
	var made Trees
	for _, tree := range ts {
		whole := tree.V2() && !ts.V1()
		parent := tree.Dir
		if whole {
			var err error
			if parent, err = delegating(tree.Dir); err != nil {
				return made, err
			}
		}
		base := Tree{Controllers: tree.Controllers, Dir: filepath.Join(parent, name)}
		if err := base.make(); err != nil {
			return made, err
		}
		made = append(made, base)
		if whole {
			if err := enable(base.Dir); err != nil {
				return made, err
			}
		}
	}
	return made, nil
}

// Child makes a group of the given name in each tree and answers the trees at the new groups. What an earlier child of
// that name left is removed first.
func (ts Trees) Child(name string) (Trees, error) {
	var made Trees
	for _, tree := range ts {
		child := Tree{Controllers: tree.Controllers, Dir: filepath.Join(tree.Dir, name)}
		if err := Remove(child.Dir); err != nil {
			return made, err
		}
		if err := child.make(); err != nil {
			return made, err
		}
		made = append(made, child)
	}
	return made, nil
}

func (t Tree) make() error {
	if err := os.Mkdir(t.Dir, 0o755); err != nil {
		return fmt.Errorf("make a control group: %w", err)
	}
	return prepare(t.Controllers, t.Dir)
}

// prepare does what a new group needs before a process may be in it: one of the tree cpuset has no processors at first.
func prepare(controllers, dir string) error {
	if !slices.Contains(strings.Split(controllers, ","), "cpuset") {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return fmt.Errorf("read the processors of a control group: %w", err)
		}
		if err := write(dir, name, strings.TrimSpace(string(text))); err != nil {
			return err
		}
	}
	return write(dir, "cgroup.clone_children", "1")
}

// delegating answers the nearest group, from dir upwards, that gives its children all controllers a kubelet needs. Where
// no group does so yet the topmost one is made to. The machine's very first group, which alone has no type, just does; from
// any other, as a container sees it, the processes have to leave for a group of their own first.
func delegating(dir string) (string, error) {
	top := dir
	for at := dir; exists(filepath.Join(at, "cgroup.controllers")); at = filepath.Dir(at) {
		if len(lacks(at, "cgroup.subtree_control")) == 0 {
			return at, nil
		}
		top = at
	}
	if missing := lacks(top, "cgroup.controllers"); len(missing) > 0 {
		return "", fmt.Errorf("%s offers no controller %s", top, strings.Join(missing, ", "))
	}
	if !exists(filepath.Join(top, "cgroup.type")) {
		return top, enable(top)
	}
	return top, Delegate(top, "outside")
}

// Delegate gives the children of a group all controllers it has, after its processes have moved to a child of that name.
func Delegate(dir, leaf string) error {
	if err := os.Mkdir(filepath.Join(dir, leaf), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a control group: %w", err)
	}
	pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("list a control group: %w", err)
	}
	for pid := range strings.FieldsSeq(string(pids)) {
		if err := write(filepath.Join(dir, leaf), "cgroup.procs", pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return enable(dir)
}

// enable gives the children of a group the controllers it has. Only those that a kubelet needs may not be refused.
func enable(dir string) error {
	offered, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers of a control group: %w", err)
	}
	for controller := range strings.FieldsSeq(string(offered)) {
		err := write(dir, "cgroup.subtree_control", "+"+controller)
		if err != nil && slices.Contains(wanted(), controller) {
			return err
		}
	}
	return nil
}

// lacks answers the controllers a kubelet needs that the file of a group does not list.
func lacks(dir, file string) []string {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return wanted()
	}
	listed := strings.Fields(string(text))
	return slices.DeleteFunc(wanted(), func(name string) bool { return slices.Contains(listed, name) })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Join puts this process (0 is whoever writes it), and all it starts from now on, into the groups.
func (ts Trees) Join() error {
	for _, tree := range ts {
		if err := write(tree.Dir, "cgroup.procs", "0"); err != nil {
			return err
		}
	}
	return nil
}

// write writes one of a group's files.
func write(dir, name, text string) error {
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0); err != nil {
		return fmt.Errorf("write %s to a control group: %w", text, err)
	}
	return nil
}

// Dirs are the groups' folders.
func (ts Trees) Dirs() []string {
	var dirs []string
	for _, tree := range ts {
		dirs = append(dirs, tree.Dir)
	}
	return dirs
}

// Remove removes groups with all beneath them. Their processes have been killed, and the kernel takes a moment.
func Remove(dirs ...string) error {
	const patience = 5 * time.Second
	var errs []error
	for _, dir := range dirs {
		for begin := time.Now(); ; {
			err := removeTree(dir)
			if err == nil {
				break
			}
			if time.Since(begin) > patience {
				errs = append(errs, err)
				break
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a group's children before it: the files in a group go with it, and only with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into a control group: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove control group %s: %w", dir, err)
	}
	return nil
}
