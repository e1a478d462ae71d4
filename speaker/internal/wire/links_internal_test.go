package wire

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"

	"github.com/berthlb/berth/internal/cluster"
)

// kernel gives events and lists to a follower, as netlink does.
type kernel struct {
	mu         sync.Mutex // guards all below
	devices    []device
	refuse     error // what listing gives
	events     *events
	subscribed int
}

func (k *kernel) subscribe() (*events, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.subscribed++
	e := &events{
		links: make(chan netlink.LinkUpdate), addresses: make(chan netlink.AddrUpdate),
		done: make(chan struct{}), trouble: make(chan error, 1),
	}
	k.events = e
	go func() { // as the library does
		<-e.done
		close(e.links)
	}()
	go func() {
		<-e.done
		close(e.addresses)
	}()
	return e, nil
}

// change changes what the kernel says from now on.
func (k *kernel) change(to func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	to()
}

func (k *kernel) list(into *table) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		into.setDevice(d)
	}
	return k.refuse
}

// TestABrokenStreamIsRepaired lets the kernel break off, as it does when its buffer for us runs over: what happened
// meanwhile is found by listing.
func TestABrokenStreamIsRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{devices: []device{good("eth0", 1)}, refuse: errors.New("interrupted")}
		l := NewLinks(exclude(), logr.Discard())
		l.subscribe, l.list = k.subscribe, k.list
		ctx, cancel := context.WithCancel(t.Context())
		wakes := 0
		done := make(chan error)
		go func() { done <- l.Run(ctx, func() { wakes++ }) }()
		settle := func() {
			<-time.After(lastRetry)
			synctest.Wait()
		}

		settle()
		if links := l.Current(); len(links) != 0 {
			t.Errorf("listing failed, and yet there are %v", links)
		}
		k.change(func() { k.refuse = nil })
		settle()
		if links := l.Current(); len(links) != 1 {
			t.Fatalf("listing works again, and there are %v", links)
		}
		epoch, before, subscribed := l.Epoch(), wakes, k.subscribed
		settle()
		if wakes != before || k.subscribed != subscribed {
			t.Errorf("with nothing new it was woken %d times, and subscribed %d times", wakes-before, k.subscribed-subscribed)
		}

		k.change(func() { k.devices = append(k.devices, good("eth1", 2)) })
		k.events.trouble <- errors.New("no buffer space available")
		settle()
		if links := l.Current(); len(links) != 2 {
			t.Errorf("what was lost was not found: %v", links)
		}
		if l.Epoch() == epoch || wakes == before {
			t.Error("nobody was told that every link may have been touched")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPromiscuityIsNoChange(t *testing.T) {
	t.Parallel()
	table := newTable(exclude())
	update := netlink.LinkUpdate{Link: &netlink.Device{LinkAttrs: netlink.LinkAttrs{
		Name: "eth0", Index: 1, HardwareAddr: []byte{2, 0, 0, 0, 0, 1}, EncapType: "ether",
		RawFlags: 0x10043, // up, broadcast, running, lower up
	}}}
	if !takeLink(table, update) {
		t.Error("a link that comes up touches nothing")
	}
	const promiscuous = 0x100
	update.Change = promiscuous
	if takeLink(table, update) {
		t.Error("promiscuity touches the link: with tcpdump everything would be announced again")
	}
	update.Change = promiscuous | 1
	if !takeLink(table, update) {
		t.Error("going up does not touch the link")
	}
	const bridgeFamily = 7
	update.Family, update.Header.Type = bridgeFamily, 17
	if takeLink(table, update) || len(table.links()) != 1 {
		t.Error("a port that leaves its bridge counts as deleted")
	}
	if want := (cluster.Link{Name: "eth0", Index: 1, MAC: [6]byte{2, 0, 0, 0, 0, 1}}); table.links()[0].MAC != want.MAC {
		t.Errorf("read %v", table.links())
	}
}
