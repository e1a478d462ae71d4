// Package fabric makes hosts that are network namespaces, and the Ethernet segment that joins them.
//
//	       bridge br0 (no multicast snooping), 172.30.0.1/24, fd00:30::1/64
//	  ┌─────────┬─────────┬─────────┐
//	control    n1        n2       client     each a network namespace: a link eth0, a default route to the bridge
//
// A default route is needed everywhere: without one the kernel refuses a ClusterIP before kube-proxy's rules see it.
package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Space is a network namespace with a name under /run/netns, so that `ip netns exec` finds it too. Its methods may be
// called from any goroutine.
type Space struct {
	Name   string
	handle netns.NsHandle
}

// NewSpace makes a network namespace with its loopback up and, of the kernel's settings, those a host of the lab has:
// it forwards, and uses its addresses at once (no duplicate address detection).
func NewSpace(name string) (*Space, error) {
	s := &Space{Name: name}
	if err := s.create(); err != nil {
		return nil, fmt.Errorf("make network namespace %s: %w", name, err)
	}
	if err := s.Do(arrange); err != nil {
		return nil, errors.Join(fmt.Errorf("arrange network namespace %s: %w", name, err), s.Close())
	}
	return s, nil
}

func (s *Space) create() error {
	return onOwnThread(func() error {
		handle, err := netns.NewNamed(s.Name)
		s.handle = handle
		return err
	})
}

// onOwnThread runs f on a thread whose network namespace f may change, and brings the thread back. A thread that
// cannot be brought back is given up: it ends with its goroutine.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		err = f()
		back := netns.Set(home)
		home.Close()
		if back == nil {
			runtime.UnlockOSThread()
		}
		result <- errors.Join(err, back)
	}()
	return <-result
}

// Do runs f inside the namespace. Sockets that f opens and processes it starts belong there for good; goroutines it
// starts do not run there.
func (s *Space) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(s.handle); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", s.Name, err)
		}
		return f()
	})
}

// Links answers a netlink handle that works inside the namespace. The caller closes it.
func (s *Space) Links() (*netlink.Handle, error) {
	handle, err := netlink.NewHandleAt(s.handle)
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", s.Name, err)
	}
	return handle, nil
}

// DialContext dials an address, which must be numeric, from inside the namespace.
func (s *Space) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := s.Do(func() error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Close takes the name away; the namespace itself goes with its last process and socket.
func (s *Space) Close() error {
	err := s.handle.Close()
	return errors.Join(err, netns.DeleteNamed(s.Name))
}

// Sysctl writes a setting below /proc/sys/net of the namespace.
func (s *Space) Sysctl(name, value string) error {
	return s.Do(func() error { return sysctl(name, value) })
}

func sysctl(name, value string) error {
	if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return nil
}

// arrange runs inside a new namespace.
func arrange() error {
	for _, name := range []string{"all", "default"} {
		if err := sysctl("ipv6/conf/"+name+"/accept_dad", "0"); err != nil {
			return err
		}
		if err := sysctl("ipv6/conf/"+name+"/forwarding", "1"); err != nil {
			return err
		}
	}
	if err := sysctl("ipv4/ip_forward", "1"); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
