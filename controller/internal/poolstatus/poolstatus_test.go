package poolstatus_test

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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go4.org/netipx"
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
	reservations   []v1beta1.AddressReservation
	advertisements []v1beta1.L2Advertisement
	usage          map[string]ipam.Usage
	problems       map[string]*reason.Reason // of reservations
	refuse         bool
	ended          chan struct{} // nil: the allocator has ended
	lag            bool          // the cache does not see what is written
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
	case *v1beta1.AddressReservationList:
		for i := range w.reservations {
			list.Items = append(list.Items, *w.reservations[i].DeepCopy())
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

func (w *world) SetReservationStatus(_ context.Context, reservation *v1beta1.AddressReservation, status v1beta1.AddressReservationStatus) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, reservation.Name+" "+ready(status.Conditions))
	for i := range w.reservations {
		if w.reservations[i].Name == reservation.Name {
			w.reservations[i].Status = status
		}
	}
	return nil
}

// Ended is closed when the allocator has ended.
func (w *world) Ended() <-chan struct{} {
	if w.ended != nil {
		return w.ended
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Usage is what the allocator says of a pool.
func (w *world) Usage(pool string) (ipam.Usage, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	usage, known := w.usage[pool]
	return usage, known
}

// Reservation is what the allocator says of a reservation.
func (w *world) Reservation(name string) (*reason.Reason, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	problem, known := w.problems[name]
	return problem, known
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
			Reader: w, Allocator: w, Writer: w, Events: w, Metrics: poolstatus.NewMetrics(registry), Log: logr.Discard(), Now: time.Now,
		})
		defer run(t, reporter)()
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
		overlaps := func(assigned int64) { usage := used(assigned); usage.Overlap = overlap; w.usage["public"] = usage }
		w.change(func() { w.lag = true; overlaps(5) })
		expect("an overlap", []string{"public False Overlaps 5/11/16 "}, []string{"public Overlaps: " + overlap.Message})
		w.change(func() { overlaps(6) })
		expect("an overlap still, and the cache lags behind", []string{"public False Overlaps 6/10/16 "}, nil)
		w.change(func() { w.lag = false; overlaps(7) })
		expect("an overlap still", []string{"public False Overlaps 7/9/16 "}, nil)
		if c := meta.FindStatusCondition(w.pools[0].Status.Conditions, v1beta1.ConditionOverlaps); c.Status != metav1.ConditionTrue || c.Message != overlap.Message {
			t.Errorf("the condition Overlaps is %v", c)
		}
		w.change(func() { w.usage["public"] = used(5) })
		expect("no overlap any more", []string{"public True InUse 5/11/16 "}, nil)
		if c := meta.FindStatusCondition(w.pools[0].Status.Conditions, v1beta1.ConditionOverlaps); c.Status != metav1.ConditionFalse {
			t.Errorf("the condition Overlaps is %v", c)
		}
		w.change(func() { w.pools = w.pools[1:] })
		expect("the pool is gone", []string{"all False PoolNotFound"}, []string{"all PoolNotFound: spec.ipAddressPools names pools that do not exist: public"})
		if left, err := testutil.GatherAndCount(registry, "berth_pool_addresses"); err != nil || left > 0 {
			t.Errorf("%d gauges of pools that are gone or have no addresses, %v", left, err)
		}
	})
}

// run runs a reporter until the function that it returns is called.
func run(t *testing.T, reporter *poolstatus.Reporter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = reporter.Start(ctx) }()
	return func() { cancel(); <-ended }
}

func TestReservationsSayWhetherTheyAreUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{reservations: []v1beta1.AddressReservation{*lbtest.ReservationObject("dns", "infra/dns", "192.0.2.53")}}
		reporter := poolstatus.New(poolstatus.Options{
			Reader: w, Allocator: w, Writer: w, Events: w, Metrics: poolstatus.NewMetrics(prometheus.NewRegistry()), Log: logr.Discard(), Now: time.Now,
		})
		defer run(t, reporter)()
		expect := func(what string, wantWrites, wantEvents []string) {
			t.Helper()
			reporter.Wake()
			time.Sleep(2 * time.Second) // in fake time
			writes, events := w.take()
			if diff := cmp.Diff([][]string{wantWrites, wantEvents}, [][]string{writes, events}); diff != "" {
				t.Errorf("%s: writes and events differ (-want +got):\n%s", what, diff)
			}
		}
		expect("not known yet", nil, nil)
		w.change(func() { w.problems = map[string]*reason.Reason{"dns": nil} })
		expect("used as written", []string{"dns True InUse"}, nil)
		taken := reason.New(reason.AddressInUse, "192.0.2.53 is held by Service shop/web, which keeps it")
		w.change(func() { w.problems["dns"] = taken })
		expect("held by another", []string{"dns False AddressInUse"}, []string{"dns AddressInUse: " + taken.Message})
		expect("nothing has changed", nil, nil)
	})
}

// TestListsOfAPool: what is skipped and what cools down is shown, in the form that a controller that starts reads back.
func TestListsOfAPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{pools: []v1beta1.IPAddressPool{*lbtest.PoolObject("public", "192.0.0.0/16")}, usage: map[string]ipam.Usage{}}
		until := time.Now().Add(time.Minute + time.Millisecond)
		usage := used(3)
		usage.Skipped = []ipam.Skipped{
			{Range: netipx.MustParseIPRange("192.0.2.1-192.0.2.1"), Why: "the default gateway of node n1"},
			{Range: netipx.MustParseIPRange("192.0.2.8-192.0.2.9"), Why: "in 192.0.2.8/31, which is for the pods of node n1"},
		}
		usage.SkippedMore = true
		address := lbtest.Addr("192.0.4.0")
		for i := range 1025 { // the first is the first to be free again
			usage.Cooling = append(usage.Cooling, ipam.Cooling{
				Address: address, Service: lbtest.ParseName("shop/web"), Until: until.Add(time.Duration(i) * time.Second),
			})
			address = address.Next()
		}
		w.usage["public"] = usage
		reporter := poolstatus.New(poolstatus.Options{
			Reader: w, Allocator: w, Writer: w, Events: w, Metrics: poolstatus.NewMetrics(prometheus.NewRegistry()), Log: logr.Discard(), Now: time.Now,
		})
		defer run(t, reporter)()
		reporter.Wake()
		synctest.Wait()
		status := w.pools[0].Status
		if diff := cmp.Diff([]v1beta1.SkippedAddresses{
			{Addresses: "192.0.2.1", Why: "the default gateway of node n1"},
			{Addresses: "192.0.2.8-192.0.2.9", Why: "in 192.0.2.8/31, which is for the pods of node n1"},
		}, status.Skipped); diff != "" || !status.MoreSkipped {
			t.Errorf("skipped differs (-want +got):\n%s; others: %v", diff, status.MoreSkipped)
		}
		first := v1beta1.QuarantinedAddress{
			Address: "192.0.4.1", Service: "shop/web", Until: metav1.NewTime(until.Add(time.Second).Truncate(time.Second).Add(time.Second)),
		}
		if len(status.Quarantine) != 1024 || !cmp.Equal(status.Quarantine[0], first) {
			t.Errorf("%d in quarantine, the first is %v, want %v", len(status.Quarantine), status.Quarantine[0], first)
		}
	})
}

