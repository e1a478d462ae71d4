package compile_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// equal compares values of the core: addresses by value, and lists that are absent like empty ones.
func equal() cmp.Option {
	return cmp.Options{
		cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netipx.IPRange) bool { return a == b }),
		cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	}
}

// defaults are the options of an installation that also serves Services without a class.
func defaults() compile.Options {
	return compile.Options{LoadBalancerClass: v1beta1.LoadBalancerClass, Default: true}
}

// TestF132Class is rule A1: which Services are ours, by type, class and deletion.
func TestF132Class(t *testing.T) {
	t.Parallel()
	ours, other := v1beta1.LoadBalancerClass, "example.com/other"
	cases := map[string]struct {
		reason       string
		class        *string
		kind         corev1.ServiceType
		deleted      bool
		ours         bool // for the default installation
		oursByChoice bool // for one that serves its class only
	}{
		"NoClass":      {reason: "the default installation's", kind: corev1.ServiceTypeLoadBalancer, ours: true},
		"OurClass":     {reason: "ours everywhere", kind: corev1.ServiceTypeLoadBalancer, class: &ours, ours: true, oursByChoice: true},
		"OtherClass":   {reason: "never ours", kind: corev1.ServiceTypeLoadBalancer, class: &other},
		"BeingDeleted": {reason: "its address is free at once", kind: corev1.ServiceTypeLoadBalancer, class: &ours, deleted: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := lbtest.ServiceObject("shop/web", func(object *corev1.Service) {
				object.Spec.Type, object.Spec.LoadBalancerClass = c.kind, c.class
				if c.deleted {
					now := metav1.NewTime(lbtest.Now())
					object.DeletionTimestamp = &now
				}
			})
			if got := compile.Service(object, defaults()).Ours; got != c.ours {
				t.Errorf("%s: Ours is %v for the default installation", c.reason, got)
			}
			byChoice := compile.Options{LoadBalancerClass: v1beta1.LoadBalancerClass}
			if got := compile.Service(object, byChoice).Ours; got != c.oursByChoice {
				t.Errorf("%s: Ours is %v for an installation that is not the default", c.reason, got)
			}
		})
	}
}

// TestOtherTypesAreNoServices: a Service of another type is none of Berth's business, whatever its class (fault F22).
func TestOtherTypesAreNoServices(t *testing.T) {
	t.Parallel()
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, ""} {
		object := lbtest.ServiceObject("shop/web", func(object *corev1.Service) { object.Spec.Type = kind })
		if got := compile.Service(object, defaults()); got != nil {
			t.Errorf("a Service of type %q is compiled: %+v", kind, got)
		}
	}
}

// TestServiceSpec reads families, policy, ports and selector.
func TestServiceSpec(t *testing.T) {
	t.Parallel()
	prefer := corev1.IPFamilyPolicyPreferDualStack
	object := lbtest.ServiceObject("shop/web", func(object *corev1.Service) {
		object.Spec.ClusterIPs = []string{"2001:db8:1::10", "10.96.0.10"}
		object.Spec.ExternalIPs = []string{"203.0.113.7", "no address"}
		object.Spec.IPFamilyPolicy = &prefer
		object.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		object.Spec.HealthCheckNodePort = 31234
		object.Spec.Selector = map[string]string{"tier": "front", "app": "web"}
		object.Spec.Ports = []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}, {Port: 53}}
	})
	want := &cluster.Service{
		Name: cluster.Name{Namespace: "shop", Name: "web"}, UID: "uid of shop/web", Created: lbtest.Now().Add(-time.Hour),
		Ours:             true,
		Families:         []cluster.Family{cluster.IPv6, cluster.IPv4},
		FamilyPolicy:     cluster.PreferDualStack,
		Policy:           cluster.PolicyLocal,
		Ports:            []cluster.Port{{Protocol: "UDP", Number: 53}, {Protocol: "TCP", Number: 53}},
		Selector:         "app=web,tier=front",
		ClusterAddresses: addresses("2001:db8:1::10", "10.96.0.10", "203.0.113.7"),
		HealthCheckPort:  31234,
	}
	if diff := cmp.Diff(want, compile.Service(object, defaults()), equal()); diff != "" {
		t.Error(diff)
	}
}

