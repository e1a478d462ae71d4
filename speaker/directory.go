package main

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthlb/berth/api/v1beta1"
)

// directory knows where speakers are: which addresses each Node has, and the gossip address each speaker has published.
// It is what gossip is told about the cluster (rule E4). All methods may be called from several goroutines.
type directory struct {
	mu       sync.Mutex // guards all below
	nodes    map[string][]netip.Addr
	speakers map[string]netip.AddrPort
}

func newDirectory() *directory {
	return &directory{nodes: map[string][]netip.Addr{}, speakers: map[string]netip.AddrPort{}}
}

func (d *directory) setNode(object *corev1.Node) {
	texts := make([]string, 0, len(object.Status.Addresses))
	for i := range object.Status.Addresses {
		texts = append(texts, object.Status.Addresses[i].Address)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[object.Name] = parseAddresses(texts)
}

func (d *directory) deleteNode(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, name)
}

func (d *directory) setSpeaker(object *v1beta1.Speaker) {
	address, err := netip.ParseAddrPort(object.Status.GossipAddress)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		delete(d.speakers, object.Name)
		return
	}
	d.speakers[object.Name] = address
}

func (d *directory) deleteSpeaker(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.speakers, name)
}

// known are the speakers whose Node exists, with their gossip addresses.
func (d *directory) known() map[string][]netip.AddrPort {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make(map[string][]netip.AddrPort, len(d.speakers))
	for name, address := range d.speakers {
		if _, exists := d.nodes[name]; exists {
			list[name] = []netip.AddrPort{address}
		}
	}
	return list
}

// allowed is true if a member may be that node's: the Node exists and has the address (rule E4).
func (d *directory) allowed(name string, address netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.nodes[name], address)
}