// TestAtMostOneWriteASecond: a first change is written at once, of a thousand within a second one, the last is not lost, and
// no pool waits for another.
func TestAtMostOneWriteASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			pools: []v1beta1.IPAddressPool{*lbtest.PoolObject("busy", "192.0.2.0/28"), *lbtest.PoolObject("quiet", "198.51.100.0/28")},
			usage: map[string]ipam.Usage{"busy": used(0), "quiet": used(0)},
		}
		reporter := poolstatus.New(poolstatus.Options{
			Reader: w, Allocator: w, Writer: w, Events: w, Metrics: poolstatus.NewMetrics(prometheus.NewRegistry()), Log: logr.Discard(), Now: time.Now,
		})
		defer run(t, reporter)()
		reporter.Wake()
		time.Sleep(5 * time.Second) // in fake time
		w.take()
		busy, quiet := 0, 0
		for i := range int64(990) { // ends before the third second does
			w.change(func() { w.usage["busy"] = used(i + 1) })
			if i == 500 {
				w.change(func() { w.usage["quiet"] = used(7) })
			}
			reporter.Wake()
			time.Sleep(3 * time.Millisecond) // in fake time
			writes, _ := w.take()
			for _, write := range writes {
				if strings.HasPrefix(write, "busy") {
					busy++
					continue
				}
				quiet++
				if i > 540 { // one look later
					t.Errorf("the quiet pool's only change is written %d ms after it", 3*(i-500))
				}
			}
			if i == 0 && busy != 1 {
				t.Error("the first change is not written at once")
			}
		}
		if busy != 3 || quiet != 1 {
			t.Errorf("%d writes in 3 s, and %d of one change", busy, quiet)
		}
		time.Sleep(2 * time.Second) // in fake time
		if writes, _ := w.take(); len(writes) != 1 || !strings.Contains(writes[0], " 990/") {
			t.Errorf("the last change is written as %v", writes)
		}
	})
}

// TestTheLastChangeIsWrittenAtTheEnd: what a controller that stops has put off is what the next one needs; where it has put
// off nothing it writes nothing.
func TestTheLastChangeIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, changed := range []bool{true, false} {
			w := &world{pools: []v1beta1.IPAddressPool{*lbtest.PoolObject("public", "192.0.2.0/28")}, usage: map[string]ipam.Usage{"public": used(0)}}
			reporter := poolstatus.New(poolstatus.Options{
				Reader: w, Allocator: w, Writer: w, Events: w, Metrics: poolstatus.NewMetrics(prometheus.NewRegistry()), Log: logr.Discard(), Now: time.Now,
			})
			stop := run(t, reporter)
			reporter.Wake()
			time.Sleep(500 * time.Millisecond) // in fake time
			w.take()
			if changed {
				w.change(func() { w.usage["public"] = used(1) })
				reporter.Wake()
				time.Sleep(100 * time.Millisecond) // in fake time
			}
			stop()
			writes, _ := w.take()
			if len(writes) > 0 != changed {
				t.Errorf("changed %v, written at the end: %v", changed, writes)
			}
		}
	})
}

// TestTheEndWaitsForTheAllocator: what the last answer to a write frees while the process ends is written too, but nobody
// waits for ever.
func TestTheEndWaitsForTheAllocator(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"ends": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{
					pools: []v1beta1.IPAddressPool{*lbtest.PoolObject("public", "192.0.2.0/28")}, usage: map[string]ipam.Usage{"public": used(0)},
					ended: make(chan struct{}),
				}
				reporter := poolstatus.New(poolstatus.Options{
					Reader: w, Allocator: w, Writer: w, Events: w, Metrics: poolstatus.NewMetrics(prometheus.NewRegistry()), Log: logr.Discard(), Now: time.Now,
				})
				stop := run(t, reporter)
				reporter.Wake()
				time.Sleep(5 * time.Second) // in fake time
				w.take()
				time.AfterFunc(time.Second, func() {
					w.change(func() { w.usage["public"] = used(1) })
					reporter.Wake()
					if !hangs {
						close(w.ended)
					}
				})
				begun := time.Now()
				stop()
				if took := time.Since(begun); took > 3*time.Second {
					t.Errorf("the end took %s", took)
				}
				if writes, _ := w.take(); len(writes) != 1 {
					t.Errorf("written at the end: %v", writes)
				}
			})
		})
	}
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
