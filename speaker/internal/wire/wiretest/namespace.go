// Package wiretest gives tests network namespaces of their own, veth pairs between them, and taps that see every
// frame of ARP or neighbour discovery on a link. Everything is gone when the test ends.
package wiretest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace. It lives as long as the test.
type Namespace struct {
	t       testing.TB
	file    *os.File
	running sync.WaitGroup
}

// NewNamespace makes an empty namespace. The test is skipped, with a sentence, where that is not allowed.
func NewNamespace(tb testing.TB) *Namespace {
	tb.Helper()
	n := &Namespace{t: tb}
	var err error
	onThread(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	})
	if errors.Is(err, unix.EPERM) {
		tb.Skip("needs root: this test makes network namespaces, which this user may not")
	}
	if err != nil {
		tb.Fatalf("make a network namespace: %v", err)
	}
	tb.Cleanup(func() {
		n.running.Wait()
		if err := n.file.Close(); err != nil {
			tb.Errorf("close the network namespace: %v", err)
		}
	})
	return n
}

// Do runs f inside the namespace and waits for it. f must not start goroutines that open sockets: they would run
// outside.
func (n *Namespace) Do(f func() error) {
	n.t.Helper()
	var err error
	onThread(func() {
		if err = n.enter(); err == nil {
			err = f()
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// Go runs f inside the namespace beside the test. The test has to see to it that f ends: the namespace waits for it.
func (n *Namespace) Go(f func() error) {
	n.running.Go(func() {
		onThread(func() {
			err := n.enter()
			if err == nil {
				err = f()
			}
			if err != nil {
				n.t.Error(err)
			}
		})
	})
}

func (n *Namespace) enter() error {
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	return nil
}

// onThread runs f on a thread of its own, which the runtime throws away afterwards because it is still locked when its
// goroutine ends: no other goroutine ever runs in the namespace by mistake.
func onThread(f func()) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread()
		f()
	})
	done.Wait()
}
