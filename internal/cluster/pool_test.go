package cluster_test

import (
	"net/netip"
	"testing"

	"go4.org/netipx"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/lbtest"
)

// TestPoolContains: the ends of every range are the pool's, their neighbours are not.
func TestPoolContains(t *testing.T) {
	t.Parallel()
	pool := &cluster.Pool{}
	for _, text := range []string{"192.0.2.10-192.0.2.20", "192.0.2.30-192.0.2.30", "2001:db8::-2001:db8::f"} {
		pool.Ranges = append(pool.Ranges, netipx.MustParseIPRange(text))
	}
	for text, want := range map[string]bool{
		"192.0.2.9": false, "192.0.2.10": true, "192.0.2.20": true, "192.0.2.21": false, "192.0.2.30": true, "192.0.2.31": false,
		"2001:db7:ffff::": false, "2001:db8::": true, "2001:db8::f": true, "2001:db8::10": false, "255.255.255.255": false,
	} {
		if got := pool.Contains(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestPoolOpen is serviceAllocation: namespaces by name or label, Services by label, and both where both are given (rule
// A4).
func TestPoolOpen(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		pool   cluster.Pool
		want   bool // for Service shop/web, app=web, in a namespace with team=shop
	}{
		"Everybody": {reason: "no restriction", want: true},
		"Named":     {reason: "the namespace by name", pool: cluster.Pool{Namespaces: []string{"blog", "shop"}}, want: true},
		"OtherName": {reason: "another namespace", pool: cluster.Pool{Namespaces: []string{"blog"}}},
		"ByLabel": {
			reason: "the namespace by label",
			pool:   cluster.Pool{Namespaces: []string{"blog"}, NamespaceSelectors: []cluster.Selector{lbtest.Selector("team=shop")}}, want: true,
		},
		"OtherLabel":   {reason: "another label", pool: cluster.Pool{NamespaceSelectors: []cluster.Selector{lbtest.Selector("team=blog")}}},
		"Service":      {reason: "the Service by label", pool: cluster.Pool{ServiceSelectors: []cluster.Selector{lbtest.Selector("app=web")}}, want: true},
		"OtherService": {reason: "another Service", pool: cluster.Pool{ServiceSelectors: []cluster.Selector{lbtest.Selector("app=blog")}}},
		"NamespaceAndNot": {
			reason: "both must match",
			pool:   cluster.Pool{Namespaces: []string{"shop"}, ServiceSelectors: []cluster.Selector{lbtest.Selector("app=blog")}},
		},
		"NamespaceAndThis": {
			reason: "both do",
			pool:   cluster.Pool{Namespaces: []string{"shop"}, ServiceSelectors: []cluster.Selector{lbtest.Selector("app=web")}}, want: true,
		},
	}
	service := lbtest.Service("shop/web", nil, lbtest.Labelled("app=web"))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.pool.Open(service, lbtest.Labels("team=shop")); got != c.want {
				t.Errorf("%s: %v", c.reason, got)
			}
			if restricted := name != "Everybody"; c.pool.Restricted() != restricted {
				t.Errorf("%s: Restricted is %v", c.reason, c.pool.Restricted())
			}
		})
	}
}
