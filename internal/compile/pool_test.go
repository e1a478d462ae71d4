package compile_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/lbtest"
	"github.com/berthlb/berth/internal/reason"
)

// TestRange is rule A6: the forms of a pool's text, and what is refused with the text in the message (faults F29, F30,
// F32).
func TestRange(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, text, want, refused string
	}{
		"CIDR":        {reason: "the whole prefix", text: "192.0.2.0/24", want: "192.0.2.0-192.0.2.255"},
		"Host":        {reason: "a prefix of one", text: "192.0.2.7/32", want: "192.0.2.7-192.0.2.7"},
		"Everything":  {reason: "the longest", text: "::/0", want: "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"Range":       {reason: "off the bounds of any prefix", text: "192.0.2.5-192.0.2.37", want: "192.0.2.5-192.0.2.37"},
		"StartIsEnd":  {reason: "a range of one", text: "192.0.2.10-192.0.2.10", want: "192.0.2.10-192.0.2.10"},
		"Spaces":      {reason: "spaces around the dash", text: "192.0.2.1 - 192.0.2.9", want: "192.0.2.1-192.0.2.9"},
		"Single":      {reason: "one address", text: "192.0.2.10", want: "192.0.2.10-192.0.2.10"},
		"IPv6":        {reason: "a range of IPv6", text: "2001:db8::1-2001:db8::ff", want: "2001:db8::1-2001:db8::ff"},
		"HostBits":    {reason: "two readings", text: "198.51.100.200/28", refused: "198.51.100.200/28 has host bits set"},
		"Backwards":   {reason: "IPv4", text: "192.0.2.9-192.0.2.1", refused: "192.0.2.9-192.0.2.1 ends before it starts"},
		"Backwards6":  {reason: "IPv6, which the API server cannot check", text: "2001:db8::9-2001:db8::1", refused: "ends before it starts"},
		"Mixed":       {reason: "two families", text: "192.0.2.1-2001:db8::1", refused: "mixes IPv4 and IPv6"},
		"Name":        {reason: "no address", text: "example.com", refused: `"example.com" is not a CIDR`},
		"Empty":       {reason: "nothing", text: "", refused: `"" is not a CIDR`},
		"ThreeEnds":   {reason: "one dash too many", text: "192.0.2.1-192.0.2.2-192.0.2.3", refused: "is not a CIDR"},
		"LongPrefix":  {reason: "no such length", text: "192.0.2.0/33", refused: "is not a CIDR"},
		"Zone":        {reason: "of one link only", text: "fe80::1%eth0", refused: "is not a CIDR"},
		"Mapped":      {reason: "IPv4 dressed as IPv6", text: "::ffff:192.0.2.1", refused: "is not a CIDR"},
		"MappedCIDR":  {reason: "a prefix dressed so, as the API server refuses it", text: "::ffff:192.0.2.0/120", refused: "is not a CIDR"},
		"LeadingZero": {reason: "octal or decimal?", text: "192.0.2.010", refused: "is not a CIDR"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := compile.Range(c.text)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%s: error %v, want %q", c.reason, err, c.refused)
				}
				return
			}
			if err != nil || got.String() != c.want {
				t.Errorf("%s: %v, %v, want %s", c.reason, got, err, c.want)
			}
		})
	}
}

// read is the twin of compile.Range, made of the older package net, bytes and a comparison: the first and the last
// address, or false if the text is refused.
func read(text string) (first, last net.IP, ok bool) {
	if _, network, err := net.ParseCIDR(text); err == nil {
		return readPrefix(text, network)
	}
	from, to, dash := strings.Cut(text, "-")
	if !dash {
		to = from
	} else {
		from, to = strings.TrimSpace(from), strings.TrimSpace(to)
	}
	first, last = readAddress(from), readAddress(to)
	ok = len(first) > 0 && len(first) == len(last) && bytes.Compare(first, last) <= 0
	return first, last, ok
}

func readPrefix(text string, network *net.IPNet) (first, last net.IP, ok bool) {
	address, length, _ := strings.Cut(text, "/")
	first = readAddress(address)
	if !first.Equal(network.IP) || len(first) != len(network.Mask) || (len(length) > 1 && length[0] == '0') {
		return nil, nil, false
	}
	last = slices.Clone(network.IP)
	for i := range last {
		last[i] |= ^network.Mask[i]
	}
	return first, last, true
}

// readAddress is 4 bytes of IPv4, 16 of IPv6, none of anything else.
func readAddress(text string) net.IP {
	address := net.ParseIP(text)
	if four := address.To4(); four != nil {
		if strings.Contains(text, ":") {
			return nil
		}
		return four
	}
	return address
}

