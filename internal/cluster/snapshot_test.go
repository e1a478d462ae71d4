package cluster_test

import (
	"testing"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/lbtest"
)

// TestMatchesService: for which Services and pools an advertisement is. Without pools it is for all; with both lists one
// match is enough; a pool that is gone is matched by its name alone (rule A10).
func TestMatchesService(t *testing.T) {
	t.Parallel()
	pool := &cluster.Pool{Name: "public", Labels: lbtest.Labels("zone=dmz")}
	selector := []cluster.Selector{lbtest.Selector("zone=dmz")}
	cases := map[string]struct {
		reason        string
		advertisement cluster.Advertisement
		pool          *cluster.Pool
		want          bool // for a Service with app=web and an address of the pool public
	}{
		"All":        {reason: "no selector at all", pool: pool, want: true},
		"AllWithout": {reason: "nor a pool", want: true},
		"Named":      {reason: "the pool by name", advertisement: cluster.Advertisement{Pools: []string{"dmz", "public"}}, pool: pool, want: true},
		"NamedGone":  {reason: "its name stays", advertisement: cluster.Advertisement{Pools: []string{"public"}}, want: true},
		"Other":      {reason: "another pool", advertisement: cluster.Advertisement{Pools: []string{"dmz"}}, pool: pool},
		"ByLabel": {
			reason:        "the pool by label",
			advertisement: cluster.Advertisement{Pools: []string{"dmz"}, PoolSelectors: selector}, pool: pool, want: true,
		},
		"ByLabelGone": {reason: "its labels do not stay", advertisement: cluster.Advertisement{PoolSelectors: selector}},
		"Service": {
			reason:        "the Service by label",
			advertisement: cluster.Advertisement{ServiceSelectors: []cluster.Selector{lbtest.Selector("app=web")}}, pool: pool, want: true,
		},
		"NotService": {
			reason:        "both must match",
			advertisement: cluster.Advertisement{Pools: []string{"public"}, ServiceSelectors: []cluster.Selector{lbtest.Selector("app=blog")}}, pool: pool,
		},
	}
	service := lbtest.Service("shop/web", []string{"192.0.2.10"}, lbtest.Labelled("app=web"))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.advertisement.MatchesService(service, "public", c.pool); got != c.want {
				t.Errorf("%s: %v", c.reason, got)
			}
		})
	}
}
