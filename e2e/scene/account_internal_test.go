package scene

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUnlisted(t *testing.T) {
	t.Parallel()
	allowed := []Skip{{Scene: "nodeport-*", Sentence: "iptables is not installed"}}
	for name, test := range map[string]struct {
		reason string
		skip   Skip
		listed bool
	}{
		"Listed":        {"the list allows it", Skip{"nodeport-iptables", "iptables is not installed"}, true},
		"Repeated":      {"the number of a repeated scene does not matter", Skip{"nodeport-iptables#2", "iptables is not installed"}, true},
		"OtherScene":    {"the list speaks of another scene", Skip{"bgp", "iptables is not installed"}, false},
		"OtherSentence": {"the list speaks of another reason", Skip{"nodeport-iptables", "nft is not installed"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var account Account
			account.skipped(test.skip.Scene, test.skip.Sentence)
			if got := len(account.Unlisted(allowed)) == 0; got != test.listed {
				t.Errorf("%s: listed is %v", test.reason, got)
			}
		})
	}
}

func TestSlowestIsSortedAndCut(t *testing.T) {
	t.Parallel()
	var account Account
	for i, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
		account.ran(name, time.Duration(i)*time.Second)
	}
	want := "  10.0 s  k\n   9.0 s  j\n   8.0 s  i\n   7.0 s  h\n   6.0 s  g\n" +
		"   5.0 s  f\n   4.0 s  e\n   3.0 s  d\n   2.0 s  c\n   1.0 s  b\n"
	if diff := cmp.Diff(want, account.Slowest()); diff != "" {
		t.Error(diff)
	}
}

func TestNoNamespaceBeginsAnother(t *testing.T) {
	t.Parallel()
	scenes := []string{"node", "node#1", "node#10", "node-lost", "node-lost#1"}
	for _, one := range scenes {
		for _, other := range scenes {
			if one != other && strings.HasPrefix(namespaceFor(other)+"-", namespaceFor(one)+"-") {
				t.Errorf("what %s made would be removed with what %s made", other, one)
			}
		}
	}
}
