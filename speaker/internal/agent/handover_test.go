package agent_test

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/speaker/internal/agent"
)

// recorder keeps the claims set last.
type recorder struct {
	claims atomic.Pointer[[]announce.Claim]
}

func (r *recorder) Set(claims []announce.Claim) { r.claims.Store(&claims) }
func (r *recorder) Confirm()                    {}
func (r *recorder) Have() []netip.Addr          { return nil }

// open is a gate that is.
type open struct{}

func (open) Update([]agent.Item) {}

func (open) Open(string) bool { return true }

// TestHandOver is rules E6 and P21: who loses an address and forwards still goes on answering for a while, and nobody else
// does.
func TestHandOver(t *testing.T) {
	t.Parallel()
	local := func(object *corev1.Service) {
		object.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	leave := func(store *compile.Store) {
		store.SetNode(lbtest.NodeObject("n1", func(object *corev1.Node) {
			object.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
		}))
	}
	cases := map[string]struct {
		reason string
		edit   func(*corev1.Service)
		lose   func(*compile.Store)
		want   time.Duration
	}{
		"Leaves":   {reason: "the node leaves", lose: leave, want: 500 * time.Millisecond},
		"Unready":  {reason: "the node has had its trouble for long", lose: func(store *compile.Store) { store.SetNode(lbtest.NodeObject("n1", notReady)) }},
		"Deleted":  {reason: "nobody owns it any more", lose: func(store *compile.Store) { store.DeleteService(cluster.Name{Namespace: "shop", Name: "web"}) }},
		"PodMoved": {reason: "the pod here terminates and serves, another is ready", edit: local, lose: move(true), want: 3 * time.Second},
		"PodGone":  {reason: "the pod here is gone", edit: local, lose: move(false)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, says := compile.NewStore(compile.Options{Default: true}), &recorder{}
				store.SetPool(lbtest.PoolObject(lbtest.PoolName, "192.0.2.0/24"))
				store.SetAdvertisement(lbtest.AdvertisementObject("all"))
				store.SetNode(lbtest.NodeObject("n1"))
				edits := []func(*corev1.Service){lbtest.Holding("192.0.2.11")} // which the hash gives n1, of n1 and n2
				if c.edit != nil {
					edits = append(edits, c.edit)
				}
				store.SetService(lbtest.ServiceObject("shop/web", edits...))
				store.SetSlice(lbtest.SliceObject("web-1", "shop/web", lbtest.Endpoint("n1", true)))
				facts := cluster.Facts{Self: "n1", Members: map[string]*cluster.Member{"n1": lbtest.Member("n1"), "n2": lbtest.Member("n2")}}
				loop := agent.New(agent.Options{
					Node: "n1", Store: store, Facts: func() cluster.Facts { return facts }, Now: lbtest.Now, Ready: func() bool { return true },
					Announcer: says, Gate: open{}, Report: func(agent.State) {}, Log: logr.Discard(),
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- loop.Run(ctx) }()
				time.Sleep(time.Second)
				synctest.Wait()
				if len((*says.claims.Load())) != 1 || (*says.claims.Load())[0].HandedOver {
					t.Fatalf("%s: at first it has the claims %v", c.reason, (*says.claims.Load()))
				}
				store.SetNode(lbtest.NodeObject("n2"))
				c.lose(store)
				lost := time.Now()
				loop.WakeNow()
				synctest.Wait()
				for len((*says.claims.Load())) > 0 && time.Since(lost) < 10*time.Second {
					if !(*says.claims.Load())[0].HandedOver {
						t.Fatalf("%s: it goes on announcing", c.reason)
					}
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
				}
				if got := time.Since(lost).Round(100 * time.Millisecond); got != c.want {
					t.Errorf("%s: it answered for %s, want %s", c.reason, got, c.want)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func notReady(object *corev1.Node) {
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
}

// move has a pod ready on n2, and the one on n1 terminate: it may serve still.
func move(serving bool) func(*compile.Store) {
	return func(store *compile.Store) {
		endpoints := []discoveryv1.Endpoint{lbtest.Endpoint("n2", true)}
		if serving {
			endpoints = append(endpoints, lbtest.Terminating("n1"))
		}
		store.SetSlice(lbtest.SliceObject("web-1", "shop/web", endpoints...))
	}
}