// FuzzRange compares compile.Range with its twin.
func FuzzRange(f *testing.F) {
	for _, text := range []string{
		"192.0.2.0/24", "192.0.2.1 - 192.0.2.9", "192.0.2.7", "2001:db8::/64", "2001:db8::9-2001:db8::1", "198.51.100.200/28",
		"::ffff:192.0.2.0/120", "::192.0.2.1", "192.0.2.0/024", "0.0.0.0/0", "::/0", "fe80::1%a-fe80::2%a", "1.2.3.4-::1", "-",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := compile.Range(text)
		first, last, ok := read(text)
		if (err == nil) != ok {
			t.Fatalf("%q: %v, %v; the twin reads %v to %v, %v", text, got, err, first, last, ok)
		}
		if ok && (!bytes.Equal(got.From().AsSlice(), first) || !bytes.Equal(got.To().AsSlice(), last)) {
			t.Fatalf("%q: %v; the twin reads %v to %v", text, got, first, last)
		}
	})
}

// TestPoolIsExactlyWhatItsAuthorWrote: of 64 addresses exactly those are the pool's that one of its texts contains, and
// no excluded one does (rule P17). The twin goes through them one by one.
func TestPoolIsExactlyWhatItsAuthorWrote(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		included := rapid.SliceOfN(texts(), 1, 5).Draw(t, "addresses")
		excluded := rapid.SliceOfN(texts(), 0, 4).Draw(t, "exclude")
		object := lbtest.PoolObject("pool", included...)
		for _, text := range excluded {
			object.Spec.Exclude = append(object.Spec.Exclude, v1beta1.AddressText(text))
		}
		pool := compile.Pool(object)
		if pool.Problem != nil {
			t.Fatal(pool.Problem)
		}
		for last := range 64 {
			address := netip.AddrFrom4([4]byte{192, 0, 2, byte(last)})
			want := anyContains(included, address) && !anyContains(excluded, address)
			if got := pool.Contains(address); got != want {
				t.Fatalf("%s in %v without %v: %v", address, included, excluded, got)
			}
			wantOut := anyContains(included, address) && anyContains(excluded, address)
			if got := slices.ContainsFunc(pool.Excluded, func(r netipx.IPRange) bool { return r.Contains(address) }); got != wantOut {
				t.Fatalf("%s excluded from %v by %v: %v", address, included, excluded, got)
			}
		}
		for i := range pool.Ranges[:max(len(pool.Ranges)-1, 0)] {
			if !pool.Ranges[i].To().Next().Less(pool.Ranges[i+1].From()) {
				t.Fatalf("ranges touch or are not sorted: %v", pool.Ranges)
			}
		}
	})
}

// texts are pool texts within 192.0.2.0/26.
func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		first := rapid.IntRange(0, 63).Draw(t, "first")
		switch rapid.SampledFrom([]string{"single", "range", "prefix"}).Draw(t, "form") {
		case "range":
			return fmt.Sprintf("192.0.2.%d-192.0.2.%d", first, rapid.IntRange(first, 63).Draw(t, "last"))
		case "prefix":
			length := rapid.IntRange(26, 32).Draw(t, "length")
			return fmt.Sprintf("192.0.2.%d/%d", first&^(1<<(32-length)-1), length)
		default:
			return fmt.Sprintf("192.0.2.%d", first)
		}
	})
}

func anyContains(texts []string, address netip.Addr) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		first, last, _ := read(text)
		return bytes.Compare(first, address.AsSlice()) <= 0 && bytes.Compare(address.AsSlice(), last) <= 0
	})
}

