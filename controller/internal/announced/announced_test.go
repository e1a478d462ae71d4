package announced_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/controller/internal/announced"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
)

// board is a Writer that keeps conditions in memory and counts writes.
type board struct {
	mu     sync.Mutex
	now    map[cluster.Name]announced.Condition
	writes []string
	refuse func(cluster.Name) bool // nil refuses nothing
}

func (b *board) Recorded(name cluster.Name) (announced.Condition, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	condition, has := b.now[name]
	return condition, has
}

func (b *board) WriteAnnounced(_ context.Context, condition announced.Condition) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil && b.refuse(condition.Service) {
		return errRefused
	}
	b.now[condition.Service] = condition
	b.writes = append(b.writes, condition.Service.Name+" "+condition.Why.String())
	return nil
}

var errRefused = errors.New("refused")

func (b *board) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.writes
	b.writes = nil
	return taken
}

// world is a store with two nodes, a Service on 192.0.2.10 with a pod on n1, and an advertisement for everything.
func world() *compile.Store {
	store := compile.NewStore(compile.Options{Default: true})
	for _, name := range []string{"n1", "n2"} {
		store.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	store.SetAdvertisement(&v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "all"}})
	store.SetService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: []string{"10.96.0.10"}},
		Status: corev1.ServiceStatus{
			LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.10"}}},
			Conditions:   []metav1.Condition{{Type: v1beta1.ConditionAllocated, Status: metav1.ConditionTrue, Message: "192.0.2.10 from pool public"}},
		},
	})
	node := "n1"
	store.SetSlice(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}, NodeName: &node}},
	})
	return store
}

// speaker is the object of a speaker that sees those members and answers for those addresses.
func speaker(node string, members []string, addresses ...string) *v1beta1.Speaker {
	return &v1beta1.Speaker{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status: v1beta1.SpeakerStatus{
			GossipAddress: "192.0.2.1:7948", ProxyReady: true, Members: members,
			Links:       []v1beta1.SpeakerLink{{Name: "eth0", MAC: "02:00:5e:00:53:01", Subnets: []string{"192.0.2.0/24"}}},
			L2Addresses: addresses, L2AddressCount: int32(len(addresses)),
		},
	}
}

// TestNothingIsSaidOfWhatIsNotManaged is fault F06: another controller gave the address, and the assigner has left the
// Service alone.
func TestNothingIsSaidOfWhatIsNotManaged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := world()
		store.SetService(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: []string{"10.96.0.10"}},
			Status: corev1.ServiceStatus{
				LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.10"}}},
			},
		})
		board := &board{now: map[cluster.Name]announced.Condition{}}
		reporter := announced.New(store, board, time.Now, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- reporter.Run(ctx) }()
		reporter.SetSpeaker(speaker("n1", []string{"n1"}))
		time.Sleep(time.Minute) // in fake time
		if writes := board.take(); writes != nil {
			t.Errorf("written: %v", writes)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestConditionFollowsTheSpeakers walks one Service through what its condition has to say, and counts every write.
func TestConditionFollowsTheSpeakers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := &board{now: map[cluster.Name]announced.Condition{}}
		reporter := announced.New(world(), board, time.Now, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = reporter.Run(ctx) }()
		expect := func(what string, after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after) // in fake time
			if diff := cmp.Diff(want, board.take()); diff != "" {
				t.Errorf("%s: writes differ (-want +got):\n%s", what, diff)
			}
		}
		expect("without a speaker the reason is that there is none", 2*time.Second, "web NoSpeakers: no speaker is alive")
		both := []string{"n1", "n2"}
		reporter.SetSpeaker(speaker("n1", both, "192.0.2.10"))
		reporter.SetSpeaker(speaker("n2", both, "192.0.2.10"))
		expect("an owner is named with its link, once", 30*time.Second, "web Announced: 192.0.2.10 from node n2, link eth0")
		reporter.SetSpeaker(speaker("n1", []string{"n1"}, "192.0.2.10"))
		expect("the dead speaker's own object does not keep it alive", 2*time.Second, "web Announced: 192.0.2.10 from node n1, link eth0")
		reporter.SetSpeaker(speaker("n1", []string{"n1"}))
		expect("an owner that does not list the address is believed for a minute", 55*time.Second)
		expect("and no longer", 20*time.Second, "web NotConfirmed: node n1 should answer for 192.0.2.10 and has not reported that it does")
		cancel()
		<-done
	})
}

// addMany adds Services with pods on n1, each with an address of its own.
func addMany(store *compile.Store, many int) {
	node := "n1"
	for i := range many {
		name := fmt.Sprintf("s%03d", i)
		address := fmt.Sprintf("192.0.2.%d", 20+i)
		store.SetService(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: []string{"10.96.1." + fmt.Sprint(i)}},
			Status: corev1.ServiceStatus{
				LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: address}}},
				Conditions:   []metav1.Condition{{Type: v1beta1.ConditionAllocated, Status: metav1.ConditionTrue, Message: address + " from pool public"}},
			},
		})
		store.SetSlice(&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}, NodeName: &node}},
		})
	}
}

// TestManyWritesAreNotOld: where many conditions have to be written, the last of them says what is so when it is written, not
// what was so when the first was.
func TestManyWritesAreNotOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := world()
		addMany(store, 200) // four seconds' worth
		board := &board{now: map[cluster.Name]announced.Condition{}}
		reporter := announced.New(store, board, time.Now, logr.Discard())
		both := []string{"n1", "n2"}
		reporter.SetSpeaker(speaker("n1", both))
		reporter.SetSpeaker(speaker("n2", both))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = reporter.Run(ctx) }()
		time.Sleep(500 * time.Millisecond)                 // in fake time
		reporter.SetSpeaker(speaker("n1", []string{"n1"})) // n2 is dead
		time.Sleep(time.Second)
		if first := board.take(); len(first) < 20 || len(first) > 75 {
			t.Errorf("%d writes in a second and a half", len(first))
		}
		time.Sleep(10 * time.Second)
		for _, write := range board.take() {
			if strings.Contains(write, "node n2") {
				t.Errorf("written long after n2 was known to be dead: %s", write)
			}
		}
		if len(board.now) != 201 {
			t.Errorf("%d Services have a condition, want 201", len(board.now))
		}
		cancel()
		<-done
	})
}

// TestRefusedWritesKeepNobodyWaiting: more conditions than are written in a second cannot be written at all, and the others are.
func TestRefusedWritesKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := world()
		addMany(store, 120)
		board := &board{now: map[cluster.Name]announced.Condition{}}
		board.refuse = func(name cluster.Name) bool { return name.Name < "s070" }
		reporter := announced.New(store, board, time.Now, logr.Discard())
		reporter.SetSpeaker(speaker("n1", []string{"n1"}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = reporter.Run(ctx) }()
		time.Sleep(10 * time.Second) // in fake time
		if written := len(board.take()); written != 51 {
			t.Errorf("%d conditions written, want 51", written)
		}
		board.mu.Lock()
		board.refuse = nil
		board.mu.Unlock()
		time.Sleep(10 * time.Second)
		if written := len(board.take()); written != 70 {
			t.Errorf("%d conditions written once they could be, want 70", written)
		}
		cancel()
		<-done
	})
}
