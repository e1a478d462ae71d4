package ipam

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
)

// count is a number of addresses, up to 2^128-1. An IPv6 pool has easily more addresses than an int64 can count.
type count struct{ high, low uint64 }

// plus is the sum; it stays at the largest number that can be held. Only ::/0, with 2^128 addresses, gets there.
func (c count) plus(d count) count {
	low, carry := bits.Add64(c.low, d.low, 0)
	high, overflow := bits.Add64(c.high, d.high, carry)
	if overflow != 0 {
		return count{math.MaxUint64, math.MaxUint64}
	}
	return count{high, low}
}

// minus is the difference, 0 at least.
func (c count) minus(d count) count {
	low, borrow := bits.Sub64(c.low, d.low, 0)
	high, underflow := bits.Sub64(c.high, d.high, borrow)
	if underflow != 0 {
		return count{}
	}
	return count{high, low}
}

// int64 is the number as statuses show it: 2^63-1 stands for everything above (rule P17).
func (c count) int64() int64 {
	if c.high > 0 || c.low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(c.low)
}

// position is an address as a number.
func position(address netip.Addr) count {
	bytes := address.As16()
	if address.Is4() {
		return count{0, uint64(binary.BigEndian.Uint32(bytes[12:]))}
	}
	return count{binary.BigEndian.Uint64(bytes[:8]), binary.BigEndian.Uint64(bytes[8:])}
}
