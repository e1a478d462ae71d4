package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// runProbe does once, in small, what a lab does, and says on the standard error what failed.
func runProbe() int {
	groups, err := arrange()
	if err == nil {
		err = errors.Join(tryLab(), tryGroups(groups))
	}
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		return 1
	}
	return 0
}

// tryLab makes a named network namespace with a link to a bridge and opens a packet socket.
func tryLab() error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("read the network namespace: %w", err)
	}
	defer home.Close()
	space, err := netns.NewNamed("probe")
	if err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	defer space.Close()
	if err := netns.Set(home); err != nil {
		return fmt.Errorf("return to the network namespace: %w", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "v0", MasterIndex: bridge.Attrs().Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(int(space)),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("make a veth pair: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	return unix.Close(fd)
}
