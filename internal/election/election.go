// Package election says which of several nodes owns an address: rendezvous hashing (highest random weight, Thaler and
// Ravishankar 1998) of node and address. It depends on nothing but the two names, so speakers that know the same
// candidates agree without a word, and when a node comes or goes only its own addresses move (rules E3, P11).
package election

import (
	"encoding/binary"
	"net/netip"

	"github.com/cespare/xxhash/v2"
)

// Version is the version of the election this package computes. Speakers tell each other the versions they can, and
// all use the highest that every one can (rule E11). A change of Seed, KeyOf, Score or of the tiers is a new version.
const Version = 1

// Seed is a node's part of the hash: XXH64, seed 0, of its name.
func Seed(node string) uint64 { return xxhash.Sum64String(node) }

// KeyOf is an address's part of the hash: XXH64, seed 0, of its 16 bytes (IPv4 as IPv4-mapped IPv6, RFC 4291 section
// 2.5.5.2). The address alone counts, never the Service: Services that share it have one owner (rule E3).
func KeyOf(address netip.Addr) uint64 {
	bytes := address.As16()
	return xxhash.Sum64(bytes[:])
}

// Score is the rank of a node for an address: XXH64, seed 0, of the 16 bytes made of the node's part and the address's
// part, each little-endian. The highest score wins.
func Score(seed, key uint64) uint64 {
	var bytes [16]byte
	binary.LittleEndian.PutUint64(bytes[:8], seed)
	binary.LittleEndian.PutUint64(bytes[8:], key)
	return xxhash.Sum64(bytes[:])
}

// Winner is the node with the highest score for the address, the one first by name if two are equal; "" if there is
// none to choose from.
func Winner(nodes []string, address netip.Addr) string {
	winner, best := "", uint64(0)
	key := KeyOf(address)
	for _, node := range nodes {
		score := Score(Seed(node), key)
		if winner == "" || score > best || (score == best && node < winner) {
			winner, best = node, score
		}
	}
	return winner
}
