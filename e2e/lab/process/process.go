// Package process runs the programs of a lab: each in a network namespace, in a process group of its own, with its
// output in a file.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/berthlb/berth/e2e/lab/fabric"
)

// Spec says what to run.
type Spec struct {
	Name string   // of the process in messages
	Path string   // of the program
	Args []string // what it is called as, and its arguments
	Env  []string // the whole environment
	Log  string   // file that its output is appended to
	// Namespaces are the flags of clone(2) for those it gets of its own, besides the network's, which it is started in.
	Namespaces uintptr
}

// Process is a running or ended program. Its methods may be called from any goroutine.
type Process struct {
	Spec Spec
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; set before done is closed
}

// Start runs a program inside a namespace.
func Start(space *fabric.Space, spec Spec) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", spec.Name, err)
	}
	defer log.Close()
	cmd := &exec.Cmd{Path: spec.Path, Args: spec.Args, Env: spec.Env, Stdout: log, Stderr: log}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: spec.Namespaces}
	if err := space.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	p := &Process{Spec: spec, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Pid is the process's number in the lab's pid namespace.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err answers how an ended process ended: nil for exit code 0.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Alive tells whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process and all it started. Sending to an ended one is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Alive() {
		return nil
	}
	if err := syscall.Kill(-p.Pid(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s: %w", sig, p.Spec.Name, err)
	}
	return nil
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// Stop asks the process to end, waits for at most grace, then kills it. It tells whether the process ended by itself.
func (p *Process) Stop(grace time.Duration) (graceful bool, err error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return false, err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return true, nil
	case <-timer.C:
		return false, p.Kill()
	}
}

// Set is the processes of one host, so that all can be stopped at the same moment. The zero Set is ready for use.
type Set struct {
	mu  sync.Mutex
	all map[*Process]struct{}
}

// Start runs a program as one of the set.
func (s *Set) Start(space *fabric.Space, spec Spec) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := Start(space, spec)
	if err != nil {
		return nil, err
	}
	if s.all == nil {
		s.all = map[*Process]struct{}{}
	}
	s.all[p] = struct{}{}
	go func() {
		<-p.done
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, p)
	}()
	return p, nil
}

// Signal sends a signal to every process of the set, one right after the other.
func (s *Set) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for p := range s.all {
		errs = append(errs, p.Signal(sig))
	}
	return errors.Join(errs...)
}

// Kill ends every process of the set and waits until all are gone.
func (s *Set) Kill() error {
	err := s.Signal(syscall.SIGKILL)
	s.mu.Lock()
	var dying []*Process
	for p := range s.all {
		dying = append(dying, p)
	}
	s.mu.Unlock()
	for _, p := range dying {
		<-p.done
	}
	return err
}
