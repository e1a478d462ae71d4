package assign_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/controller/internal/assign"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// process is a controller that has the lease.
type process struct {
	*assign.Assigner

	api    *api
	events *notes
	stop   func()

	changed atomic.Int64 // how often the usage of a pool may have changed
}

// changes is how often the usage of a pool may have changed until now.
func (p *process) changes() int64 { return p.changed.Load() }

// notes are the events recorded.
type notes struct {
	mu   sync.Mutex
	list []string
}

// Event notes one.
func (n *notes) Event(regarding corev1.ObjectReference, _ string, said reason.Reason) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, fmt.Sprintf("%s %s: %s", regarding.Name, said.Word, said.Message))
}

// EventOnce notes one.
func (n *notes) EventOnce(regarding corev1.ObjectReference, action string, said reason.Reason) {
	n.Event(regarding, action, said)
}

// take are the events since the last call, sorted: writes run in parallel.
func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := slices.Sorted(slices.Values(n.list))
	n.list = nil
	return taken
}

// begin starts a controller and waits until it has nothing left to do.
func begin(t *testing.T, api *api) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{api: api, events: &notes{}}
	p.Assigner = assign.New(assign.Options{
		Class:     compile.Options{LoadBalancerClass: v1beta1.LoadBalancerClass, Default: true},
		Informers: &informers{api: api, ctx: ctx},
		Services:  kube.NewServiceReader(api),
		Pools:     api,
		Writer:    kube.NewServiceWriter(api, func() error { return nil }, time.Now),
		Events:    p.events,
		Metrics:   assign.NewMetrics(prometheus.NewRegistry()),
		Log:       logr.Discard(),
		Changed:   func() { p.changed.Add(1) },
	})
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the assigner ended with %v", err)
		}
		api.mu.Lock()
		defer api.mu.Unlock()
		clear(api.feeds)
	})
	rest()
	return p
}

// rest lets fake time pass until nothing happens any more.
func rest() { pass(10 * time.Second) }

// pass lets fake time pass.
func pass(duration time.Duration) {
	time.Sleep(duration) // in fake time
	synctest.Wait()
}

// inBubble runs a test with fake time.
func inBubble(t *testing.T, test func(t *testing.T, api *api)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newAPI()) })
}

// object is a Service of namespace shop; age orders them: the lower the older.
func object(name string, age int, edits ...func(*corev1.Service)) *corev1.Service {
	edits = append([]func(*corev1.Service){func(s *corev1.Service) {
		s.CreationTimestamp = metav1.NewTime(lbtest.Now().Add(time.Duration(age) * time.Second))
	}}, edits...)
	return lbtest.ServiceObject("shop/"+name, edits...)
}

// annotated gives a Service an annotation.
func annotated(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[key] = value
	}
}

// status is what a Service's status says: its addresses, and reason and pools from the conditions.
func (a *api) status(name string) string {
	s := a.get("shop", name)
	var parts []string
	for i := range s.Status.LoadBalancer.Ingress {
		parts = append(parts, s.Status.LoadBalancer.Ingress[i].IP)
	}
	for _, kind := range []string{v1beta1.ConditionAllocated, v1beta1.ConditionPool} {
		if c := meta.FindStatusCondition(s.Status.Conditions, kind); c != nil && kind == v1beta1.ConditionAllocated {
			parts = append(parts, c.Reason)
		} else if c != nil {
			parts = append(parts, "("+c.Message+")")
		}
	}
	return strings.Join(parts, " ")
}

func (a *api) expect(t *testing.T, what string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for name := range want {
		got[name] = a.status(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: statuses differ (-want +got):\n%s", what, diff)
	}
}

func expectLines(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s differ (-want +got):\n%s", what, diff)
	}
}

func TestAssignsOldestFirstAndSaysSoOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.10-192.0.2.11"))
		for i, name := range []string{"d", "c", "b", "a"} {
			api.put(object(name, i))
		}
		p := begin(t, api)
		defer p.stop()
		api.expect(t, "after the start", map[string]string{
			"d": "192.0.2.10 Allocated (public)", "c": "192.0.2.11 Allocated (public)", "b": "PoolFull", "a": "PoolFull",
		})
		expectLines(t, "events", []string{
			"a PoolFull: pool public has no free IPv4 address", "b PoolFull: pool public has no free IPv4 address",
			"c Allocated: assigned 192.0.2.11 from pool public", "d Allocated: assigned 192.0.2.10 from pool public",
		}, p.events.take())
		if got := api.get("shop", "d").Annotations[v1beta1.AnnotationAllocatedFrom]; got != "public" {
			t.Errorf("the annotation for people says %q", got)
		}
		api.takeWrites()
		for range 100 { // F128: somebody rewrites an object and changes nothing
			api.put(object("d", 0))
		}
		rest()
		expectLines(t, "writes after nothing changed", nil, api.takeWrites())
		expectLines(t, "events after nothing changed", nil, p.events.take())
	})
}

