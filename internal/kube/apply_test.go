package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// server answers every apply with what it was told to, and remembers what it was sent.
type server struct {
	typedcorev1.ServiceInterface // nil: nothing else is used

	sent    []string // the apply configurations, as JSON
	forced  bool
	answer  *corev1.Service
	err     error
	patched []string
}

func (s *server) Services(string) typedcorev1.ServiceInterface { return s }

func (s *server) ApplyStatus(_ context.Context, applied *applycorev1.ServiceApplyConfiguration, options metav1.ApplyOptions) (*corev1.Service, error) {
	text, err := json.Marshal(applied)
	if err != nil {
		return nil, err
	}
	s.sent, s.forced = append(s.sent, string(text)), options.Force
	return s.answer, s.err
}

func (s *server) Patch(_ context.Context, _ string, kind types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*corev1.Service, error) {
	s.patched = append(s.patched, string(kind)+" "+string(data)+" "+subresources[0])
	return s.answer, s.err
}

func allowed() error { return nil }

func writer(s *server) *kube.ServiceWriter { return kube.NewServiceWriter(s, allowed, lbtest.Now) }

// allocation is one address from the pool that lbtest's Services hold theirs from.
func allocation(address string) kube.Allocation {
	return kube.Allocation{
		Addresses: []netip.Addr{lbtest.Addr(address)}, Pools: []string{lbtest.PoolName},
		Allocated: kube.Condition{True: true, Reason: reason.Reason{Word: reason.Allocated, Message: address + " from pool " + lbtest.PoolName}},
	}
}

// consenting is the allocation of 192.0.2.10 with a consent that is used up.
func consenting(consent string) kube.Allocation {
	wanted := allocation("192.0.2.10")
	wanted.Renumbered = consent
	return wanted
}

// given is a Service that holds an address and has been written by us.
func given(address string, edits ...func(*corev1.Service)) *corev1.Service {
	holds := func(s *corev1.Service) {
		s.ResourceVersion = "7"
		s.Annotations = map[string]string{v1beta1.AnnotationAllocatedFrom: lbtest.PoolName}
	}
	return lbtest.ServiceObject("shop/web", append([]func(*corev1.Service){lbtest.Holding(address), holds}, edits...)...)
}

// announced gives a Service the condition of that name.
func announced(message string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
			Type: v1beta1.ConditionAnnounced, Status: metav1.ConditionTrue, Reason: string(reason.Announced), Message: message,
			LastTransitionTime: metav1.NewTime(lbtest.Now().Add(-time.Minute)),
		})
	}
}

// renumbered gives a Service the record of a consent.
func renumbered(consent string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
			Type: v1beta1.ConditionRenumbered, Status: metav1.ConditionTrue, Reason: "Recorded", Message: consent,
			LastTransitionTime: metav1.NewTime(lbtest.Now().Add(-time.Hour)),
		})
	}
}

