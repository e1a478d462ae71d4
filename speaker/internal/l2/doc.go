// Package l2 answers ARP and neighbour discovery for the addresses this node owns, and tells neighbours of a change by
// gratuitous frames (rules L1 to L4).
//
//	Set, Confirm ──► Responder ── assign ──► port eth0, IPv4 ── listen:   request → reply
//	LinksChanged ──►   (Run)                                └── announce: Schedule → gratuitous frames
//	                             ──────────► port eth0, IPv6 …
//	                             ──────────► port eth1, IPv4 …
//
// Responder.Run owns the ports, one for each link and family, and decides by assign which port speaks for which address. A port has
// two goroutines of its own, so that an error on one link never affects another (rule P14), nor one in a family the other. What decides when to send,
// Schedule, has no clock and no goroutine.
//
// Every frame, answer or announcement, is sent only if at that moment the newest claims hold the address and the agent
// has confirmed them within the last second (rule P1). Both are read without a lock, so a loss takes effect at once.
//
// A port knows its link only by the interfaces Receiver and Sender, which are alike for both protocols.
package l2
