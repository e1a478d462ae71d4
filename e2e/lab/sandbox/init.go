package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/e2e/lab/cgroup"
)

var errNotRoot = errors.New("not root")

// runInit is pid 1 of a sandbox: it arranges the mounts, runs the inner process, reaps everybody's orphans, and ends
// with the inner process's exit code, upon which the kernel kills whatever is left.
func runInit(argv []string) int {
	go followOuter()
	groups, err := arrange()
	if err != nil {
		fmt.Fprintf(os.Stderr, "lab: arrange the sandbox: %v\n", err)
		return 1
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	inner, err := startInner(argv, groups)
	if err != nil {
		fmt.Fprintf(os.Stderr, "lab: start the inner process: %v\n", err)
		return 1
	}
	go func() {
		for sig := range signals {
			_ = inner.Signal(sig) // fails only when it has ended, which reap sees
		}
	}()
	return reap(inner.Pid)
}

// startInner starts the inner process, which finds in its environment where it is.
func startInner(argv []string, groups cgroup.Trees) (*os.Process, error) {
	for name, value := range map[string]string{"TMPDIR": filepath.Join(Dir, "tmp"), groupsVar: groups.String()} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
}

// followOuter ends the sandbox when the outer process has gone: it closes the gap between its death and the moment
// the parent-death signal was asked for.
func followOuter() {
	line := os.NewFile(lifeline, "lifeline")
	_, _ = line.Read(make([]byte, 1)) // nobody writes: it returns when the other end is closed
	os.Exit(128 + int(syscall.SIGKILL))
}

// reap waits for every child, adopted ones too, until the inner process has ended, and answers its exit code.
func reap(inner int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fmt.Fprintf(os.Stderr, "lab: wait for the inner process: %v\n", err)
			return 1
		case pid == inner && status.Exited():
			return status.ExitStatus()
		case pid == inner && status.Signaled():
			return 128 + int(status.Signal())
		}
	}
}

// arrange gives the sandbox its own /proc, /run and loopback, and answers its control groups as it sees them. Nothing
// mounted here is seen outside.
func arrange() (cgroup.Trees, error) {
	if err := arrangeMounts(); err != nil {
		return nil, err
	}
	groups, err := bindGroups()
	if err != nil {
		return nil, err
	}
	// Programs that look into /sys/class/net should see this sandbox's links; where the mount is refused none of ours
	// needs it.
	_ = unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find the loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("raise the loopback: %w", err)
	}
	return groups, nil
}

func arrangeMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs on /run: %w", err)
	}
	for _, dir := range []string{"/run/netns", "/run/lock", filepath.Join(Dir, "tmp")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func afterKill(process *os.Process, after time.Duration) *time.Timer {
	return time.AfterFunc(after, func() { _ = process.Kill() })
}
