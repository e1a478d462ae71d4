package assign_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/lbtest"
)

// delaying is a pool that keeps freed addresses from others for ten minutes.
func delaying(addresses string) *v1beta1.IPAddressPool {
	pool := lbtest.PoolObject("public", addresses)
	pool.Spec.ReleaseDelay = &metav1.Duration{Duration: 10 * time.Minute}
	return pool
}

// speaker is a Speaker that reports gateways.
func speaker(node string, gateways ...string) *v1beta1.Speaker {
	return &v1beta1.Speaker{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1beta1.SpeakerStatus{Gateways: gateways}}
}

func TestGatewaysAndReservationsAreKeptFree(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.1-192.0.2.3"))
		api.set(speaker("n1", "192.0.2.1", "what is this?"))
		api.set(lbtest.ReservationObject("b", "shop/b", "192.0.2.2"))
		for i, name := range []string{"a", "b", "c"} {
			api.put(object(name, i))
		}
		p := begin(t, api)
		defer p.stop()
		api.expect(t, "beside a gateway and a reservation", map[string]string{
			"a": "192.0.2.3 Allocated (public)", "b": "192.0.2.2 Allocated (public)", "c": "PoolFull",
		})
		if problem, known := p.Reservation("b"); problem != nil || !known {
			t.Errorf("the reservation: %v, known %v", problem, known)
		}
		api.unset(speaker("n1"))
		rest()
		api.expect(t, "after the gateway has gone", map[string]string{"c": "192.0.2.1 Allocated (public)"})
		api.set(speaker("n1", "192.0.2.1"))
		api.unset(lbtest.ReservationObject("b", "shop/b", "192.0.2.2"))
		api.takeWrites()
		rest()
		expectLines(t, "writes after a gateway came and a reservation went", nil, api.takeWrites())
		if _, known := p.Reservation("b"); known {
			t.Error("the reservation is still known")
		}
	})
}

func TestFreedAddressCoolsDown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(delaying("192.0.2.10"))
		api.put(object("a", 1))
		p := begin(t, api)
		defer p.stop()
		api.put(object("b", 2))
		rest()
		api.remove("shop", "a")
		pass(9 * time.Minute)
		api.expect(t, "while it cools down", map[string]string{"b": "PoolFull"})
		usage, _ := p.Usage("public")
		if len(usage.Cooling) != 1 || usage.Cooling[0].Service.String() != "shop/a" {
			t.Errorf("cooling: %v", usage.Cooling)
		}
		pass(time.Minute + time.Second)
		api.expect(t, "when it has", map[string]string{"b": "192.0.2.10 Allocated (public)"})
		api.remove("shop", "b")
		api.put(object("b", 3))
		rest()
		api.expect(t, "deleted and made anew", map[string]string{"b": "192.0.2.10 Allocated (public)"})
	})
}

// TestCoolDownSurvivesARestart: what the pools' statuses say counts, as far as it can be meant.
func TestCoolDownSurvivesARestart(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		pool, now := delaying("192.0.2.10-192.0.2.12"), time.Now()
		pool.Status.Quarantine = []v1beta1.QuarantinedAddress{
			{Address: "192.0.2.10", Service: "shop/gone", Until: metav1.NewTime(now.Add(5 * time.Minute))},
			{Address: "192.0.2.11", Service: "shop/gone", Until: metav1.NewTime(now.Add(1000 * time.Hour))},
			{Address: "192.0.2.12", Service: "nobody", Until: metav1.NewTime(now.Add(5 * time.Minute))},
			{Address: "not an address", Service: "shop/gone", Until: metav1.NewTime(now.Add(5 * time.Minute))},
		}
		api.set(pool)
		for i, name := range []string{"a", "b", "c"} {
			api.put(object(name, i))
		}
		p := begin(t, api)
		defer p.stop()
		api.expect(t, "at first", map[string]string{"a": "192.0.2.12 Allocated (public)", "b": "PoolFull", "c": "PoolFull"})
		pass(5 * time.Minute)
		api.expect(t, "after five minutes", map[string]string{"b": "192.0.2.10 Allocated (public)", "c": "PoolFull"})
		pass(24 * time.Hour)
		api.expect(t, "after a day, since no pool keeps one longer", map[string]string{"c": "192.0.2.11 Allocated (public)"})
	})
}

func TestF09ConsentIsUsedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.0/24"))
		api.put(object("a", 1))
		p := begin(t, api)
		api.set(lbtest.PoolObject("public", "198.51.100.0/24"))
		rest()
		api.expect(t, "without consent", map[string]string{"a": "192.0.2.0 OutOfPool (public)"})
		api.put(object("a", 1, annotated(v1beta1.AnnotationRenumber, "once")))
		rest()
		api.expect(t, "with consent", map[string]string{"a": "198.51.100.0 Allocated (public)"})
		recorded := func() string {
			if c := meta.FindStatusCondition(api.get("shop", "a").Status.Conditions, v1beta1.ConditionRenumbered); c != nil {
				return c.Message
			}
			return ""
		}
		if got := recorded(); got != "once" {
			t.Errorf("the consent that is used up is recorded as %q", got)
		}
		p.stop()
		api.takeWrites()
		p = begin(t, api)
		defer p.stop()
		expectLines(t, "writes of a restart", nil, api.takeWrites())
		api.set(lbtest.PoolObject("public", "203.0.113.0/24"))
		rest()
		api.expect(t, "with a consent that is used up", map[string]string{"a": "198.51.100.0 OutOfPool (public)"})
		if got := recorded(); got != "once" {
			t.Errorf("after that it is recorded as %q", got)
		}
	})
}

func TestUnknownAnnotationIsSaidOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		misspelt := annotated("berth.dev/adresses", "192.0.2.5")
		api.put(object("a", 1, misspelt))
		p := begin(t, api)
		defer p.stop()
		said := func(key string) string {
			return "a UnknownAnnotation: annotation " + key + " means nothing to Berth; known are berth.dev/addresses, berth.dev/pool, " +
				"berth.dev/sharing-key, berth.dev/sharing-namespaces, berth.dev/renumber, berth.dev/allocated-from"
		}
		expectLines(t, "events", []string{said("berth.dev/adresses")}, p.events.take())
		api.put(object("a", 1, misspelt, func(s *corev1.Service) { s.Labels = map[string]string{"x": "y"} }))
		rest()
		expectLines(t, "events after another change", nil, p.events.take())
		api.put(object("a", 1, misspelt, annotated("berth.dev/Pool", "public")))
		rest()
		expectLines(t, "events after another mistake", []string{said("berth.dev/Pool")}, p.events.take())
		class := "example.com/other"
		api.put(object("theirs", 1, misspelt, func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }))
		rest()
		expectLines(t, "events of a Service that is not ours", nil, p.events.take())
	})
}

// TestStatusOfAPoolIsNoChange: our own writes there make no decisions.
func TestStatusOfAPoolIsNoChange(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.0/24"))
		api.put(object("a", 1))
		p := begin(t, api)
		defer p.stop()
		before := p.changes()
		pool := lbtest.PoolObject("public", "192.0.2.0/24")
		pool.Status.IPv4 = &v1beta1.AddressCount{Capacity: 256, Assigned: 1, Available: 255}
		api.set(pool)
		rest()
		if diff := cmp.Diff(before, p.changes()); diff != "" {
			t.Errorf("the picture was taken anew: %s", diff)
		}
		api.set(lbtest.PoolObject("public", "192.0.2.0/25"))
		rest()
		if p.changes() == before {
			t.Error("nor was it after an edit: this test cannot fail")
		}
	})
}