// TestEveryApplyCarriesTheWholeSet: what an apply leaves out is removed, so each of the two parts carries the other.
func TestEveryApplyCarriesTheWholeSet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		write  func(*kube.ServiceWriter) kube.Result
		want   string
	}{
		"a first address": {
			"object and state are named, so that it cannot land on another",
			func(w *kube.ServiceWriter) kube.Result {
				object := lbtest.ServiceObject("shop/web", func(s *corev1.Service) { s.ResourceVersion = "7" })
				return w.SetAllocation(t.Context(), object, allocation("192.0.2.10"), false)
			},
			`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"uid of shop/web","resourceVersion":"7",` +
				`"annotations":{"berth.dev/allocated-from":"pool"}},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.10","ipMode":"VIP"}]},"conditions":[` +
				`{"type":"berth.dev/Allocated","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T12:00:00Z","reason":"Allocated","message":"192.0.2.10 from pool pool"},` +
				`{"type":"berth.dev/Pool","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T12:00:00Z","reason":"Recorded","message":"pool"}]}}`,
		},
		"another address": {
			"Announced is carried as it was; Allocated counts from now, since the address decides who keeps it (A12)",
			func(w *kube.ServiceWriter) kube.Result {
				return w.SetAllocation(t.Context(), given("192.0.2.9", announced("by n1")), allocation("192.0.2.10"), true)
			},
			`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"uid of shop/web","resourceVersion":"7",` +
				`"annotations":{"berth.dev/allocated-from":"pool"}},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.10","ipMode":"VIP"}]},"conditions":[` +
				`{"type":"berth.dev/Allocated","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T12:00:00Z","reason":"Allocated","message":"192.0.2.10 from pool pool"},` +
				`{"type":"berth.dev/Announced","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T11:59:00Z","reason":"Announced","message":"by n1"},` +
				`{"type":"berth.dev/Pool","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T11:00:00Z","reason":"Recorded","message":"pool"}]}}`,
		},
		"renumbered": {
			"the consent that is used up is recorded by the same apply (A10)",
			func(w *kube.ServiceWriter) kube.Result {
				wanted := allocation("192.0.2.10")
				wanted.Renumbered = "twice"
				return w.SetAllocation(t.Context(), given("192.0.2.9", renumbered("once")), wanted, false)
			},
			`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"uid of shop/web","resourceVersion":"7",` +
				`"annotations":{"berth.dev/allocated-from":"pool"}},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.10","ipMode":"VIP"}]},"conditions":[` +
				`{"type":"berth.dev/Allocated","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T12:00:00Z","reason":"Allocated","message":"192.0.2.10 from pool pool"},` +
				`{"type":"berth.dev/Renumbered","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T12:00:00Z","reason":"Recorded","message":"twice"},` +
				`{"type":"berth.dev/Pool","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T11:00:00Z","reason":"Recorded","message":"pool"}]}}`,
		},
		"announced, renumbered before": {
			"that record is carried too",
			func(w *kube.ServiceWriter) kube.Result {
				return w.SetAnnounced(t.Context(), given("192.0.2.9", renumbered("once")), kube.Condition{Reason: reason.Reason{Word: reason.NoSpeakers, Message: "none"}})
			},
			`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"uid of shop/web","resourceVersion":"7",` +
				`"annotations":{"berth.dev/allocated-from":"pool"}},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.9","ipMode":"VIP"}]},"conditions":[` +
				`{"type":"berth.dev/Allocated","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T11:00:00Z","reason":"Allocated","message":"192.0.2.9 from pool pool"},` +
				`{"type":"berth.dev/Renumbered","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T11:00:00Z","reason":"Recorded","message":"once"},` +
				`{"type":"berth.dev/Announced","status":"False","observedGeneration":0,"lastTransitionTime":"2026-01-01T12:00:00Z","reason":"NoSpeakers","message":"none"},` +
				`{"type":"berth.dev/Pool","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T11:00:00Z","reason":"Recorded","message":"pool"}]}}`,
		},
		"announced": {
			"the allocation is carried as it was",
			func(w *kube.ServiceWriter) kube.Result {
				return w.SetAnnounced(t.Context(), given("192.0.2.9"), kube.Condition{Reason: reason.Reason{Word: reason.NoSpeakers, Message: "none"}})
			},
			`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"uid of shop/web","resourceVersion":"7",` +
				`"annotations":{"berth.dev/allocated-from":"pool"}},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.9","ipMode":"VIP"}]},"conditions":[` +
				`{"type":"berth.dev/Allocated","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T11:00:00Z","reason":"Allocated","message":"192.0.2.9 from pool pool"},` +
				`{"type":"berth.dev/Announced","status":"False","observedGeneration":0,"lastTransitionTime":"2026-01-01T12:00:00Z","reason":"NoSpeakers","message":"none"},` +
				`{"type":"berth.dev/Pool","status":"True","observedGeneration":0,"lastTransitionTime":"2026-01-01T11:00:00Z","reason":"Recorded","message":"pool"}]}}`,
		},
		"a list that is not ours": {
			"the reason is written, the list is not claimed",
			func(w *kube.ServiceWriter) kube.Result {
				object := lbtest.ServiceObject("shop/web", func(s *corev1.Service) {
					s.ResourceVersion = "7"
					s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.1"}}
				})
				foreign := kube.Allocation{KeepList: true, Allocated: kube.Condition{Reason: reason.Reason{Word: reason.ForeignAddress, Message: "not ours"}}}
				return w.SetAllocation(t.Context(), object, foreign, false)
			},
			`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"uid of shop/web","resourceVersion":"7"},"status":{"conditions":[` +
				`{"type":"berth.dev/Allocated","status":"False","observedGeneration":0,"lastTransitionTime":"2026-01-01T12:00:00Z","reason":"ForeignAddress","message":"not ours"}]}}`,
		},
		"leaving": {
			"nothing is carried, so that everything of ours goes",
			func(w *kube.ServiceWriter) kube.Result {
				return w.Clear(t.Context(), given("192.0.2.9", announced("by n1")))
			},
			`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"uid of shop/web","resourceVersion":"7"},"status":{}}`,
		},
	} {
		s := &server{answer: lbtest.ServiceObject("shop/web")}
		if result := c.write(writer(s)); result.Outcome != kube.Written {
			t.Errorf("%s: outcome %d: %v", name, result.Outcome, result.Err)
			continue
		}
		if diff := cmp.Diff([]string{c.want}, s.sent); diff != "" {
			t.Errorf("%s: what is sent differs (-want +got): %s\n%s", name, c.reason, diff)
		}
	}
}

