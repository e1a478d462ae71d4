package wire

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// MayOpen answers nil if this process may open raw sockets, which takes the capability NET_RAW (packet(7)). It opens one
// that receives nothing.
func MayOpen() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	return unix.Close(fd) //nolint:wrapcheck // closing what was just opened does not fail
}