// TestFamilyPolicy reads spec.ipFamilyPolicy, which an API server without dual stack leaves out (rule A2).
func TestFamilyPolicy(t *testing.T) {
	t.Parallel()
	single, prefer, require := corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack
	for policy, want := range map[*corev1.IPFamilyPolicy]cluster.FamilyPolicy{
		nil: cluster.SingleStack, &single: cluster.SingleStack, &prefer: cluster.PreferDualStack, &require: cluster.RequireDualStack,
	} {
		object := lbtest.ServiceObject("shop/web", func(object *corev1.Service) { object.Spec.IPFamilyPolicy = policy })
		if got := compile.Service(object, defaults()).FamilyPolicy; got != want {
			t.Errorf("%v is %v, not %v", policy, got, want)
		}
	}
}

// TestFamiliesWithoutClusterIPs: a headless Service, or one that has no ClusterIP yet, wants spec.ipFamilies (rule A2).
func TestFamiliesWithoutClusterIPs(t *testing.T) {
	t.Parallel()
	object := lbtest.ServiceObject("shop/web", func(object *corev1.Service) {
		object.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
		object.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	})
	want := []cluster.Family{cluster.IPv6, cluster.IPv4}
	if diff := cmp.Diff(want, compile.Service(object, defaults()).Families); diff != "" {
		t.Error(diff)
	}
}

// TestRequest reads the wish for addresses and pools (rules A3, A4; faults F40, F116).
func TestRequest(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		addresses string // the annotation
		field     string // spec.loadBalancerIP
		pool      string // the annotation
		want      []netip.Addr
		wantPool  string
		problem   string
	}{
		"None":         {reason: "no wish"},
		"One":          {reason: "an address", addresses: "192.0.2.10", want: addresses("192.0.2.10")},
		"Both":         {reason: "one of each family", addresses: " 192.0.2.10 ,2001:DB8:0::0005", want: addresses("192.0.2.10", "2001:db8::5")},
		"Field":        {reason: "the field of old", field: "192.0.2.10", want: addresses("192.0.2.10")},
		"Annotation":   {reason: "the annotation before the field", addresses: "192.0.2.11", field: "192.0.2.10", want: addresses("192.0.2.11")},
		"Mapped":       {reason: "IPv4 written as IPv6 is IPv4", addresses: "::ffff:192.0.2.10", want: addresses("192.0.2.10")},
		"Pool":         {reason: "a pool", pool: " public ", wantPool: "public"},
		"TwoOfAFamily": {reason: "at most one of each", addresses: "192.0.2.10,192.0.2.11", problem: "names two IPv4 addresses"},
		"NotAnAddress": {reason: "text", addresses: "192.0.2.300", problem: `annotation berth.dev/addresses: "192.0.2.300" is not an IP address`},
		"Prefix":       {reason: "a prefix is no address", field: "192.0.2.0/24", problem: `spec.loadBalancerIP: "192.0.2.0/24" is not`},
		"Zone":         {reason: "an address of one link cannot be announced", addresses: "fe80::1%eth0", problem: "is not an IP address"},
		"EmptyPart":    {reason: "a comma too many", addresses: "192.0.2.10,", problem: `"" is not an IP address`},
		"NotAPool": {
			reason: "no object has such a name",
			pool:   "the public one", problem: `annotation berth.dev/pool: "the public one" is not the name of a pool`,
		},
		"Endless":     {reason: "a message must fit into a condition", addresses: strings.Repeat("9", 1<<18), problem: strings.Repeat("9", 100) + "..."},
		"EndlessPool": {reason: "a message must fit into a condition", pool: strings.Repeat("p", 1<<18), problem: strings.Repeat("p", 100) + "..."},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := compile.Service(requesting(c.addresses, c.field, c.pool), defaults())
			if diff := cmp.Diff(c.want, got.Request, equal()); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
			if got.RequestPool != c.wantPool {
				t.Errorf("%s: pool %q, want %q", c.reason, got.RequestPool, c.wantPool)
			}
			checkProblem(t, got.RequestProblem, reason.InvalidRequest, c.problem)
		})
	}
}

// requesting is a Service that asks for addresses and a pool.
func requesting(addresses, field, pool string) *corev1.Service {
	return lbtest.ServiceObject("shop/web", func(object *corev1.Service) {
		object.Annotations = map[string]string{v1beta1.AnnotationAddresses: addresses, v1beta1.AnnotationPool: pool}
		object.Spec.LoadBalancerIP = field
	})
}

