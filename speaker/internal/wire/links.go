package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/internal/cluster"
)

// The pause before the kernel is asked anew after it broke off: the first one, and the longest.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Links follows the node's links by the kernel's events; it never polls.
//
// Run owns the table and the sockets. What it publishes is guarded by the lock, and may be read from any goroutine.
type Links struct {
	exclude   *regexp.Regexp
	log       logr.Logger
	listed    chan struct{}           // closed once the links are known for the first time
	subscribe func() (*events, error) // to the kernel's events
	list      func(into *table) error // what the kernel has

	mu      sync.Mutex
	current []cluster.Link
	epoch   uint64
}

// NewLinks gives a follower that leaves out the links whose name exclude matches.
func NewLinks(exclude *regexp.Regexp, log logr.Logger) *Links {
	return &Links{exclude: exclude, log: log, listed: make(chan struct{}), subscribe: subscribe, list: list}
}

// Listed is closed once the links are known for the first time.
func (l *Links) Listed() <-chan struct{} { return l.listed }

// Current are the links that can carry announcements now, sorted by name. The list is shared and not to be changed.
func (l *Links) Current() []cluster.Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// Epoch grows with every event that touches a usable link, also one after which everything is as before (rule P4).
func (l *Links) Epoch() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// RouteTo is the index of the link that the node's own packets to an address leave by. ok is false if there is no route.
func (l *Links) RouteTo(address netip.Addr) (linkIndex int, ok bool) {
	routes, err := netlink.RouteGet(address.AsSlice())
	if err != nil || len(routes) == 0 {
		return 0, false
	}
	return routes[0].LinkIndex, true
}

// Run follows the links until ctx ends. wake is called after every change, when Current and Epoch already tell it; it
// must not block. Where the kernel breaks off (its buffer for us ran over, say), all links are listed again.
func (l *Links) Run(ctx context.Context, wake func()) error {
	pause, said := firstRetry, ""
	for {
		started := time.Now()
		err := l.follow(ctx, wake)
		if err == nil {
			return nil
		}
		if time.Since(started) > lastRetry {
			pause = firstRetry
		}
		if text := err.Error(); text != said {
			said = text
			l.log.Info("listing all links again, because the kernel's link events broke off", "reason", text)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRetry)
	}
}

// follow subscribes first and lists then, so that nothing falls between the two, and takes in events until the kernel
// breaks off, or until ctx ends: then it returns nil.
func (l *Links) follow(ctx context.Context, wake func()) error {
	events, err := l.subscribe()
	if err != nil {
		return err
	}
	defer events.close()
	t := newTable(l.exclude)
	if err := l.list(t); err != nil {
		return err
	}
	// Whatever happened while nobody listened may have touched every link.
	l.publish(t, true, wake)
	for {
		var touched bool
		select {
		case <-ctx.Done():
			return nil
		case err := <-events.trouble:
			return fmt.Errorf("receive link and address events: %w", err)
		case update, open := <-events.links:
			if !open {
				return fmt.Errorf("receive link events: %w", events.failure())
			}
			touched = takeLink(t, update)
		case update, open := <-events.addresses:
			if !open {
				return fmt.Errorf("receive address events: %w", events.failure())
			}
			touched = takeAddress(t, update)
		}
		l.publish(t, touched, wake)
	}
}

// publish makes the table's links known, if they differ from those known or if a usable one was touched.
func (l *Links) publish(t *table, touched bool, wake func()) {
	links := t.links()
	l.mu.Lock()
	changed := !reflect.DeepEqual(links, l.current)
	if changed || touched {
		l.current = links
		l.epoch++
	}
	l.mu.Unlock()
	select {
	case <-l.listed:
	default:
		close(l.listed)
	}
	if changed || touched {
		wake()
	}
}

// takeLink feeds a link event to the table. Events of the bridge family tell of a port's part in its bridge: a deletion
// there is no deletion of the link. One that only switches promiscuity (tcpdump does) is no change of the link either.
func takeLink(t *table, update netlink.LinkUpdate) (touched bool) {
	if update.Family != unix.AF_UNSPEC {
		return false
	}
	if update.Header.Type == unix.RTM_DELLINK {
		return t.dropDevice(int(update.Index))
	}
	touched = t.setDevice(deviceOf(update.Link))
	onlyPromiscuity := update.Change != 0 && update.Change&^(unix.IFF_PROMISC|unix.IFF_ALLMULTI) == 0
	return touched && !onlyPromiscuity
}

// takeAddress feeds an address event to the table. An address that turns tentative is not in use any more.
func takeAddress(t *table, update netlink.AddrUpdate) (touched bool) {
	address, usable := addressOf(update.LinkAddress, update.Flags)
	if update.NewAddr && usable {
		return t.setAddress(update.LinkIndex, address)
	}
	return t.dropAddress(update.LinkIndex, address)
}

// list fills the table with all links and addresses.
func list(t *table) error {
	links, err := complete(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		t.setDevice(deviceOf(link))
	}
	addresses, err := complete(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		if address, usable := addressOf(*a.IPNet, a.Flags); usable {
			t.setAddress(a.LinkIndex, address)
		}
	}
	return nil
}

// complete asks the kernel for a list until one arrives that no change interrupted; a few times at most, because the
// events that interrupt it are in our socket already.
func complete[T any](ask func() ([]T, error)) ([]T, error) {
	const tries = 5
	for try := 1; ; try++ {
		all, err := ask()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || try == tries {
			return all, err
		}
	}
}
