package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/internal/cluster"
)

func TestReadSyncs(t *testing.T) {
	t.Parallel()
	const (
		finished = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
		queued   = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
		duration = "kubeproxy_sync_proxy_rules_duration_seconds"
	)
	at := func(seconds int64, ms int64) time.Time { return time.Unix(seconds, ms*int64(time.Millisecond)) }
	cases := map[string]struct {
		reason string
		text   string
		want   syncs // of IPv4
		want6  syncs
	}{
		"1.37": {
			reason: "each family has its own",
			text: "# HELP " + finished + " [ALPHA] The last time proxy rules were successfully synced\n" +
				finished + `{ip_family="IPv4"} 1.8000000005e+09` + "\n" + finished + `{ip_family="IPv6"} 1.9e+09` + "\n" +
				queued + `{ip_family="IPv6"} 1.9e+09` + "\n" + queued + `{ip_family="IPv4"} 1.80000000025e+09` + "\n" +
				"kubeproxy_sync_proxy_rules_endpoint_changes_total 7\n" +
				duration + `_bucket{ip_family="IPv4",le="+Inf"} 12` + "\n" +
				duration + `_sum{ip_family="IPv4"} 1.25` + "\n" + duration + `_count{ip_family="IPv4"} 12` + "\n" +
				duration + `_sum{ip_family="IPv6"} 9` + "\n" + duration + `_count{ip_family="IPv6"} 99` + "\n",
			want:  syncs{finished: at(1_800_000_000, 500), queued: at(1_800_000_000, 250), count: 12, spent: 1250 * time.Millisecond},
			want6: syncs{finished: at(1_900_000_000, 0), queued: at(1_900_000_000, 0), count: 99, spent: 9 * time.Second},
		},
		"before 1.32": {
			reason: "without families the value holds for all",
			text:   finished + " 1.8e+09\n" + queued + " 1.8e+09\n", want: syncs{finished: at(1_800_000_000, 0), queued: at(1_800_000_000, 0)},
			want6: syncs{finished: at(1_800_000_000, 0), queued: at(1_800_000_000, 0)},
		},
		"only IPv6": {
			reason: "one family says nothing about the other", text: finished + `{ip_family="IPv6"} 1.8e+09` + "\n",
			want6: syncs{finished: at(1_800_000_000, 0)},
		},
		"never":         {reason: "0 is never", text: finished + `{ip_family="IPv4"} 0` + "\n"},
		"no number":     {reason: "nor is what is no time", text: finished + ` NaN` + "\n" + queued + " +Inf\n"},
		"a longer name": {reason: "a metric that begins alike is another", text: finished + "_sum 1.8e+09\n"},
		"no metrics":    {reason: "some other server's page", text: "<html>hello</html>"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := readSyncs(strings.NewReader(c.text))
			near := cmp.Comparer(func(a, b time.Time) bool { return a.Sub(b).Abs() < time.Millisecond })
			for family, want := range map[cluster.Family]syncs{cluster.IPv4: c.want, cluster.IPv6: c.want6} {
				if diff := cmp.Diff(want, got[family], cmp.AllowUnexported(syncs{}), near); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", c.reason, family, diff)
				}
			}
		})
	}
}

// FuzzReadSyncs feeds anything to what reads metrics: it does not panic, and gives no time that cannot be.
func FuzzReadSyncs(f *testing.F) {
	f.Add("kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.8e+09\n")
	f.Add("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1e308\n")
	f.Add("kubeproxy_sync_proxy_rules_duration_seconds_sum 8.5e9\nkubeproxy_sync_proxy_rules_duration_seconds_count -1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range readSyncs(strings.NewReader(text)) {
			for _, at := range []time.Time{s.finished, s.queued} {
				if !at.IsZero() && (at.Unix() < 0 || at.Year() > 2300) {
					t.Fatalf("read %s from %q", at, text)
				}
			}
			if s.count < 0 || s.spent < 0 || s.usual() < 0 {
				t.Fatalf("read %+v from %q", s, text)
			}
		}
	})
}