// checkProblem compares a problem with the word it must have and a part of its message; an empty part means no problem.
func checkProblem(t *testing.T, got *reason.Reason, word reason.Word, part string) {
	t.Helper()
	switch {
	case part == "" && got == nil:
	case part == "" || got == nil:
		t.Errorf("problem %v, want one with %q", got, part)
	case got.Word != word || !strings.Contains(got.Message, part):
		t.Errorf("problem %v, want %s with %q", got, word, part)
	case len(got.Message) > 1024:
		t.Errorf("the message has %d bytes", len(got.Message))
	}
}

// TestRecord reads a status back (rules A11, A14; fault F49).
func TestRecord(t *testing.T) {
	t.Parallel()
	since := metav1.NewTime(lbtest.Now())
	allocated := func(message string) metav1.Condition {
		return metav1.Condition{Type: v1beta1.ConditionAllocated, Status: metav1.ConditionTrue, Message: message, LastTransitionTime: since}
	}
	pool := func(message string) metav1.Condition {
		return metav1.Condition{Type: v1beta1.ConditionPool, Status: metav1.ConditionTrue, Message: message}
	}
	cases := map[string]struct {
		reason     string
		ingress    []string
		conditions []metav1.Condition
		want       cluster.Record
	}{
		"Empty":   {reason: "a new Service"},
		"Foreign": {reason: "another program's", ingress: []string{"192.0.2.33"}, want: cluster.Record{Addresses: addresses("192.0.2.33")}},
		"Ours": {
			reason: "as we write it", ingress: []string{"192.0.2.10", "2001:db8::10"},
			conditions: []metav1.Condition{allocated("192.0.2.10 from pool public and 2001:db8::10 from pool six"), pool("public,six")},
			want: cluster.Record{
				Addresses: addresses("192.0.2.10", "2001:db8::10"), Named: addresses("192.0.2.10", "2001:db8::10"),
				Pools: []string{"public", "six"}, ByUs: true, Since: since.Time,
			},
		},
		"Announced": {
			reason:     "a Service that was announced is not probed again",
			conditions: []metav1.Condition{{Type: v1beta1.ConditionAnnounced, Status: metav1.ConditionTrue, LastTransitionTime: since}},
			want:       cluster.Record{Announced: since.Time},
		},
		"NotAnnounced": {
			reason:     "one that nobody announces may have to wait again",
			conditions: []metav1.Condition{{Type: v1beta1.ConditionAnnounced, Status: metav1.ConditionFalse, LastTransitionTime: since}},
		},
		"Garbage": {
			reason: "what is no address is dropped", ingress: []string{"300.1.1.1", "", "192.0.2.10", "192.0.2.10", "fe80::1%eth0"},
			want: cluster.Record{Addresses: addresses("192.0.2.10"), Garbage: true},
		},
		"Canonical": {
			reason: "other spellings are the same address", ingress: []string{"2001:DB8:0::0010", "::ffff:192.0.2.10"},
			want: cluster.Record{Addresses: addresses("2001:db8::10", "192.0.2.10")},
		},
		"Keeps": {
			reason: "what is kept is named, what is wished for is not", ingress: []string{"192.0.2.10"},
			conditions: []metav1.Condition{allocated("keeps 192.0.2.10 from pool public; AddressInUse: 192.0.2.5 is held by Service shop/other")},
			want:       cluster.Record{Addresses: addresses("192.0.2.10"), Named: addresses("192.0.2.10"), ByUs: true, Since: since.Time},
		},
		"Pending": {
			reason: "a pending Service's reason names an address that it has not", ingress: []string{"192.0.2.5"},
			conditions: []metav1.Condition{allocated("192.0.2.5 is held by Service shop/other")},
			want:       cluster.Record{Addresses: addresses("192.0.2.5"), ByUs: true, Since: since.Time},
		},
		"OnlyAnd": {
			reason: "the list ends where the prose begins", ingress: []string{"192.0.2.10", "192.0.2.33"},
			conditions: []metav1.Condition{allocated("192.0.2.10 from pool public not 192.0.2.33 from pool public")},
			want:       cluster.Record{Addresses: addresses("192.0.2.10", "192.0.2.33"), Named: addresses("192.0.2.10"), ByUs: true, Since: since.Time},
		},
		"ForeignSaid": {
			reason: "the reason for a foreign address does not make it ours", ingress: []string{"192.0.2.33"},
			conditions: []metav1.Condition{allocated("the status holds 192.0.2.33, which Berth did not give")},
			want:       cluster.Record{Addresses: addresses("192.0.2.33"), ByUs: true, Since: since.Time},
		},
		"Injected": {
			reason: "nor does what a user writes where a message quotes it", ingress: []string{"192.0.2.33"},
			conditions: []metav1.Condition{allocated(`annotation berth.dev/addresses: "x and 192.0.2.33 from pool public" is not an IP address`)},
			want:       cluster.Record{Addresses: addresses("192.0.2.33"), ByUs: true, Since: since.Time},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := compile.Service(withStatus(c.ingress, c.conditions), defaults()).Recorded
			if diff := cmp.Diff(c.want, got, equal()); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
		})
	}
}

