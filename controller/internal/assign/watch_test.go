package assign_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/lbtest"
)

// TestLeavingDuringAWriteIsTidied: the write is refused because the Service is of another type by now, and the API server
// says so before the watch does; or the watch never does, since it broke off.
func TestLeavingDuringAWriteIsTidied(t *testing.T) {
	t.Parallel()
	for name, missed := range map[string]bool{"the watch is late": false, "the watch broke off": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, api *api) {
				api.set(lbtest.PoolObject("public", "192.0.2.10-192.0.2.11"))
				api.put(object("a", 1))
				p := begin(t, api)
				defer p.stop()
				last := api.get("shop", "a")
				if !missed {
					api.trouble = func(string) string { api.trouble = nil; api.leaveUnseen("shop", "a"); return "" }
					api.put(object("a", 1, annotated(v1beta1.AnnotationAddresses, "192.0.2.11")))
					rest()
				} else {
					api.mu.Lock()
					api.leaveUnseen("shop", "a")
					for _, feed := range api.feeds["Service"] {
						feed.events <- func() { feed.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "shop/a", Obj: last}) }
					}
					api.mu.Unlock()
				}
				rest()
				api.expect(t, "after a has left", map[string]string{"a": ""})
				if kube.HasRecord(api.get("shop", "a")) {
					t.Error("a record of ours has stayed")
				}
			})
		})
	}
}

// TestNoGhostThatTheWatchNeverShowed: a Service is in the list of a controller that begins, and is gone before a watch that had
// broken off shows it. No event tells so: the informer has never known it.
func TestNoGhostThatTheWatchNeverShowed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.10"))
		api.put(object("b", 2))
		var broken []*feed
		api.beforeList = func() {
			broken = api.feeds["Service"]
			delete(api.feeds, "Service")
			api.putLocked(object("a", 1))
		}
		p := begin(t, api)
		defer p.stop()
		api.expect(t, "after the start", map[string]string{"a": "192.0.2.10 Allocated (public)", "b": "PoolFull"})
		api.mu.Lock()
		delete(api.services, types.NamespacedName{Namespace: "shop", Name: "a"})
		api.feeds["Service"] = broken
		api.mu.Unlock()
		pass(2 * time.Minute)
		api.expect(t, "after a has gone", map[string]string{"b": "192.0.2.10 Allocated (public)"})
	})
}

// TestAnEditBeforeAListIsEmptiedIsSeen: a list that has another owner too is emptied by a request of its own, which is not
// bound to the state that was decided about. Its answer has what a user edited meanwhile, and nobody else may tell us.
func TestAnEditBeforeAListIsEmptiedIsSeen(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.10"))
		api.put(object("a", 1, annotated(v1beta1.AnnotationAddresses, "10.0.0.1"), func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
		}))
		api.manager[types.NamespacedName{Namespace: "shop", Name: "a"}] = "other"
		edited := false
		api.beforePatch = func() {
			edited = true
			api.unseen(func() { api.putLocked(object("a", 1, annotated(v1beta1.AnnotationAddresses, "192.0.2.10"))) })
		}
		p := begin(t, api)
		defer p.stop()
		rest()
		if !edited {
			t.Fatal("no list was emptied")
		}
		api.expect(t, "after the edit", map[string]string{"a": "192.0.2.10 Allocated (public)"})
	})
}

func TestEventsOlderThanTheListAreIgnored(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.10-192.0.2.11"))
		api.put(object("a", 1))
		begin(t, api).stop()
		stale := object("a", 1) // as it was before it had an address
		stale.ResourceVersion = "101"
		p := begin(t, api)
		defer p.stop()
		api.mu.Lock()
		api.takeWritesLocked()
		for _, feed := range api.feeds["Service"] {
			feed.events <- func() { feed.handler.OnUpdate(stale, stale) }
			feed.events <- func() { feed.handler.OnDelete(stale) }
		}
		api.mu.Unlock()
		rest()
		api.put(object("b", 2))
		rest()
		api.expect(t, "after stale events", map[string]string{"a": "192.0.2.10 Allocated (public)", "b": "192.0.2.11 Allocated (public)"})
		expectLines(t, "writes", []string{"b written"}, api.takeWrites())
	})
}

// takeWritesLocked is takeWrites for who holds the lock.
func (a *api) takeWritesLocked() { a.writes = nil }