func TestF20AndF21FreedAddressGoesToTheOldestThatWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.10"))
		api.put(object("a", 1))
		p := begin(t, api)
		defer p.stop()
		api.put(object("younger", 9))
		api.put(object("older", 5, annotated(v1beta1.AnnotationAddresses, "192.0.2.10")))
		rest()
		api.expect(t, "while a holds it", map[string]string{"older": "AddressInUse", "younger": "PoolFull"})
		api.remove("shop", "a")
		rest()
		api.expect(t, "after a has gone", map[string]string{"older": "192.0.2.10 Allocated (public)", "younger": "PoolFull"})
	})
}

func TestF01AndF02RestartWritesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.10-192.0.2.12", "2001:db8::/126"))
		both := func(s *corev1.Service) {
			s.Spec.ClusterIPs = []string{"10.96.0.1", "2001:db8:ffff::1"}
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
			prefer := corev1.IPFamilyPolicyPreferDualStack
			s.Spec.IPFamilyPolicy = &prefer
		}
		api.put(object("a", 3, both))
		api.put(object("b", 4, annotated(v1beta1.AnnotationAddresses, "192.0.2.12")))
		api.put(object("c", 5, annotated(v1beta1.AnnotationAddresses, "192.0.2.12")))
		begin(t, api).stop()
		api.put(object("waits", 1))
		api.put(object("waits-too", 2))
		begin(t, api).stop()
		want := map[string]string{
			"a": "192.0.2.10 2001:db8:: Allocated (public,public)", "b": "192.0.2.12 Allocated (public)", "c": "AddressInUse",
			"waits": "192.0.2.11 Allocated (public)", "waits-too": "PoolFull",
		}
		api.expect(t, "before the restart", want)
		api.takeWrites()
		for range 5 {
			p := begin(t, api)
			expectLines(t, "events of a restart", nil, p.events.take())
			p.stop()
		}
		expectLines(t, "writes of restarts", nil, api.takeWrites())
		api.expect(t, "after the restarts", want)
	})
}

func TestF22LeavingIsTidied(t *testing.T) {
	t.Parallel()
	leave := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }
	for name, down := range map[string]bool{"while the controller runs": false, "while it is down": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, api *api) {
				api.set(lbtest.PoolObject("public", "192.0.2.10"))
				api.put(object("a", 1))
				api.put(object("b", 2))
				p := begin(t, api)
				if down {
					p.stop()
				}
				api.put(object("a", 1, leave))
				if down {
					p = begin(t, api)
				}
				defer p.stop()
				rest()
				api.expect(t, "after a has left", map[string]string{"a": "", "b": "192.0.2.10 Allocated (public)"})
				if _, has := api.get("shop", "a").Annotations[v1beta1.AnnotationAllocatedFrom]; has {
					t.Error("the annotation has stayed")
				}
			})
		})
	}
}

func TestA1DeletionWithFinalizerFreesTheAddress(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.10"))
		api.put(object("a", 1))
		api.put(object("b", 2))
		p := begin(t, api)
		defer p.stop()
		now := metav1.NewTime(time.Now())
		api.put(object("a", 1, func(s *corev1.Service) { s.DeletionTimestamp = &now; s.Finalizers = []string{"example.com/wait"} }))
		rest()
		api.expect(t, "while a is being deleted", map[string]string{"a": "", "b": "192.0.2.10 Allocated (public)"})
	})
}

func TestF132ClassesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.0/28"))
		class := func(name string) func(*corev1.Service) {
			return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &name }
		}
		api.put(object("theirs", 1, class("example.com/other")))
		api.put(object("ours", 2, class(v1beta1.LoadBalancerClass)))
		api.put(object("unset", 3))
		p := begin(t, api)
		defer p.stop()
		api.expect(t, "by class", map[string]string{
			"theirs": "", "ours": "192.0.2.0 Allocated (public)", "unset": "192.0.2.1 Allocated (public)",
		})
		api.remove("shop", "ours")
		again := object("ours", 4, class("example.com/other"))
		again.UID = "made anew"
		api.put(again)
		rest()
		api.expect(t, "made anew with another class", map[string]string{"ours": ""})
	})
}