// withStatus is a Service with these entries in its status.
func withStatus(ingress []string, conditions []metav1.Condition) *corev1.Service {
	return lbtest.ServiceObject("shop/web", func(object *corev1.Service) {
		for _, text := range ingress {
			object.Status.LoadBalancer.Ingress = append(object.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: text})
		}
		object.Status.Conditions = conditions
	})
}

func addresses(texts ...string) []netip.Addr {
	list := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// FuzzRequest: whatever an annotation says, the wish is nothing with a problem, or canonical addresses, at most one of
// each family, that read the same when they are written again.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{"", "192.0.2.10", " 192.0.2.10 , 2001:DB8::5", "::ffff:192.0.2.1", "fe80::1%eth0", ",", "192.0.2.1,192.0.2.1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := compile.Service(requesting(text, "", ""), defaults())
		if got.RequestProblem != nil {
			if len(got.Request) > 0 || len(got.RequestProblem.Message) > 2048 {
				t.Fatalf("wish %v, problem of %d bytes", got.Request, len(got.RequestProblem.Message))
			}
			return
		}
		families, written := map[cluster.Family]int{}, make([]string, 0, len(got.Request))
		for _, address := range got.Request {
			families[cluster.FamilyOf(address)]++
			written = append(written, address.String())
			if !address.IsValid() || address != address.Unmap().WithZone("") {
				t.Fatalf("%v is not canonical", address)
			}
		}
		if families[cluster.IPv4] > 1 || families[cluster.IPv6] > 1 {
			t.Fatalf("two of a family: %v", got.Request)
		}
		again := compile.Service(requesting(strings.Join(written, ","), "", ""), defaults())
		if diff := cmp.Diff(got.Request, again.Request, equal()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzRecord: whatever a status holds, the record is canonical addresses without repetitions; written as we write it, it
// is read back the same, without garbage and with every address named.
func FuzzRecord(f *testing.F) {
	f.Add("192.0.2.10", "2001:db8::10", "192.0.2.10 from pool public and 2001:db8::10 from pool six", "public,six")
	f.Add("300.1.1.1", "", "keeps 192.0.2.10 from pool", "")
	f.Add("192.0.2.10", "::ffff:192.0.2.10", "192.0.2.10 from pool a and", ",,,")
	f.Fuzz(func(t *testing.T, first, second, message, pools string) {
		got := compile.Service(withStatus([]string{first, second}, []metav1.Condition{
			{Type: v1beta1.ConditionAllocated, Message: message}, {Type: v1beta1.ConditionPool, Message: pools},
		}), defaults()).Recorded
		written, held := make([]string, 0, len(got.Addresses)), make([]string, 0, len(got.Addresses))
		for _, address := range got.Addresses {
			if !address.IsValid() || address != address.Unmap().WithZone("") {
				t.Fatalf("%v is not canonical", address)
			}
			written = append(written, address.String())
			held = append(held, address.String()+" from pool public")
		}
		again := compile.Service(withStatus(written, []metav1.Condition{
			{Type: v1beta1.ConditionAllocated, Message: strings.Join(held, " and ")},
		}), defaults()).Recorded
		want := cluster.Record{Addresses: got.Addresses, Named: got.Addresses, ByUs: true}
		if diff := cmp.Diff(want, again, equal()); diff != "" {
			t.Fatal(diff)
		}
	})
}
