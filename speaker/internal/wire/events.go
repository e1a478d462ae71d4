package wire

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// receiveBuffer is how many bytes of events the kernel may hold for us, so that a burst of pods does not break off the
// stream.
const receiveBuffer = 1 << 20

// events are the kernel's link and address events. They have broken off once a channel closes or trouble has an error:
// also one about a single message, because what it said is lost.
type events struct {
	links     chan netlink.LinkUpdate
	addresses chan netlink.AddrUpdate
	done      chan struct{}
	trouble   chan error // holds the first error the library told
}

// subscribe opens one socket for links and one for addresses.
func subscribe() (*events, error) {
	e := &events{
		links:     make(chan netlink.LinkUpdate),
		addresses: make(chan netlink.AddrUpdate),
		done:      make(chan struct{}),
		trouble:   make(chan error, 1),
	}
	err := netlink.LinkSubscribeWithOptions(e.links, e.done, netlink.LinkSubscribeOptions{
		ErrorCallback: e.note, ReceiveBufferSize: receiveBuffer,
	})
	if err != nil {
		close(e.done)
		return nil, fmt.Errorf("subscribe to link events: %w", err)
	}
	err = netlink.AddrSubscribeWithOptions(e.addresses, e.done, netlink.AddrSubscribeOptions{
		ErrorCallback: e.note, ReceiveBufferSize: receiveBuffer,
	})
	if err != nil {
		close(e.addresses) // nobody else will
		e.close()
		return nil, fmt.Errorf("subscribe to address events: %w", err)
	}
	return e, nil
}

// note keeps the first error the library tells.
func (e *events) note(err error) {
	select {
	case e.trouble <- err:
	default:
	}
}

// failure says why a stream has closed.
func (e *events) failure() error {
	select {
	case err := <-e.trouble:
		return err
	default:
		return errors.New("the stream closed")
	}
}

// close ends the streams and waits for their goroutines, which may be about to deliver.
func (e *events) close() {
	close(e.done)
	for range e.links {
	}
	for range e.addresses {
	}
}
