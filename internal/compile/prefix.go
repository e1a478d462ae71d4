package compile

import (
	"cmp"
	"net/netip"
	"slices"
)

// sortPrefixes sorts by address, then by length.
func sortPrefixes(list []netip.Prefix) {
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
}
