package poolstatus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/controller/internal/poolstatus"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// world is the cache, the API server and the allocator in memory.
type world struct {
	client.Reader // nil: only List is used

	mu             sync.Mutex
	pools          []v1beta1.IPAddressPool
	advertisements []v1beta1.L2Advertisement
	usage          map[string]ipam.Usage
	refuse         bool
	lag            bool // the cache does not see what is written
	writes, events []string
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch list := list.(type) {
	case *v1beta1.IPAddressPoolList:
		for i := range w.pools {
			list.Items = append(list.Items, *w.pools[i].DeepCopy())
		}
	case *v1beta1.L2AdvertisementList:
		for i := range w.advertisements {
			list.Items = append(list.Items, *w.advertisements[i].DeepCopy())
		}
	}
	return nil
}

func (w *world) SetPoolStatus(_ context.Context, pool *v1beta1.IPAddressPool, status v1beta1.IPAddressPoolStatus) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse {
		return errors.New("refused")
	}
	w.writes = append(w.writes, fmt.Sprintf("%s %s %s", pool.Name, ready(status.Conditions), counts(status)))
	for i := range w.pools {
		if w.pools[i].Name == pool.Name && !w.lag {
			w.pools[i].Status = status
		}
	}
	return nil
}

func (w *world) SetAdvertisementStatus(_ context.Context, advertisement *v1beta1.L2Advertisement, status v1beta1.L2AdvertisementStatus) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, advertisement.Name+" "+ready(status.Conditions))
	for i := range w.advertisements {
		if w.advertisements[i].Name == advertisement.Name {
			w.advertisements[i].Status = status
		}
	}
	return nil
}

func (w *world) Event(regarding corev1.ObjectReference, _ string, said reason.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s %s: %s", regarding.Name, said.Word, said.Message))
}

func ready(conditions []metav1.Condition) string {
	condition := meta.FindStatusCondition(conditions, v1beta1.ConditionReady)
	return fmt.Sprintf("%s %s", condition.Status, condition.Reason)
}

func counts(status v1beta1.IPAddressPoolStatus) string {
	text := ""
	for _, count := range []*v1beta1.AddressCount{status.IPv4, status.IPv6} {
		if count != nil {
			text += fmt.Sprintf("%d/%d/%d ", count.Assigned, count.Available, count.Capacity)
		}
	}
	return text
}

// take are the writes and events since the last call.
func (w *world) take() (writes, events []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	writes, events = w.writes, w.events
	w.writes, w.events = nil, nil
	return writes, events
}

func (w *world) change(edit func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	edit()
}

// used is a pool of 16 addresses of which so many are assigned.
func used(assigned int64) ipam.Usage {
	return ipam.Usage{IPv4: ipam.FamilyUsage{Capacity: 16, Assigned: assigned, Available: 16 - assigned}}
}

func TestStatusesFollowWhatIsTrue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			pools: []v1beta1.IPAddressPool{*lbtest.PoolObject("public", "192.0.2.0/28")},
			advertisements: []v1beta1.L2Advertisement{*lbtest.AdvertisementObject("all", func(s *v1beta1.L2AdvertisementSpec) {
				s.IPAddressPools = []string{"public", "six"}
			})},
			usage: map[string]ipam.Usage{"public": used(3)},
		}
		registry := prometheus.NewRegistry()
		reporter := poolstatus.New(poolstatus.Options{
			Reader: w, Writer: w, Events: w, Metrics: poolstatus.NewMetrics(registry), Log: logr.Discard(), Now: time.Now,
			Usage: func(pool string) (ipam.Usage, bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				usage, known := w.usage[pool]
				return usage, known
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = reporter.Start(ctx) }()
		expect := func(what string, wantWrites, wantEvents []string) {
			t.Helper()
			reporter.Wake()
			time.Sleep(2500 * time.Millisecond) // in fake time
			writes, events := w.take()
			if diff := cmp.Diff(wantWrites, writes); diff != "" {
				t.Errorf("%s: writes differ (-want +got):\n%s", what, diff)
			}
			if diff := cmp.Diff(wantEvents, events); diff != "" {
				t.Errorf("%s: events differ (-want +got):\n%s", what, diff)
			}
		}
		missing := "all PoolNotFound: spec.ipAddressPools names pools that do not exist: six"
		expect("first", []string{"public True InUse 3/13/16 ", "all False PoolNotFound"}, []string{missing})
		if got := testutil.ToFloat64(gauge(t, registry, "assigned")); got != 3 {
			t.Errorf("the gauge of assigned addresses is %v", got)
		}
		expect("nothing has changed", nil, nil)
		w.change(func() { w.lag = true; w.usage["public"] = used(4) })
		expect("one more", []string{"public True InUse 4/12/16 "}, nil)
		expect("the cache lags behind", nil, nil)
		w.change(func() { w.lag, w.refuse, w.usage["public"] = false, true, used(5) })
		expect("refused", nil, nil)
		w.change(func() { w.refuse = false })
		expect("tried again", []string{"public True InUse 5/11/16 "}, nil)
		w.change(func() {
			w.pools = append(w.pools, *lbtest.PoolObject("six", "2001:db8::5-2001:db8::1"))
			w.usage["six"] = ipam.Usage{}
		})
		broken := "six InvalidRange: spec.addresses[0]: 2001:db8::5-2001:db8::1 ends before it starts: write the lower address first"
		expect("a broken pool", []string{"six False InvalidRange ", "all True InUse"}, []string{broken})
		overlap := reason.New(reason.Overlaps, "192.0.2.0-192.0.2.3 is also in the older pool old, which keeps it")
		w.change(func() { usage := used(5); usage.Overlap = overlap; w.usage["public"] = usage })
		expect("an overlap", []string{"public False Overlaps 5/11/16 "}, []string{"public Overlaps: " + overlap.Message})
		stop()
		<-ended
	})
}

// TestAtMostOneWriteASecond: a thousand changes within a second are one or two writes.
func TestAtMostOneWriteASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{pools: []v1beta1.IPAddressPool{*lbtest.PoolObject("public", "192.0.2.0/28")}}
		assigned := int64(0)
		reporter := poolstatus.New(poolstatus.Options{
			Reader: w, Writer: w, Events: w, Metrics: poolstatus.NewMetrics(prometheus.NewRegistry()), Log: logr.Discard(), Now: time.Now,
			Usage: func(string) (ipam.Usage, bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return used(assigned), true
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = reporter.Start(ctx) }()
		for range 1000 {
			w.change(func() { assigned++ })
			reporter.Wake()
			time.Sleep(3 * time.Millisecond) // in fake time
		}
		if writes, _ := w.take(); len(writes) < 2 || len(writes) > 4 {
			t.Errorf("%d writes in 3 s", len(writes))
		}
		stop()
		<-ended
	})
}

// gauge is the gauge of a state of the pool public.
func gauge(t *testing.T, registry *prometheus.Registry, state string) prometheus.Collector {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "state" && label.GetValue() == state {
					copied := prometheus.NewGauge(prometheus.GaugeOpts{Name: "copied"})
					copied.Set(metric.GetGauge().GetValue())
					return copied
				}
			}
		}
	}
	t.Fatalf("no gauge of state %s", state)
	return nil
}
