package announce_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// TestDisagreement is the last part of rule E1: two Local Services with their endpoints on different nodes share an
// address, and one of them decides.
func TestDisagreement(t *testing.T) {
	t.Parallel()
	ago := func(since, created time.Duration) func(*cluster.Service) {
		return func(service *cluster.Service) {
			service.Recorded.Since, service.Created = lbtest.Now().Add(-since), lbtest.Now().Add(-created)
		}
	}
	cases := map[string]struct {
		reason string
		a, b   func(*cluster.Service)
		want   string
	}{
		"HeldLonger":  {reason: "who has held the address longest", a: ago(time.Hour, 3*time.Hour), b: ago(2*time.Hour, 2*time.Hour), want: "shop/b"},
		"MadeEarlier": {reason: "of two given at once the older", a: ago(time.Hour, 2*time.Hour), b: ago(time.Hour, 3*time.Hour), want: "shop/b"},
		"Name":        {reason: "of two made at once the first by name", a: ago(time.Hour, time.Hour), b: ago(time.Hour, time.Hour), want: "shop/a"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := lbtest.Snapshot(lbtest.Nodes("n1", "n2"),
				lbtest.Service("shop/a", []string{"192.0.2.10"}, lbtest.Local, lbtest.Ready("n1"), c.a),
				lbtest.Service("shop/b", []string{"192.0.2.10"}, lbtest.Local, lbtest.Ready("n2"), c.b))
			got := verdict(t, snapshot, "192.0.2.10")
			if diff := cmp.Diff([]string{c.want}, serviceNames(got.Services)); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
			if len(got.Others) != 1 || got.Others[0].Why.Word != reason.SharersDisagree {
				t.Errorf("the other is told %v", got.Others)
			}
		})
	}
}

// TestAddressesAreDecidedAlone: the decision about an address is the same whatever other addresses are decided with it,
// although much is worked out once for all of them. The nodes are in three subnets, the addresses in four.
func TestAddressesAreDecidedAlone(t *testing.T) {
	t.Parallel()
	var nodes []any
	for i, subnets := range [][]string{
		{"192.0.2.0/24"}, {"192.0.2.0/24"}, {"198.51.100.0/24"}, {"198.51.100.0/24"}, {"192.0.2.0/24", "198.51.100.0/24"}, {"10.0.0.0/8"},
	} {
		name := fmt.Sprint("n", i)
		nodes = append(nodes, lbtest.Node(name), lbtest.Member(name, lbtest.Links(lbtest.Link("eth0", subnets...))))
	}
	var groups [][]any // of Services, each with its own address: a Cluster one, a Local one, both
	for _, network := range []string{"192.0.2.", "198.51.100.", "203.0.113.", "10.0.0."} {
		for last := range 12 {
			address := []string{fmt.Sprint(network, last)}
			everywhere := lbtest.Service("shop/any-"+address[0], address, lbtest.Ready("n0"))
			local := lbtest.Service("shop/local-"+address[0], address, lbtest.Local, lbtest.Ready("n1", "n3", "n5"))
			groups = append(groups, [][]any{{everywhere}, {local}, {everywhere, local}}[last%3])
		}
	}
	together := announce.Decide(lbtest.Snapshot(nodes, slices.Concat(groups...)))
	for _, group := range groups {
		alone := announce.Decide(lbtest.Snapshot(nodes, group)).Verdicts()[0]
		beside, _ := together.Of(alone.Address)
		if diff := cmp.Diff(alone, beside, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Errorf("alone and beside others: %s", diff)
		}
	}
	if len(together.Verdicts()) != len(groups) {
		t.Errorf("%d addresses decided, not %d", len(together.Verdicts()), len(groups))
	}
}

