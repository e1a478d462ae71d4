package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/e2e/lab/cgroup"
)

// arrange makes this process a machine: its control groups, mounts and host name. Nothing of it is seen outside.
func arrange(spec Spec) error {
	groups, err := spec.Groups.Child(spec.Node)
	if err != nil {
		return err
	}
	if err := groups.Join(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a namespace of control groups: %w", err)
	}
	if err := forgetMounts(spec); err != nil {
		return err
	}
	// A kubelet wants mounts to be passed on to its pods. This is among the mounts of this node only: the sandbox's were
	// private before the node's were copied from them.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the node's mounts: %w", err)
	}
	for _, step := range []func(Spec) error{mountSystem, mountRun, hideHost, shieldSysctls} {
		if err := step(spec); err != nil {
			return err
		}
	}
	if err := mountGroups(groups); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(spec.Node)); err != nil {
		return fmt.Errorf("name the node: %w", err)
	}
	return nil
}

// forgetMounts takes away, for this node, the mounts of control groups that it has joined through, and all of /sys with
// those of the machine: a kubelet looks for its groups in the list of mounts, and takes the first it finds.
func forgetMounts(spec Spec) error {
	points := spec.Groups.Dirs()
	for _, point := range append(points, "/sys") {
		for {
			err := unix.Unmount(point, unix.MNT_DETACH)
			if errors.Is(err, unix.EINVAL) {
				break // nothing is mounted there any more
			}
			if err != nil {
				return fmt.Errorf("unmount %s: %w", point, err)
			}
		}
	}
	return nil
}

// mountSystem mounts /proc and /sys as this node's namespaces show them.
func mountSystem(Spec) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", flags, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	return nil
}

// mountRun gives the node a /run of its own, in which it sees of the lab's the node's folder, the logs and the files
// that it is told of, and the programs.
func mountRun(spec Spec) error {
	kept := []string{spec.Dir, spec.Logs, filepath.Dir(spec.Kubeconfig), filepath.Dir(spec.CA)}
	shown := map[string]string{
		spec.Programs: programs + "/node", spec.Cluster: programs + "/cluster", spec.Images: programs + "/images",
	}
	for _, dir := range kept {
		shown[dir] = dir
	}
	// Descriptors keep what the mount hides within reach.
	opened := map[string]*os.File{}
	defer func() {
		for _, dir := range opened {
			dir.Close()
		}
	}()
	for from, to := range shown {
		dir, err := os.Open(from)
		if err != nil {
			return fmt.Errorf("open what the node shall see: %w", err)
		}
		opened[to] = dir
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if err := os.Mkdir(temporary, 0o755); err != nil {
		return err
	}
	for to, dir := range opened {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show the node %s: %w", to, err)
		}
	}
	return nil
}

// hideHost covers the folders in which the programs keep things at fixed places: a node must leave nothing on the
// machine, and find nothing there.
func hideHost(Spec) error {
	for _, dir := range []string{"/var/lib", "/var/log"} {
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cover %s: %w", dir, err)
		}
	}
	return nil
}

// shieldSysctls puts a file in the place of each setting that a kubelet writes and that no namespace owns: the machine's
// own stays what it is.
func shieldSysctls(spec Spec) error {
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		path := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(path); err != nil {
			continue // a kernel without it
		}
		file := filepath.Join(spec.config(), strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("shield %s: %w", path, err)
		}
	}
	return nil
}

// mountGroups shows the node its control groups. In the one tree of version 2 its own processes then make room at the
// root, where the kubelet hands controllers on.
func mountGroups(groups cgroup.Trees) error {
	const root = "/sys/fs/cgroup"
	if err := groups.MountAll(root); err != nil {
		return err
	}
	if groups.V1() {
		return nil
	}
	return cgroup.Delegate(root, "system")
}
