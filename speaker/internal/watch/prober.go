package watch

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/berthlb/berth/internal/cluster"
)

// Socket asks and hears on one link.
type Socket interface {
	// Watch says from which addresses it is to hear.
	Watch(addresses []netip.Addr) error
	// Ask asks the host with that hardware address for an address, from one of ours.
	Ask(to [6]byte, from, address netip.Addr) error
	// Listen calls heard for every frame from one of those addresses until the socket is closed, or cannot hear any more.
	// refused is told of frames that are of no use.
	Listen(heard func(sender [6]byte, source, target netip.Addr, at time.Time), refused func(why string, frames int)) error
	Close() error
}

// prober asks kernels on links of ours, each of which has a socket of its own for as long as somebody is asked there.
// Its methods are called by one goroutine; the sockets' own goroutines only call answered and ended.
type prober struct {
	open     func(at place) (Socket, error)
	answered func(link int, address netip.Addr, mac [6]byte)
	ended    func(at place) // a socket hears no more
	log      logr.Logger

	sockets  map[place]*probing
	troubled map[place]string // the last error of a link, so that it is said once
	hearing  sync.WaitGroup
}

// place is where a socket is: a link of ours, by index, in one of the two families.
type place struct {
	link   int
	family cluster.Family
}

func placeOf(path *Path) place { return place{path.Link, cluster.FamilyOf(path.Address)} }

// probing is a socket in use.
type probing struct {
	Socket

	addresses []netip.Addr
	ended     chan struct{} // closed when it hears no more
}

// set says who is asked from now on. A socket that hears no more is opened again.
func (p *prober) set(targets []Target) {
	wanted := map[place][]netip.Addr{}
	for _, target := range targets {
		for i := range target.Paths {
			at := placeOf(&target.Paths[i])
			wanted[at] = append(wanted[at], target.Paths[i].Address)
		}
	}
	for at, socket := range p.sockets {
		if wanted[at] == nil || socket.over() {
			p.trouble(at, socket.Close())
			delete(p.sockets, at)
		}
	}
	for at, addresses := range wanted {
		slices.SortFunc(addresses, netip.Addr.Compare)
		p.trouble(at, p.serve(at, addresses))
	}
}

// serve has a link hear these addresses.
func (p *prober) serve(at place, addresses []netip.Addr) error {
	socket := p.sockets[at]
	if socket == nil {
		opened, err := p.open(at)
		if err != nil {
			return err
		}
		socket = &probing{Socket: opened, ended: make(chan struct{})}
		p.sockets[at] = socket
		p.hearing.Go(func() { p.hear(at, socket) })
	}
	if slices.Equal(socket.addresses, addresses) {
		return nil
	}
	if err := socket.Watch(addresses); err != nil {
		return fmt.Errorf("hear what kernels answer: %w", err)
	}
	socket.addresses = addresses
	return nil
}

// hear hands on what a link hears.
func (p *prober) hear(at place, socket *probing) {
	defer func() {
		close(socket.ended)
		p.ended(at)
	}()
	err := socket.Listen(func(sender [6]byte, source, _ netip.Addr, _ time.Time) { p.answered(at.link, source, sender) },
		func(string, int) {})
	if err != nil {
		p.log.V(1).Info("hearing what kernels answer has ended", "link", at.link, "error", err.Error())
	}
}

func (s *probing) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// ask asks. unasked are the paths over which it could not.
func (p *prober) ask(paths []Path) (unasked []Path) {
	for i := range paths {
		path, at := &paths[i], placeOf(&paths[i])
		socket := p.sockets[at]
		if socket == nil {
			unasked = append(unasked, *path)
			continue
		}
		if err := socket.Ask(path.MAC, path.From, path.Address); err != nil {
			unasked = append(unasked, *path)
			p.trouble(at, err)
		}
	}
	return unasked
}

// trouble says once what keeps a link from asking. The link is not armed then, and memberlist alone decides.
func (p *prober) trouble(at place, err error) {
	if err == nil {
		return
	}
	if text := err.Error(); p.troubled[at] != text {
		p.troubled[at] = text
		p.log.Info("cannot ask other nodes' kernels whether they live", "link", at.link, "family", at.family.String(), "error", text)
	}
}

// close ends all sockets and waits until nothing is heard.
func (p *prober) close() {
	for at, socket := range p.sockets {
		p.trouble(at, socket.Close())
	}
	p.hearing.Wait()
}

// linkOf is a link by index.
func linkOf(links []cluster.Link, index int) (cluster.Link, bool) {
	i := slices.IndexFunc(links, func(l cluster.Link) bool { return l.Index == index })
	if i < 0 {
		return cluster.Link{}, false
	}
	return links[i], true
}
