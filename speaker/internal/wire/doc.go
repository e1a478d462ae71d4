// Package wire is the speaker's hand on the node's links: it tells by event which links can carry announcements, and it
// receives and sends frames of ARP and of neighbour discovery on them.
//
// It is the only importer of mdlayher/* and vishvananda/netlink. Nothing here decides who answers for an address: that
// is for the core; nor when to speak: that is for package l2, whose small interfaces the types here satisfy.
package wire