// TestPool reads the rest of a pool, and what keeps it from being used (rule P20).
func TestPool(t *testing.T) {
	t.Parallel()
	no, priority := false, int32(7)
	bad := []metav1.LabelSelector{{}, {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}
	cases := map[string]struct {
		reason  string
		spec    v1beta1.IPAddressPoolSpec
		want    cluster.Pool
		word    reason.Word
		problem string
	}{
		"Defaults": {
			reason: "assigned from unless it says no", spec: v1beta1.IPAddressPoolSpec{},
			want: cluster.Pool{AutoAssign: true},
		},
		"EmptyAllocation": {
			reason: "an empty serviceAllocation is the same as none (fault F26)",
			spec:   v1beta1.IPAddressPoolSpec{ServiceAllocation: &v1beta1.ServiceAllocation{}},
			want:   cluster.Pool{AutoAssign: true},
		},
		"Everything": {
			reason: "all fields",
			spec: v1beta1.IPAddressPoolSpec{
				AutoAssign: &no, AvoidBuggyIPs: true, Sharing: v1beta1.SharingAcrossNamespaces,
				Quota: &v1beta1.PoolQuota{PerNamespace: 3}, ReleaseDelay: &metav1.Duration{Duration: 10 * time.Minute},
				ServiceAllocation: &v1beta1.ServiceAllocation{
					Priority: &priority, Namespaces: []string{"shop", "blog"},
					ServiceSelectors: []metav1.LabelSelector{lbtest.LabelSelector("app=web")},
				},
			},
			want: cluster.Pool{
				AvoidBuggyIPs: true, Sharing: cluster.AcrossNamespaces, QuotaPerNamespace: 3, ReleaseDelay: 10 * time.Minute,
				Priority: &priority, Namespaces: []string{"blog", "shop"},
				ServiceSelectors: []cluster.Selector{lbtest.Selector("app=web")},
			},
		},
		"Never": {
			reason: "the other mode of sharing", spec: v1beta1.IPAddressPoolSpec{Sharing: v1beta1.SharingNever},
			want: cluster.Pool{AutoAssign: true, Sharing: cluster.Never},
		},
		"SameNamespace": {
			reason: "the default, written out", spec: v1beta1.IPAddressPoolSpec{Sharing: v1beta1.SharingSameNamespace},
			want: cluster.Pool{AutoAssign: true},
		},
		"BadText": {
			reason: "the entry is named", spec: v1beta1.IPAddressPoolSpec{Addresses: []v1beta1.AddressText{"192.0.2.0/24", "2001:db8::9-2001:db8::1"}},
			want: cluster.Pool{AutoAssign: true}, word: reason.InvalidRange, problem: "spec.addresses[1]: 2001:db8::9-2001:db8::1 ends before",
		},
		"BadExclude": {
			reason: "in the other list too", spec: v1beta1.IPAddressPoolSpec{Exclude: []v1beta1.AddressText{"x"}},
			want: cluster.Pool{AutoAssign: true}, word: reason.InvalidRange, problem: "spec.exclude[0]",
		},
		"BadServiceSelector": {
			reason: "the selector is named", spec: v1beta1.IPAddressPoolSpec{ServiceAllocation: &v1beta1.ServiceAllocation{ServiceSelectors: bad}},
			want: cluster.Pool{AutoAssign: true}, word: reason.InvalidSelector, problem: "spec.serviceAllocation.serviceSelectors[1]",
		},
		"BadNamespaceSelector": {
			reason: "the selector is named", spec: v1beta1.IPAddressPoolSpec{ServiceAllocation: &v1beta1.ServiceAllocation{NamespaceSelectors: bad}},
			want: cluster.Pool{AutoAssign: true}, word: reason.InvalidSelector, problem: "spec.serviceAllocation.namespaceSelectors[1]",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := *compile.Pool(&v1beta1.IPAddressPool{Spec: c.spec})
			checkProblem(t, got.Problem, c.word, c.problem)
			got.Problem = nil
			if diff := cmp.Diff(c.want, got, equal()); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
		})
	}
}

// TestPoolWithAProblemHasNoAddresses: nothing is given from a pool that is not what its author meant (rule P20).
func TestPoolWithAProblemHasNoAddresses(t *testing.T) {
	t.Parallel()
	object := lbtest.PoolObject("pool", "192.0.2.0/24")
	object.Spec.ServiceAllocation = &v1beta1.ServiceAllocation{
		NamespaceSelectors: []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}},
	}
	if pool := compile.Pool(object); pool.Problem == nil || len(pool.Ranges) > 0 {
		t.Errorf("problem %v, ranges %v", pool.Problem, pool.Ranges)
	}
}

// TestPoolStatusIsNotRead: what Berth writes about a pool is no reason to look at the pool again.
func TestPoolStatusIsNotRead(t *testing.T) {
	t.Parallel()
	object := lbtest.PoolObject("pool", "192.0.2.0/24")
	before := compile.Pool(object)
	object.ResourceVersion = "2"
	object.Status = v1beta1.IPAddressPoolStatus{
		IPv4:       &v1beta1.AddressCount{Capacity: 256, Assigned: 1, Available: 255},
		Skipped:    []v1beta1.SkippedAddresses{{Addresses: "192.0.2.1", Why: "the default gateway of node n1"}},
		Quarantine: []v1beta1.QuarantinedAddress{{Address: "192.0.2.10", Service: "shop/web"}},
	}
	if diff := cmp.Diff(before, compile.Pool(object), equal()); diff != "" {
		t.Error(diff)
	}
}

// TestReservation reads a reservation (rules A9, P20).
func TestReservation(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		addresses []string
		want      []string
		problem   string
	}{
		"Ranges":  {reason: "exactly what is written", addresses: []string{"192.0.2.4/31", "192.0.2.6", "2001:db8::53"}, want: []string{"192.0.2.4-192.0.2.6", "2001:db8::53-2001:db8::53"}},
		"BadText": {reason: "not used at all", addresses: []string{"192.0.2.4", "2001:db8::9-2001:db8::1"}, problem: "spec.addresses[1]: 2001:db8::9-2001:db8::1 ends before"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := lbtest.ReservationObject("dns", "infra/dns", c.addresses...)
			got := compile.Reservation(object)
			checkProblem(t, got.Problem, reason.InvalidRange, c.problem)
			var ranges []string
			for _, one := range got.Ranges {
				ranges = append(ranges, one.String())
			}
			if diff := cmp.Diff(c.want, ranges); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
			if want := (cluster.Name{Namespace: "infra", Name: "dns"}); got.Service != want || got.Name != "dns" || got.UID != string(object.UID) ||
				!got.Created.Equal(object.CreationTimestamp.Time) {
				t.Errorf("read %+v", got)
			}
		})
	}
}
