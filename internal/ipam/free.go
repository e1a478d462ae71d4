package ipam

import (
	"net/netip"
	"slices"

	"github.com/google/btree"
)

// span is an interval of addresses of one family, both ends included.
type span struct{ from, to netip.Addr }

// size is how many addresses the span has.
func (s span) size() count {
	return position(s.to).minus(position(s.from)).plus(count{low: 1})
}

// degree of the trees. Wide nodes make a tree of a million spans four levels deep.
const degree = 32

// freeSet is the free addresses of one family of a pool, as disjoint spans in order. Every operation costs the
// logarithm of the number of spans, whatever the size of the pool (rule P17).
//
// With avoidBuggy, IPv4 addresses ending in .0 and .255 are not free. They are not cut out one by one, since a large
// pool has very many of them: no span begins or ends with one, and none in between is ever looked at.
type freeSet struct {
	spans      *btree.BTreeG[span]
	avoidBuggy bool
	free       count
}

func newFreeSet(avoidBuggy bool) *freeSet {
	less := func(a, b span) bool { return a.from.Less(b.from) }
	return &freeSet{spans: btree.NewG(degree, less), avoidBuggy: avoidBuggy}
}

// clone is a copy; the two share what neither changes.
func (f *freeSet) clone() *freeSet {
	return &freeSet{spans: f.spans.Clone(), avoidBuggy: f.avoidBuggy, free: f.free}
}

// buggy is true for an IPv4 address ending in .0 or .255 (rule A5).
func buggy(address netip.Addr) bool {
	if !address.Is4() {
		return false
	}
	last := address.As4()[3]
	return last == 0 || last == 255
}

// skips is true if the set leaves the address out.
func (f *freeSet) skips(address netip.Addr) bool { return f.avoidBuggy && buggy(address) }

// insert adds a span that touches no other, without those ends that are left out.
func (f *freeSet) insert(from, to netip.Addr) {
	for from.IsValid() && f.skips(from) {
		from = from.Next()
	}
	for to.IsValid() && f.skips(to) {
		to = to.Prev()
	}
	if from.IsValid() && to.IsValid() && !to.Less(from) {
		f.spans.ReplaceOrInsert(span{from, to})
	}
}

// fill adds a span that touches no other and counts its addresses.
func (f *freeSet) fill(s span) {
	f.insert(s.from, s.to)
	f.free = f.free.plus(s.size())
	if f.avoidBuggy && s.from.Is4() {
		f.free = f.free.minus(buggyIn(s))
	}
}

// buggyIn counts the addresses of a span that end in .0 or .255.
func buggyIn(s span) count {
	from, to := position(s.from).low, position(s.to).low
	zeros := to>>8 + 1 - (from+255)>>8
	ones := (to+1)>>8 - from>>8
	return count{low: zeros + ones}
}

// find is the span that has the address.
func (f *freeSet) find(address netip.Addr) (span, bool) {
	var at span
	f.spans.DescendLessOrEqual(span{from: address}, func(s span) bool {
		at = s
		return false
	})
	return at, at.from.IsValid() && !at.to.Less(address)
}

// has is true if the address is free.
func (f *freeSet) has(address netip.Addr) bool {
	_, found := f.find(address)
	return found && !f.skips(address)
}

// any is true if an address is free.
func (f *freeSet) any() bool { return f.spans.Len() > 0 }

// lowest is the lowest free address, but for those.
func (f *freeSet) lowest(but []netip.Addr) (lowest netip.Addr, found bool) {
	f.spans.Ascend(func(s span) bool {
		for at := s.from; at.IsValid() && !s.to.Less(at); at = at.Next() {
			if found = !f.skips(at) && !slices.Contains(but, at); found {
				lowest = at
				break
			}
		}
		return !found
	})
	return lowest, found
}

// take makes an address not free; one that is not free stays so.
func (f *freeSet) take(address netip.Addr) {
	at, found := f.find(address)
	if !found {
		return
	}
	f.spans.Delete(at)
	if at.from != address {
		f.insert(at.from, address.Prev())
	}
	if at.to != address {
		f.insert(address.Next(), at.to)
	}
	if !f.skips(address) {
		f.free = f.free.minus(count{low: 1})
	}
}

// give makes an address free that belongs to the pool and is not free.
func (f *freeSet) give(address netip.Addr) {
	if f.skips(address) {
		return
	}
	joined := span{address, address}
	if before, found := f.find(address.Prev()); address.Prev().IsValid() && found && before.to == address.Prev() {
		f.spans.Delete(before)
		joined.from = before.from
	}
	if after, found := f.spans.Get(span{from: address.Next()}); address.Next().IsValid() && found {
		f.spans.Delete(after)
		joined.to = after.to
	}
	f.spans.ReplaceOrInsert(joined)
	f.free = f.free.plus(count{low: 1})
}
