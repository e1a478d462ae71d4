package compile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// annotated is a Service with these annotations.
func annotated(annotations map[string]string) *corev1.Service {
	return lbtest.ServiceObject("shop/web", func(object *corev1.Service) { object.Annotations = annotations })
}

// asked is what the owner of a Service asks for, without what is wrong with it.
func asked(service *cluster.Service) *cluster.Service {
	return &cluster.Service{
		Request: service.Request, RequestPool: service.RequestPool, SharingKey: service.SharingKey,
		SharingNamespaces: service.SharingNamespaces, Renumber: service.Renumber,
	}
}

// TestAliases is rule A13: the annotations of MetalLB mean the same as ours, and which one counts where several are there.
func TestAliases(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		want        cluster.Service
		problem     string
	}{
		"Today": {
			reason: "MetalLB's prefix of today",
			annotations: map[string]string{
				"metallb.io/loadBalancerIPs": "192.0.2.10, 2001:db8::10", "metallb.io/address-pool": "public", "metallb.io/allow-shared-ip": "dns",
			},
			want: cluster.Service{Request: addresses("192.0.2.10", "2001:db8::10"), RequestPool: "public", SharingKey: "dns"},
		},
		"Before": {
			reason: "its prefix of old",
			annotations: map[string]string{
				"metallb.universe.tf/loadBalancerIPs": "192.0.2.10", "metallb.universe.tf/address-pool": "public",
				"metallb.universe.tf/allow-shared-ip": "dns",
			},
			want: cluster.Service{Request: addresses("192.0.2.10"), RequestPool: "public", SharingKey: "dns"},
		},
		"Ours": {
			reason: "ours before both",
			annotations: map[string]string{
				"berth.dev/addresses": "192.0.2.1", "metallb.io/loadBalancerIPs": "192.0.2.2", "metallb.universe.tf/loadBalancerIPs": "192.0.2.3",
				"berth.dev/pool": "one", "metallb.io/address-pool": "two", "metallb.universe.tf/address-pool": "three",
				"berth.dev/sharing-key": "a", "metallb.io/allow-shared-ip": "b", "metallb.universe.tf/allow-shared-ip": "c",
			},
			want: cluster.Service{Request: addresses("192.0.2.1"), RequestPool: "one", SharingKey: "a"},
		},
		"TodayBeforeOld": {
			reason: "today's before the old one",
			annotations: map[string]string{
				"metallb.io/loadBalancerIPs": "192.0.2.2", "metallb.universe.tf/loadBalancerIPs": "192.0.2.3",
				"metallb.io/allow-shared-ip": "b", "metallb.universe.tf/allow-shared-ip": "c",
			},
			want: cluster.Service{Request: addresses("192.0.2.2"), SharingKey: "b"},
		},
		"Empty": {
			reason:      "an empty one says nothing",
			annotations: map[string]string{"berth.dev/addresses": " ", "metallb.io/loadBalancerIPs": "192.0.2.2"},
			want:        cluster.Service{Request: addresses("192.0.2.2")},
		},
		"Garbage": {
			reason:      "the message names the annotation that counts, and what it says",
			annotations: map[string]string{"metallb.io/loadBalancerIPs": "any"},
			problem:     `annotation metallb.io/loadBalancerIPs: "any" is not an IP address`,
		},
		"GarbageBehindOurs": {
			reason:      "what does not count does no harm",
			annotations: map[string]string{"berth.dev/addresses": "192.0.2.1", "metallb.io/loadBalancerIPs": "any"},
			want:        cluster.Service{Request: addresses("192.0.2.1")},
		},
		"GarbagePool": {
			reason:      "of the old prefix",
			annotations: map[string]string{"metallb.universe.tf/address-pool": "the public one"},
			problem:     `annotation metallb.universe.tf/address-pool: "the public one" is not the name of a pool`,
		},
		"OtherPrograms": {
			reason:      "an annotation of MetalLB's that is no wish",
			annotations: map[string]string{"metallb.io/ip-allocated-from-pool": "public"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := compile.Service(annotated(c.annotations), defaults())
			if diff := cmp.Diff(&c.want, asked(got), equal()); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
			checkProblem(t, got.RequestProblem, reason.InvalidRequest, c.problem)
		})
	}
}

