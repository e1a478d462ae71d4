package l2

import (
	"net/netip"
	"reflect"

	"github.com/berthlb/berth/internal/cluster"
)

// routes remembers which link each address is routed to, because claims come many times a second and each question is a
// question to the kernel. It forgets when the links change. It is not safe for concurrent use.
type routes struct {
	ask   func(netip.Addr) (int, bool)
	links []cluster.Link
	known map[netip.Addr]route
}

// route is one answer.
type route struct {
	index int
	ok    bool
}

// at gives the function to ask while the links are these.
func (r *routes) at(links []cluster.Link) func(netip.Addr) (int, bool) {
	if r.known == nil || !reflect.DeepEqual(links, r.links) {
		r.forget()
		r.links = links
	}
	return r.to
}

// forget has every address asked about again.
func (r *routes) forget() { r.known = map[netip.Addr]route{} }

// to is the index of the link an address is routed to.
func (r *routes) to(address netip.Addr) (index int, ok bool) {
	answer, known := r.known[address]
	if !known {
		answer.index, answer.ok = r.ask(address)
		r.known[address] = answer
	}
	return answer.index, answer.ok
}
