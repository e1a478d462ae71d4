package agent_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/speaker/internal/agent"
)

// closed is a gate that opens for what need not wait, and an announcer that announces all it is given.
type closed struct{ items map[string]agent.Item }

func (g closed) Update(items []agent.Item) {
	clear(g.items)
	for _, item := range items {
		g.items[item.Key] = item
	}
}

func (g closed) Open(key string) bool { return g.items[key].Exempt }

type announcer struct{ have []netip.Addr }

func (a *announcer) Set(claims []announce.Claim) {
	a.have = nil
	for i := range claims {
		a.have = append(a.have, claims[i].Address)
	}
}

func (a *announcer) Confirm()           {}
func (a *announcer) Have() []netip.Addr { return a.have }

// TestWhatWaitsForTheProxy is rule P21 up to the gate: what has been announced before does not wait.
func TestWhatWaitsForTheProxy(t *testing.T) {
	t.Parallel()
	announced := func(status metav1.ConditionStatus, ago time.Duration) func(*corev1.Service) {
		return func(object *corev1.Service) {
			object.Status.Conditions = append(object.Status.Conditions, metav1.Condition{
				Type: v1beta1.ConditionAnnounced, Status: status, LastTransitionTime: metav1.NewTime(lbtest.Now().Add(-ago)),
			})
		}
	}
	local := func(object *corev1.Service) {
		object.Spec.ExternalTrafficPolicy, object.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
	}
	cases := map[string]struct {
		reason string
		edits  []func(*corev1.Service)
		want   agent.Item // for each of the two families
	}{
		"New":       {reason: "nobody has announced it yet", want: agent.Item{}},
		"Announced": {reason: "another node did, and failed", edits: []func(*corev1.Service){announced(metav1.ConditionTrue, time.Minute)}, want: agent.Item{Exempt: true}},
		"JustSaid": {
			reason: "the controller says what has been decided: the owner may still wait",
			edits:  []func(*corev1.Service){announced(metav1.ConditionTrue, 3*time.Second)}, want: agent.Item{},
		},
		"NotAnnounced": {
			reason: "it had no endpoint for a while", edits: []func(*corev1.Service){announced(metav1.ConditionFalse, time.Minute)},
			want: agent.Item{},
		},
		"Local": {
			reason: "what this node had ready before is open already", edits: []func(*corev1.Service){local, announced(metav1.ConditionTrue, time.Minute)},
			want: agent.Item{Local: true, HealthCheckPort: 32000},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				gate := closed{items: map[string]agent.Item{}}
				have := runOnce(t, gate, append(c.edits, lbtest.Holding("192.0.2.10", "2001:db8::10")))
				four, six := c.want, c.want
				four.Key, four.Family = "shop/web/IPv4", cluster.IPv4
				six.Key, six.Family = "shop/web/IPv6", cluster.IPv6
				if diff := cmp.Diff(map[string]agent.Item{four.Key: four, six.Key: six}, gate.items); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.reason, diff)
				}
				if said := len(have) == 2; said != c.want.Exempt {
					t.Errorf("%s: announced %v", c.reason, have)
				}
			})
		})
	}
}

// byFamily is a gate that opens for one family alone.
type byFamily struct {
	closed
	open cluster.Family
}

func (g byFamily) Open(key string) bool { return g.items[key].Family == g.open }

// TestOneFamilyDoesNotWaitForTheOther: what kube-proxy can forward for is announced.
func TestOneFamilyDoesNotWaitForTheOther(t *testing.T) {
	t.Parallel()
	for family, want := range map[cluster.Family]string{cluster.IPv4: "192.0.2.10", cluster.IPv6: "2001:db8::10"} {
		synctest.Test(t, func(t *testing.T) {
			gate := byFamily{closed{items: map[string]agent.Item{}}, family}
			have := runOnce(t, gate, []func(*corev1.Service){lbtest.Holding("192.0.2.10", "2001:db8::10")})
			if len(have) != 1 || have[0].String() != want {
				t.Errorf("with %s ready it announces %v", family, have)
			}
		})
	}
}

// runOnce has an agent on node n1 decide about one Service with a pod there, and answers what it announces.
func runOnce(t *testing.T, gate agent.Gate, edits []func(*corev1.Service)) []netip.Addr {
	t.Helper()
	says := &announcer{}
	store := compile.NewStore(compile.Options{Default: true})
	store.SetPool(lbtest.PoolObject(lbtest.PoolName, "192.0.2.0/24", "2001:db8::/64"))
	store.SetAdvertisement(lbtest.AdvertisementObject("all"))
	store.SetNode(lbtest.NodeObject("n1"))
	store.SetService(lbtest.ServiceObject("shop/web", edits...))
	store.SetSlice(lbtest.SliceObject("web-1", "shop/web", lbtest.Endpoint("n1", true)))
	six := lbtest.SliceObject("web-2", "shop/web", lbtest.Endpoint("n1", true))
	six.AddressType = discoveryv1.AddressTypeIPv6
	store.SetSlice(six)
	facts := cluster.Facts{Self: "n1", Members: map[string]*cluster.Member{"n1": lbtest.Member("n1", lbtest.Links(lbtest.Link("eth0", "192.0.2.0/24", "fe80::/64")))}}
	loop := agent.New(agent.Options{
		Node: "n1", Store: store, Facts: func() cluster.Facts { return facts }, Now: lbtest.Now, Ready: func() bool { return true },
		Announcer: says, Gate: gate, Report: func(agent.State) {}, Log: logr.Discard(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- loop.Run(ctx) }()
	synctest.Wait()
	have := says.Have()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return have
}