// TestSharingAndRenumber reads the key, who may join, and the consent to another address (rules A7, A10).
func TestSharingAndRenumber(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		want        cluster.Service
		problem     string
	}{
		"Key":        {reason: "any text is a key", annotations: map[string]string{"berth.dev/sharing-key": " a key, with ünicode "}, want: cluster.Service{SharingKey: "a key, with ünicode"}},
		"Namespaces": {reason: "sorted, each once", annotations: map[string]string{"berth.dev/sharing-namespaces": "web, mail,web"}, want: cluster.Service{SharingNamespaces: []string{"mail", "web"}}},
		"EmptyPart": {
			reason: "a comma too many", annotations: map[string]string{"berth.dev/sharing-namespaces": "web,"},
			problem: `annotation berth.dev/sharing-namespaces: "" is not the name of a namespace`,
		},
		"Everybody": {
			reason: "no pattern", annotations: map[string]string{"berth.dev/sharing-namespaces": "*"},
			problem: `annotation berth.dev/sharing-namespaces: "*" is not the name of a namespace`,
		},
		"Renumber": {reason: "any text", annotations: map[string]string{"berth.dev/renumber": " 2026-01-01 "}, want: cluster.Service{Renumber: "2026-01-01"}},
		"LongRenumber": {
			reason: "it is recorded as it is", annotations: map[string]string{"berth.dev/renumber": strings.Repeat("x", 64)},
			problem: "annotation berth.dev/renumber: \"" + strings.Repeat("x", 64) + "\" has more than 63 characters",
		},
		"LongestRenumber": {
			reason: "as long as allowed", annotations: map[string]string{"berth.dev/renumber": strings.Repeat("x", 63)},
			want: cluster.Service{Renumber: strings.Repeat("x", 63)},
		},
		"Endless": {
			reason: "a message must fit into a condition", annotations: map[string]string{"berth.dev/renumber": strings.Repeat("x", 1<<18)},
			problem: strings.Repeat("x", 100) + "...",
		},
		"FirstProblem": {
			reason:      "of two the first, whatever the order of a map",
			annotations: map[string]string{"berth.dev/addresses": "any", "berth.dev/pool": "?", "berth.dev/sharing-namespaces": "?", "berth.dev/renumber": strings.Repeat("x", 64)},
			problem:     `annotation berth.dev/addresses: "any" is not an IP address`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := compile.Service(annotated(c.annotations), defaults())
			if diff := cmp.Diff(&c.want, asked(got), equal()); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
			checkProblem(t, got.RequestProblem, reason.InvalidRequest, c.problem)
		})
	}
}

// TestRenumbered reads back the consent that was used up (rule A10).
func TestRenumbered(t *testing.T) {
	t.Parallel()
	object := withStatus(nil, []metav1.Condition{{Type: v1beta1.ConditionRenumbered, Status: metav1.ConditionTrue, Message: "once"}})
	if got := compile.Service(object, defaults()).Recorded.Renumbered; got != "once" {
		t.Errorf("read %q", got)
	}
}

// TestUnknownAnnotations is rule A13: what is under our prefix and means nothing.
func TestUnknownAnnotations(t *testing.T) {
	t.Parallel()
	annotations := map[string]string{"berth.dev/adresses": "192.0.2.1", "berth.dev/Pool": "public", "example.com/pool": "x", "metallb.io/pool": "x"}
	for _, known := range v1beta1.Annotations() {
		annotations[known] = "x"
	}
	want := []string{"berth.dev/Pool", "berth.dev/adresses"}
	if diff := cmp.Diff(want, compile.UnknownAnnotations(annotated(annotations))); diff != "" {
		t.Error(diff)
	}
}