func TestWhatIsStoredIsNotSent(t *testing.T) {
	t.Parallel()
	reworded := allocation("192.0.2.10")
	reworded.Allocated.Reason.Message = "another version would say it like this"
	for name, c := range map[string]struct {
		reason string
		object *corev1.Service
		want   kube.Allocation
		sends  bool
	}{
		"the same":        {"nothing to write (P6)", given("192.0.2.10"), allocation("192.0.2.10"), false},
		"reworded":        {"another wording of good news is no reason (O5)", given("192.0.2.10"), reworded, false},
		"with ports":      {"what a rival adds to our entry stays (A11)", given("192.0.2.10", func(s *corev1.Service) { s.Status.LoadBalancer.Ingress[0].Ports = []corev1.PortStatus{{Port: 80}} }), allocation("192.0.2.10"), false},
		"another address": {"", given("192.0.2.10"), allocation("192.0.2.11"), true},
		"list emptied":    {"somebody emptied it", given("192.0.2.10", func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = nil }), allocation("192.0.2.10"), true},
		"one more": {"somebody added to it", given("192.0.2.10", func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "10.0.0.1"})
		}), allocation("192.0.2.10"), true},
		"annotation gone":  {"somebody removed it", given("192.0.2.10", func(s *corev1.Service) { s.Annotations = nil }), allocation("192.0.2.10"), true},
		"another pool":     {"the record follows the pool", given("192.0.2.10", func(s *corev1.Service) { s.Status.Conditions[1].Message = "old" }), allocation("192.0.2.10"), true},
		"consent used up":  {"it is recorded", given("192.0.2.10"), consenting("once"), true},
		"consent recorded": {"it is not recorded again", given("192.0.2.10", renumbered("once")), consenting("once"), false},
		"another consent":  {"the newest is", given("192.0.2.10", renumbered("once")), consenting("twice"), true},
		"first, no record": {"", lbtest.ServiceObject("shop/web"), allocation("192.0.2.10"), true},
	} {
		s := &server{answer: given("192.0.2.10")}
		result := writer(s).SetAllocation(t.Context(), c.object, c.want, false)
		if sent := len(s.sent) > 0; sent != c.sends || (result.Outcome == kube.Unchanged) == sent {
			t.Errorf("%s: sent %v, outcome %d, want sent %v: %s", name, sent, result.Outcome, c.sends, c.reason)
		}
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "services"}
	rival := apierrors.NewApplyConflict([]metav1.StatusCause{{
		Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "metallb" using v1 at 2026-01-01T00:00:00Z`, Field: ".status.loadBalancer.ingress",
	}}, "Apply failed with 1 conflict")
	for name, c := range map[string]struct {
		err   error
		want  kube.Outcome
		rival string
	}{
		"written":            {nil, kube.Written, ""},
		"404":                {apierrors.NewNotFound(resource, "web"), kube.NotWritten, ""},
		"409":                {apierrors.NewConflict(resource, "web", errors.New("modified")), kube.NotWritten, ""},
		"409 over the list":  {rival, kube.NotWritten, "metallb"},
		"422":                {apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", nil), kube.NotWritten, ""},
		"500":                {apierrors.NewInternalError(errors.New("etcd")), kube.Unknown, ""},
		"403":                {apierrors.NewForbidden(resource, "web", errors.New("no")), kube.Unknown, ""},
		"no answer":          {context.DeadlineExceeded, kube.Unknown, ""},
		"connection is lost": {errors.New("read: connection reset by peer"), kube.Unknown, ""},
	} {
		s := &server{answer: given("192.0.2.10"), err: c.err}
		if c.err != nil {
			s.answer = nil
		}
		result := writer(s).SetAllocation(t.Context(), given("192.0.2.9"), allocation("192.0.2.10"), false)
		if result.Outcome != c.want || result.Rival != c.rival || (c.err != nil && !errors.Is(result.Err, c.err)) {
			t.Errorf("%s: %+v, want outcome %d and rival %q", name, result, c.want, c.rival)
		}
	}
}

// TestListOfTwoOwnersIsEmptied: an apply that names no address leaves a list that another program owns too.
func TestListOfTwoOwnersIsEmptied(t *testing.T) {
	t.Parallel()
	s := &server{answer: given("192.0.2.9", func(o *corev1.Service) { o.ResourceVersion = "8" })}
	if result := writer(s).Clear(t.Context(), given("192.0.2.9")); result.Outcome != kube.Written {
		t.Fatalf("outcome %d: %v", result.Outcome, result.Err)
	}
	want := []string{`application/merge-patch+json {"metadata":{"uid":"uid of shop/web"},"status":{"loadBalancer":null}} status`}
	if diff := cmp.Diff(want, s.patched); diff != "" {
		t.Errorf("patches differ (-want +got):\n%s", diff)
	}
}

func TestStaleOrWithoutLeaseIsNotSent(t *testing.T) {
	t.Parallel()
	s := &server{answer: given("192.0.2.10", func(o *corev1.Service) { o.ResourceVersion = "8" })}
	w := writer(s)
	w.SetAllocation(t.Context(), given("192.0.2.9"), allocation("192.0.2.10"), false)
	result := w.SetAnnounced(t.Context(), given("192.0.2.9"), kube.Condition{Reason: reason.Reason{Word: reason.NoSpeakers}})
	if result.Outcome != kube.NotWritten || len(s.sent) != 1 {
		t.Errorf("a write made from an older state: %+v, %d sent", result, len(s.sent))
	}
	w.Forget("shop", "web")
	if w.IsStale(given("192.0.2.9")) {
		t.Error("a Service that is gone is remembered")
	}

	s = &server{answer: given("192.0.2.10")}
	w = kube.NewServiceWriter(s, func() error { return kube.ErrNoLease }, lbtest.Now)
	result = w.SetAllocation(t.Context(), given("192.0.2.9"), allocation("192.0.2.10"), false)
	if result.Outcome != kube.NotWritten || !errors.Is(result.Err, kube.ErrNoLease) || len(s.sent) != 0 {
		t.Errorf("a write without the lease: %+v, %d sent", result, len(s.sent))
	}
}
