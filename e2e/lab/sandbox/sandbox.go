// Package sandbox runs a program inside namespaces of its own, so that nothing of a lab can be left on the machine.
//
//	go test ── outer (this program) ── lab-init: pid 1 of new pid, mount and network namespaces
//	                                     └─ inner (this program again): does the work, may start what it likes
//
// The outer process only waits. If it dies, however it dies, the kernel kills lab-init (parent-death signal, and a pipe
// that reads as closed), with lab-init every process of its pid namespace, with those the mounts and network namespaces.
// The files of a lab lie on a tmpfs on /run that only the sandbox sees, so they go too. Control groups alone outlive their
// processes: on rung A the outer process removes them, or the next one does that finds their record.
package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/e2e/lab/cgroup"
)

const (
	initName  = "lab-init"
	probeName = "lab-probe"
	// insideVar tells the inner process that it is inside, and on which rung.
	insideVar = "BERTH_LAB_INSIDE"
	// lifeline is the descriptor at which lab-init sees the outer process end.
	lifeline = 3
)

// Dir is where a lab keeps its files inside a sandbox; it vanishes with the sandbox.
const Dir = "/run/lab"

// Dispatch runs the part of this package that the program was started as, if it was, and ends the process. Call it
// first thing in main, or in TestMain.
func Dispatch() {
	switch filepath.Base(os.Args[0]) {
	case initName:
		os.Exit(runInit(os.Args[1:]))
	case probeName:
		os.Exit(runProbe())
	}
}

// Inside answers the rung of the sandbox this process runs in, and whether it runs in one.
func Inside() (Rung, bool) {
	text := os.Getenv(insideVar)
	if text == "" {
		return 0, false
	}
	return Rung(text[0]), true
}

// FollowParent makes the kernel kill this process when its parent ends, and ends it now if that has happened already.
// The calling goroutine keeps its thread for ever, since the kernel's rule is about threads. Call it from main.
func FollowParent() error {
	parent := os.Getppid()
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask to end with the parent process: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the parent process ended while this one began")
	}
	return nil
}

// Config says how to run the inner process.
type Config struct {
	Rung  Rung
	Cache string   // the cache folder, where the sandbox is recorded
	Env   []string // added to the inner process's environment
}

// Run starts this program again inside a new sandbox, with the same arguments, input and output, and answers its exit
// code. Signals are passed on. Call it from the goroutine that called FollowParent: the sandbox lives as long as its
// thread.
func Run(config Config) (int, error) {
	records := recordsIn(config.Cache)
	if err := records.endOrphans(); err != nil {
		return 0, err
	}
	groups, release, err := makeGroups(config.Rung, records)
	if err != nil {
		return 0, err
	}
	code, err := runSandbox(config, records, groups)
	return code, errors.Join(err, release())
}

// runSandbox starts the sandbox and waits for its end.
func runSandbox(config Config, records records, groups cgroup.Trees) (int, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make the sandbox's lifeline: %w", err)
	}
	defer write.Close()
	cmd := command(config.Rung, initName, os.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{read}
	cmd.Env = append(append(os.Environ(), config.Env...), insideVar+"="+string(config.Rung), groupsVar+"="+groups.String())
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the sandbox: %w", err)
	}
	read.Close()
	forget, err := records.add(cmd.Process.Pid, groups.Dirs())
	if err != nil {
		return 0, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	defer forget()
	go func() {
		for sig := range signals {
			_ = cmd.Process.Signal(sig) // fails only when the sandbox has ended, which Wait reports
		}
	}()
	return exitCode(cmd.Wait())
}

// command answers this program under another name in the namespaces of a rung.
func command(rung Rung, name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{name}, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if rung == RungC {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return cmd
}

// exitCode turns what Wait answered into an exit code, as a shell counts it.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, fmt.Errorf("wait for the sandbox: %w", err)
	case exit.ExitCode() >= 0:
		return exit.ExitCode(), nil
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok {
		return 0, fmt.Errorf("wait for the sandbox: its state is a %T", exit.Sys())
	}
	return 128 + int(status.Signal()), nil
}

// probe tries a rung by doing what a lab does there and answers what failed.
func probe(rung Rung) error {
	var groups cgroup.Trees
	if rung == RungA {
		var err error
		if groups, err = baseGroups(); err != nil {
			return err
		}
		defer func() { _ = cgroup.Remove(groups.Dirs()...) }() // what is left is empty, and there is nobody to tell
	}
	return tryRung(rung, groups)
}

func tryRung(rung Rung, groups cgroup.Trees) error {
	cmd := command(rung, probeName)
	var said lastWrite
	cmd.Stderr = &said
	cmd.Env = append(os.Environ(), groupsVar+"="+groups.String())
	if err := cmd.Start(); err != nil {
		return err
	}
	timer := afterKill(cmd.Process, probeTimeout)
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		if said.text != "" {
			return errors.New(said.text)
		}
		return err
	}
	return nil
}

// lastWrite keeps the last thing written to it; a probe says one sentence.
type lastWrite struct{ text string }

var _ io.Writer = (*lastWrite)(nil)

func (w *lastWrite) Write(text []byte) (int, error) {
	w.text = string(text)
	return len(text), nil
}