// TestWishIsStable: whatever stands in the annotations, the wish written as it was understood is the same wish, and has
// nothing wrong with it: f(f(x)) = f(x).
func TestWishIsStable(t *testing.T) {
	t.Parallel()
	keys := []string{
		"berth.dev/addresses", "berth.dev/pool", "berth.dev/sharing-key", "berth.dev/sharing-namespaces", "berth.dev/renumber",
		"metallb.io/loadBalancerIPs", "metallb.io/address-pool", "metallb.io/allow-shared-ip",
		"metallb.universe.tf/loadBalancerIPs", "metallb.universe.tf/address-pool", "metallb.universe.tf/allow-shared-ip",
	}
	texts := rapid.OneOf(rapid.String(), rapid.StringMatching(`( ?(192\.0\.2\.[0-9]|2001:DB8::[0-9]|web|mail|-|,) ?){0,4}`))
	rapid.Check(t, func(t *rapid.T) {
		first := compile.Service(annotated(rapid.MapOfN(rapid.SampledFrom(keys), texts, 0, 6).Draw(t, "annotations")), defaults())
		wish := asked(first)
		written := map[string]string{
			"berth.dev/addresses": join(wish.Request), "berth.dev/pool": wish.RequestPool, "berth.dev/sharing-key": wish.SharingKey,
			"berth.dev/sharing-namespaces": strings.Join(wish.SharingNamespaces, ","), "berth.dev/renumber": wish.Renumber,
		}
		second := compile.Service(annotated(written), defaults())
		if diff := cmp.Diff(wish, asked(second), equal()); diff != "" {
			t.Fatalf("written as understood: %s", diff)
		}
		if second.RequestProblem != nil {
			t.Fatalf("written as understood it is refused: %v", second.RequestProblem)
		}
		if first.RequestProblem != nil && len(first.RequestProblem.Message) > 1024 {
			t.Fatalf("the message has %d bytes", len(first.RequestProblem.Message))
		}
	})
}

// join writes addresses as an annotation holds them.
func join[T interface{ String() string }](list []T) string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = one.String()
	}
	return strings.Join(texts, ", ")
}

// FuzzAnnotations: whatever the annotations about sharing and renumbering say, what is understood is in form, and reads the
// same when it is written again.
func FuzzAnnotations(f *testing.F) {
	f.Add("dns", "mail, web", "once", "berth.dev/adresses")
	f.Add(" ", ",", strings.Repeat("x", 64), "berth.dev/")
	f.Add("a\x00b", "*", "\n", "berth.dev/pool")
	f.Fuzz(func(t *testing.T, key, namespaces, consent, other string) {
		annotations := map[string]string{other: "x"}
		annotations[v1beta1.AnnotationSharingKey], annotations[v1beta1.AnnotationSharingNamespaces] = key, namespaces
		annotations[v1beta1.AnnotationRenumber] = consent
		object := annotated(annotations)
		got := compile.Service(object, defaults())
		if len(got.Renumber) > 63 || strings.Contains(strings.Join(got.SharingNamespaces, ""), ",") {
			t.Fatalf("understood %q and %q", got.Renumber, got.SharingNamespaces)
		}
		if got.RequestProblem != nil && len(got.RequestProblem.Message) > 1024 {
			t.Fatalf("the message has %d bytes", len(got.RequestProblem.Message))
		}
		for _, unknown := range compile.UnknownAnnotations(object) {
			if unknown != other {
				t.Fatalf("%q is unknown", unknown)
			}
		}
		again := compile.Service(annotated(map[string]string{
			v1beta1.AnnotationSharingKey: got.SharingKey, v1beta1.AnnotationSharingNamespaces: strings.Join(got.SharingNamespaces, ","),
			v1beta1.AnnotationRenumber: got.Renumber,
		}), defaults())
		if again.SharingKey != got.SharingKey || again.Renumber != got.Renumber || !cmp.Equal(again.SharingNamespaces, got.SharingNamespaces) {
			t.Fatalf("%+v, written as understood: %+v", got, again)
		}
	})
}
