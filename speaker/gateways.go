package main

import (
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// The node's gateways are read that often, and so many of them are told.
const (
	gatewaysAge = 30 * time.Second
	gatewaysCap = 16
)

// gateways are the default gateways of the node. Its method may be called from several goroutines.
type gateways struct {
	list func() ([]netip.Addr, error)
	log  logr.Logger

	mu    sync.Mutex // guards all below
	read  time.Time
	known []netip.Addr
	said  string // the last error
}

// current are the gateways as they were when they were last read, sorted. Where they cannot be read they stay as they were.
func (g *gateways) current(now time.Time) []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.read.IsZero() && now.Sub(g.read) < gatewaysAge {
		return g.known
	}
	g.read = now
	list, err := g.list()
	if err != nil {
		if text := err.Error(); text != g.said {
			g.said = text
			g.log.Info("cannot read the node's default gateways", "error", text)
		}
		return g.known
	}
	g.known, g.said = list[:min(len(list), gatewaysCap)], ""
	return g.known
}