func TestF06NoPoolsNoWrites(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.put(object("foreign", 1))
		api.overwrite("shop", "foreign", "other", "192.0.2.33")
		api.put(object("waits", 2))
		p := begin(t, api)
		defer p.stop()
		expectLines(t, "writes", nil, api.takeWrites())
		expectLines(t, "events", nil, p.events.take())
	})
}

func TestF09OutOfPool(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.0/24"))
		api.put(object("a", 1, annotated(v1beta1.AnnotationAddresses, "192.0.2.5")))
		p := begin(t, api)
		defer p.stop()
		p.events.take()
		api.set(lbtest.PoolObject("public", "198.51.100.0/24"))
		rest()
		want := map[string]string{"a": "192.0.2.5 OutOfPool (public)"}
		api.expect(t, "after the edit", want)
		expectLines(t, "events", []string{"a OutOfPool: 192.0.2.5 from pool public; no pool contains 192.0.2.5 any more"}, p.events.take())
		api.takeWrites()
		api.unset(lbtest.PoolObject("public"))
		rest()
		api.expect(t, "after the deletion", want)
		expectLines(t, "writes for the deletion", nil, api.takeWrites())
	})
}

func TestF44ManyAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.0/24"))
		p := begin(t, api)
		defer p.stop()
		var creating sync.WaitGroup
		for i := range 200 {
			creating.Go(func() { api.put(object(fmt.Sprintf("s%03d", i), i)) })
		}
		creating.Wait()
		rest()
		holder := map[string]string{}
		for i := range 200 {
			name := fmt.Sprintf("s%03d", i)
			address, _, _ := strings.Cut(api.status(name), " ")
			if other, taken := holder[address]; taken || address == "" {
				t.Errorf("%s has %q, and so has %q", name, address, other)
			}
			holder[address] = name
		}
	})
}

func TestF49GarbageIsReplacedAndThenQuiet(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.0/28"))
		for name, entries := range map[string][]corev1.LoadBalancerIngress{
			"two":  {{IP: "192.0.2.3"}, {IP: "192.0.2.4"}},
			"bad":  {{IP: "300.1.1.1"}},
			"host": {{Hostname: "lb.example.com"}},
		} {
			api.put(object(name, len(name), func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = entries }))
			api.manager[types.NamespacedName{Namespace: "shop", Name: name}] = "other"
		}
		p := begin(t, api)
		defer p.stop()
		api.expect(t, "after the start", map[string]string{
			"two": "192.0.2.3 Allocated (public)", "bad": "192.0.2.0 Allocated (public)", "host": "192.0.2.1 Allocated (public)",
		})
		if writes := api.takeWrites(); len(writes) > 6 {
			t.Errorf("more than two requests for each: %v", writes)
		}
	})
}

// TestTroubledWrites has writes refused, lost, and made without an answer, at random: in the end every Service has an
// address and no two have the same, and at no time did two have the same.
func TestTroubledWrites(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, api *api) {
		api.set(lbtest.PoolObject("public", "192.0.2.0/27"))
		attempts := map[string]int{}
		api.trouble = func(name string) string {
			attempts[name]++
			return []string{"lose", "refuse", "mute", "", "lose", "mute", ""}[(len(name)*attempts[name]+int(name[len(name)-1]))%7]
		}
		p := begin(t, api)
		defer p.stop()
		for i := range 24 {
			api.put(object(fmt.Sprintf("s%02d", i), i))
		}
		rest()
		for i := range 24 {
			api.put(object(fmt.Sprintf("s%02d", i), i, annotated(v1beta1.AnnotationAddresses, fmt.Sprintf("192.0.2.%d", i+1)))) // which is the next one's
			uniqueNow(t, api)
		}
		for range 60 {
			time.Sleep(time.Second) // in fake time
			synctest.Wait()
			uniqueNow(t, api)
		}
		for i := range 24 {
			want := fmt.Sprintf("192.0.2.%d Allocated (public)", i+1)
			if got := api.status(fmt.Sprintf("s%02d", i)); got != want {
				t.Errorf("s%02d: status %q, want %q", i, got, want)
			}
		}
	})
}

// uniqueNow fails if two statuses have one address.
func uniqueNow(t *testing.T, api *api) {
	t.Helper()
	api.mu.Lock()
	defer api.mu.Unlock()
	holder := map[string]string{}
	for name, s := range api.services {
		for i := range s.Status.LoadBalancer.Ingress {
			address := s.Status.LoadBalancer.Ingress[i].IP
			if other, taken := holder[address]; taken {
				t.Errorf("%s is %s's and %s's", address, other, name.Name)
			}
			holder[address] = name.Name
		}
	}
}
