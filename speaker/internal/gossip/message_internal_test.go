package gossip

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthlb/berth/internal/cluster"
)

// full is a member of which every field is set.
func full() cluster.Member {
	return cluster.Member{
		Node: "n1", ProxyReady: true, Stale: true, Unsure: true, Restarting: true, Settled: true, Outlived: time.Minute, Versions: []int{1, 2},
		Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Links: []cluster.Link{{
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")},
			Name:      "eth0", Index: 7, MAC: [6]byte{2, 0, 0, 0, 0, 1}, IPv4: true, LinkLocal: netip.MustParseAddr("fe80::1"),
			Subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		}},
	}
}

func sameAddresses() cmp.Option {
	return cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})
}

// TestEveryFieldTravels fails for a field of cluster.Member or cluster.Link that is not carried, also one added later.
func TestEveryFieldTravels(t *testing.T) {
	t.Parallel()
	said := full()
	for _, value := range []any{said, said.Links[0]} {
		v := reflect.ValueOf(value)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not set: set it in this test, and carry it in news", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
	message := encode(kindFacts, newsOf(said, 42))
	got, err := decodeNews(message[1:])
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != 42 {
		t.Errorf("version %d, want 42", got.Version)
	}
	if diff := cmp.Diff(said, *got.member(), sameAddresses()); diff != "" {
		t.Errorf("what arrives (-said +heard):\n%s", diff)
	}
	t.Logf("%d bytes: %s", len(message), message)
}

func TestNewsThatIsRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		content string
		refused bool
	}{
		"good":      {reason: "the least there is", content: `{"n":"n1","v":1}`},
		"unknown":   {reason: "a field of a newer speaker is ignored", content: `{"n":"n1","v":1,"zz":{"a":[1]}}`},
		"empty":     {reason: "no content", content: ``, refused: true},
		"text":      {reason: "not JSON", content: `hello`, refused: true},
		"no name":   {reason: "of nobody", content: `{"v":1}`, refused: true},
		"long name": {reason: "a name no Node can have", content: fmt.Sprintf(`{"n":%q,"v":1}`, strings.Repeat("n", 254)), refused: true},
		"large":     {reason: "more than a node can have to say", content: `{"n":"n1","v":1}` + strings.Repeat(" ", 33<<10), refused: true},
		"MAC":       {reason: "a hardware address that is none", content: `{"n":"n1","l":[{"n":"eth0","m":"hello"}]}`, refused: true},
		"long MAC":  {reason: "one that is not Ethernet", content: `{"n":"n1","l":[{"n":"ib0","m":"00:00:5e:00:53:01:00:00"}]}`, refused: true},
		"subnet":    {reason: "a subnet with host bits", content: `{"n":"n1","l":[{"n":"eth0","m":"02:00:00:00:00:01","s":["192.0.2.1/24"]}]}`, refused: true},
		"mapped": {
			reason: "IPv4 written as IPv6", refused: true,
			content: `{"n":"n1","l":[{"n":"eth0","m":"02:00:00:00:00:01","s":["::ffff:192.0.2.0/120"]}]}`,
		},
		"link name": {reason: "a link's name no link can have", content: `{"n":"n1","l":[{"n":"a-name-of-17-byte","m":"02:00:00:00:00:01"}]}`, refused: true},
		"many versions": {
			reason: "more versions than there will be", refused: true,
			content: `{"n":"n1","e":[1` + strings.Repeat(",1", maxVersions) + `]}`,
		},
		"gateway":      {reason: "a gateway that is no address", content: `{"n":"n1","g":[""]}`, refused: true},
		"gateway zone": {reason: "an address of one link only", content: `{"n":"n1","g":["fe80::1%eth0"]}`, refused: true},
		"many gateways": {
			reason: "more gateways than a node says", refused: true,
			content: `{"n":"n1","g":["192.0.2.1"` + strings.Repeat(`,"192.0.2.1"`, maxGateways) + `]}`,
		},
		"number": {reason: "a version that is no number", content: `{"n":"n1","v":"1"}`, refused: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := decodeNews([]byte(c.content)); (err != nil) != c.refused {
				t.Errorf("%s: got %v", c.reason, err)
			}
		})
	}
}

// TestWhatIsSaidIsTaken: what is cut to the limits when it is said is within them when it is heard.
func TestWhatIsSaidIsTaken(t *testing.T) {
	t.Parallel()
	member := full()
	member.Versions = make([]int, 100)
	member.Gateways = slices.Repeat(member.Gateways[:1], 50)
	for i := range 500 {
		link := member.Links[0]
		link.Name = fmt.Sprintf("eth%d", i)
		member.Links = append(member.Links, link)
	}
	got, err := decodeNews(encode(kindFacts, newsOf(member, 1))[1:])
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Links) != maxLinks || len(got.Gateways) != maxGateways || len(got.Versions) != maxVersions {
		t.Errorf("%d links, %d gateways and %d versions arrive", len(got.Links), len(got.Gateways), len(got.Versions))
	}
}

// TestOneBadNewsSpoilsNoOther is rule P20 for a state.
func TestOneBadNewsSpoilsNoOther(t *testing.T) {
	t.Parallel()
	all, err := decodeState([]byte(`s[{"n":"n1","v":1},{"v":1},7,{"n":"n2","v":2,"l":"x"},{"n":"n3","v":3}]`))
	if err == nil {
		t.Error("nothing is said about the bad entries")
	}
	var names []string
	for _, n := range all {
		names = append(names, n.Node)
	}
	if diff := cmp.Diff([]string{"n1", "n3"}, names); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "f[]", "s", "s{}", "x[]"} {
		if _, err := decodeState([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a state", bad)
		}
	}
}

// FuzzMessages feeds anything to what reads messages: it neither panics nor lets anything beyond the limits through.
func FuzzMessages(f *testing.F) {
	f.Add(encode(kindFacts, newsOf(full(), 42)))
	f.Add(encode(kindState, []news{newsOf(full(), 1), newsOf(cluster.Member{Node: "n2"}, 2)}))
	f.Add([]byte("w{}"))
	f.Fuzz(func(t *testing.T, message []byte) {
		r := newRoster("self", 1)
		r.join("n1", address(1), 0)
		all, _ := decodeState(message)
		if len(message) > 0 {
			if n, err := decodeNews(message[1:]); err == nil {
				all = append(all, n)
			}
		}
		for _, n := range all {
			if err := n.check(); err != nil {
				t.Fatal(err)
			}
			r.hear(n)
			said := newsOf(*n.member(), n.Version)
			if heard, err := decodeNews(encode(kindFacts, said)[1:]); err != nil || !reflect.DeepEqual(*heard, said) {
				t.Fatalf("said %v, heard %v (%v)", said, heard, err)
			}
		}
		r.members(func(string, netip.Addr) bool { return true })
	})
}