// TestAnnounced is the condition of a Service with two addresses: true only if both are answered for, with the word of the
// first that is not, else of the first that is not all right, and a message about both.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		addresses []string
		want      bool
		word      reason.Word
	}{
		"Both":         {reason: "all is well", addresses: []string{"192.0.2.10", "192.0.2.11"}, want: true, word: reason.Announced},
		"FirstOff":     {reason: "the odd one's word", addresses: []string{"203.0.113.10", "192.0.2.11"}, want: true, word: reason.OffSubnet},
		"SecondOff":    {reason: "the odd one's word", addresses: []string{"192.0.2.11", "203.0.113.10"}, want: true, word: reason.OffSubnet},
		"FirstNot":     {reason: "not announced comes before odd", addresses: []string{"10.96.0.1", "203.0.113.10"}, word: reason.AddressOfCluster},
		"SecondNot":    {reason: "not announced comes before odd", addresses: []string{"203.0.113.10", "10.96.0.1"}, word: reason.AddressOfCluster},
		"NoAddress":    {reason: "nothing to announce", word: reason.NoAddress},
		"BothNot":      {reason: "the first", addresses: []string{"10.96.0.1", "2001:db8::10"}, word: reason.AddressOfCluster},
		"BothNotTurnt": {reason: "the first", addresses: []string{"2001:db8::10", "10.96.0.1"}, word: reason.NoCandidates},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := lbtest.Service("shop/web", c.addresses, lbtest.Ready("n1"))
			snapshot := lbtest.Snapshot(service, lbtest.Nodes("n1"))
			snapshot.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
			got, why := announce.Decide(snapshot).Announced(service)
			if got != c.want || why.Word != c.word {
				t.Errorf("%s: %v, %v", c.reason, got, why)
			}
		})
	}
}

// TestPoolOfAnAddress: an advertisement for a pool is for the addresses recorded as from it, also when the pool is gone
// (rule A10), and, without a record, for those that the pool contains.
func TestPoolOfAnAddress(t *testing.T) {
	t.Parallel()
	pool := func(name, text string) *cluster.Pool {
		return &cluster.Pool{Name: name, Labels: lbtest.Labels("zone=" + name), Ranges: []netipx.IPRange{netipx.MustParseIPRange(text)}}
	}
	forgotten := func(service *cluster.Service) { service.Recorded.Pools = nil }
	labelled := func(advertisement *cluster.Advertisement) {
		advertisement.PoolSelectors = []cluster.Selector{lbtest.Selector("zone=" + lbtest.PoolName)}
	}
	named := func(advertisement *cluster.Advertisement) { advertisement.Pools = []string{lbtest.PoolName} }
	here, elsewhere := pool(lbtest.PoolName, "192.0.2.0-192.0.2.255"), pool("other", "192.0.2.0-192.0.2.255")
	cases := map[string]struct {
		reason  string
		selects func(*cluster.Advertisement)
		edit    func(*cluster.Service)
		pools   []any
		want    bool
	}{
		"Named":        {reason: "as recorded", selects: named, edit: lbtest.Local, pools: []any{here}, want: true},
		"Labelled":     {reason: "as recorded", selects: labelled, edit: lbtest.Local, pools: []any{here}, want: true},
		"NamedGone":    {reason: "the name stays", selects: named, edit: lbtest.Local, want: true},
		"LabelledGone": {reason: "the labels do not", selects: labelled, edit: lbtest.Local},
		"Recorded":     {reason: "what is recorded, not who has the address today", selects: named, edit: lbtest.Local, pools: []any{elsewhere}, want: true},
		"Forgotten":    {reason: "the pool that contains it", selects: labelled, edit: forgotten, pools: []any{here}, want: true},
		"OfAnother":    {reason: "the pool that contains it", selects: named, edit: forgotten, pools: []any{elsewhere}},
		"OfNone":       {reason: "no pool contains it", selects: named, edit: forgotten},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := lbtest.Snapshot(lbtest.Nodes("n1"), lbtest.Advertisement("pool", c.selects), c.pools,
				lbtest.Service("shop/web", []string{"192.0.2.10"}, lbtest.Ready("n1"), c.edit))
			got := verdict(t, snapshot, "192.0.2.10")
			if !c.want {
				checkNobody(t, got, reason.NoAdvertisement)
				return
			}
			checkOwner(t, got, "n1")
		})
	}
}
