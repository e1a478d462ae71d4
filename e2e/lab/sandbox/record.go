package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/e2e/lab/cgroup"
)

// records is the folder where running sandboxes are written down. A sandbox dies with its outer process; what the
// kernel cannot know is that the make above a test was killed and nobody wants the test any more. So each record names
// the processes that wanted the sandbox, and the next start ends the sandboxes whose wanters are gone. Sandboxes that
// are still wanted are left alone: several may run side by side.
type records struct{ dir string }

// process names one process of the machine for good: process ids are used again, start times in ticks are not.
type process struct {
	Pid   int    `json:"pid"`
	Start string `json:"start"`
}

// record is one running sandbox. Where says which boot and pid namespace the numbers belong to: containers may share a
// cache folder.
type record struct {
	Where   string    `json:"where"`
	Init    process   `json:"init"`
	Wanters []process `json:"wanters"`
	// Groups are the folders of its control groups, which outlive their processes.
	Groups []string `json:"groups,omitempty"`
}

func recordsIn(cache string) records { return records{dir: filepath.Join(cache, "labs")} }

// add writes down the sandbox whose pid 1 is initPid, with its control groups, and answers what removes the record again.
func (r records) add(initPid int, groups []string) (forget func(), err error) {
	init, err := processOf(initPid)
	if err != nil {
		return nil, fmt.Errorf("record the sandbox: %w", err)
	}
	here, err := where()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(record{Where: here, Init: init, Wanters: wanters(os.Getpid()), Groups: groups})
	if err != nil {
		return nil, fmt.Errorf("record the sandbox: %w", err)
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, fmt.Errorf("record the sandbox: %w", err)
	}
	path := filepath.Join(r.dir, fmt.Sprintf("%d-%s.json", init.Pid, init.Start))
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return nil, fmt.Errorf("record the sandbox: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, fmt.Errorf("record the sandbox: %w", err)
	}
	return func() { os.Remove(path) }, nil
}

// endOrphans ends every recorded sandbox that still runs though somebody who wanted it has gone, and removes the
// records of those that ended without removing theirs.
func (r records) endOrphans() error {
	here, err := where()
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(r.dir, "*.json"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // removed by its owner just now
		}
		var rec record
		if err := json.Unmarshal(text, &rec); err != nil || rec.Where == "" {
			os.Remove(path) // cut off while it was written: nothing to be learnt from it
			continue
		}
		if rec.Where != here {
			removeOld(path)
			continue
		}
		if rec.wanted() {
			continue
		}
		if err := rec.Init.kill(); err != nil {
			return fmt.Errorf("end a lab that was left behind: %w", err)
		}
		if err := cgroup.Remove(rec.Groups...); err != nil {
			return fmt.Errorf("tidy up after a lab that was left behind: %w", err)
		}
		os.Remove(path)
	}
	return nil
}

// removeOld removes a record of another boot or container when no lab can run any more for which it was written. That
// one runs where this process cannot see it.
func removeOld(path string) {
	const old = 24 * time.Hour
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > old {
		os.Remove(path)
	}
}

// wanted tells whether the sandbox runs and everybody who wanted it is still there.
func (r record) wanted() bool {
	if !r.Init.alive() {
		return false
	}
	for _, p := range r.Wanters {
		if !p.alive() {
			return false
		}
	}
	return true
}

// alive tells whether the process still runs; a zombie does not.
func (p process) alive() bool {
	now, state, err := stat(p.Pid)
	return err == nil && now.Start == p.Start && state != "Z"
}

// kill ends the process and waits until it is gone. It is held by descriptor from before its start time is compared,
// so that no other process that got its number can be hit.
func (p process) kill() error {
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !p.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	const tenSeconds = 10_000
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, tenSeconds) //nolint:gosec // a descriptor is small
	return err
}

// wanters answers the processes that want the sandbox of process self: itself, and those above it up to the topmost
// make or go. Shells above those are left out: a run put into the background outlives its shell on purpose.
func wanters(self int) []process {
	var all, found []process
	for pid := self; pid > 1; {
		p, _, err := stat(pid)
		if err != nil {
			break
		}
		all = append(all, p)
		if name := nameOf(pid); pid == self || name == "make" || name == "gmake" || name == "go" {
			found = append([]process(nil), all...)
		}
		pid = parentOf(pid)
	}
	return found
}

func processOf(pid int) (process, error) {
	p, _, err := stat(pid)
	return p, err
}

// stat reads a process's start time and state (proc(5), /proc/pid/stat: fields 22 and 3).
func stat(pid int) (process, string, error) {
	fields, err := statFields(pid)
	if err != nil {
		return process{}, "", err
	}
	return process{Pid: pid, Start: fields[19]}, fields[0], nil
}

// statFields answers the fields after the name, which may hold spaces and brackets itself: fields[0] is field 3.
func statFields(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	return fields, nil
}

func parentOf(pid int) int {
	fields, err := statFields(pid)
	if err != nil {
		return 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return parent
}

func nameOf(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSpace(string(text))
}

// where names the boot and the pid namespace in which this process's numbers mean something.
func where() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", fmt.Errorf("read the pid namespace: %w", err)
	}
	return strings.TrimSpace(string(boot)) + " " + space, nil
}
