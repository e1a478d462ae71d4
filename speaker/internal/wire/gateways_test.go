package wire_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/speaker/internal/wire"
	"github.com/berthlb/berth/speaker/internal/wire/wiretest"
)

// TestGateways: every next hop of a default route, and of no other route.
func TestGateways(t *testing.T) {
	t.Parallel()
	a, b := wiretest.NewNamespace(t), wiretest.NewNamespace(t)
	wiretest.Pair(a, "eth0", b, "peer0")
	a.AddAddress("eth0", netip.MustParsePrefix("192.0.2.10/24"))
	a.AddAddress("eth0", netip.MustParsePrefix("2001:db8::10/64"))
	a.AddRoute(netip.MustParsePrefix("203.0.113.0/24"), netip.MustParseAddr("192.0.2.9"))
	gateways := func() (texts []string) {
		a.Do(func() error {
			list, err := wire.Gateways()
			for _, one := range list {
				texts = append(texts, one.String())
			}
			return err
		})
		return texts
	}
	if got := gateways(); len(got) > 0 {
		t.Errorf("without a default route: %v", got)
	}
	a.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1"))
	a.AddRoute(netip.MustParsePrefix("::/0"), netip.MustParseAddr("2001:db8::1"))
	if diff := cmp.Diff([]string{"192.0.2.1", "192.0.2.2", "2001:db8::1"}, gateways()); diff != "" {
		t.Error(diff)
	}
}
