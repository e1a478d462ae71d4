package proxy

import (
	"bufio"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

// syncs are what kube-proxy's metrics tell about its work, by this node's wall clock; zero what they do not tell.
//
// kube-proxy writes its rules in rounds, at most one in minSyncPeriod. A change is put among the pending ones, and then
// queued is set. A round begins, takes all pending changes, writes the rules, sets finished if that went well, and then
// counts itself and the time it took. So a round that began after a change was queued has it; one that only finished
// after that may not (pkg/proxy in Kubernetes; the same for nftables, iptables with its partial rounds, and IPVS).
type syncs struct {
	finished time.Time     // the last round that succeeded
	queued   time.Time     // the last change that asked for one
	count    float64       // rounds so far, also those that failed
	spent    time.Duration // on all of them
}

// readSyncs finds them among kube-proxy's metrics (pkg/proxy/metrics in Kubernetes). Since Kubernetes 1.32 each family has
// its own; a change of one family does not make the other sync, so the family has to be the right one. Where there is no
// such label the value holds for both.
//
// The numbers of pending changes are no use: the two families overwrite each other's.
func readSyncs(metrics io.Reader) map[cluster.Family]syncs {
	found := map[cluster.Family]syncs{}
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, labels, value := splitSample(lines.Text())
		for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
			if labels == "" || strings.Contains(labels, `ip_family="`+family.String()+`"`) {
				found[family] = found[family].with(name, value)
			}
		}
	}
	return found
}

// with is the same with one more metric read.
func (s syncs) with(name, value string) syncs {
	const (
		finished = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
		queued   = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
		count    = "kubeproxy_sync_proxy_rules_duration_seconds_count"
		spent    = "kubeproxy_sync_proxy_rules_duration_seconds_sum"
	)
	switch name {
	case finished:
		s.finished = timeOf(value)
	case queued:
		s.queued = timeOf(value)
	case count:
		s.count = positive(value)
	case spent:
		s.spent = time.Duration(positive(value) * float64(time.Second))
	}
	return s
}

// splitSample takes a line of the text format apart: name{labels} value.
func splitSample(line string) (name, labels, value string) {
	series, value, _ := strings.Cut(line, " ")
	name, labels, _ = strings.Cut(series, "{")
	return name, labels, value
}

// timeOf reads seconds since 1970; zero if it cannot, or if the event has not happened yet.
func timeOf(value string) time.Time {
	seconds := positive(value)
	if seconds == 0 {
		return time.Time{}
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9))
}

// positive reads a number above 0, and below what seconds until the year 2242 are; 0 for all others.
func positive(value string) float64 {
	const end = 1 << 33
	number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(number > 0 && number < end) { // also not a number
		return 0
	}
	return number
}

const (
	// heardWithin is how long kube-proxy may take to hear of a change after we have; heardBefore is how long before us it may
	// have heard of it.
	heardWithin = 300 * time.Millisecond
	heardBefore = 2 * time.Second
	// sameMoment is how much earlier than it did a round may seem to begin: the time it counts goes on for a moment after it
	// has said that it is finished.
	sameMoment = 3 * time.Millisecond
	// restsFor is how long kube-proxy rests after a round before it begins another (minSyncPeriod, 1 s unless configured).
	restsFor = 1100 * time.Millisecond
)

// rounds are kube-proxy's rounds as several readings tell of them.
type rounds struct {
	last    syncs
	counted syncs     // the reading in which the round that finished last, or the first one seen, had been counted
	began   time.Time // when the round that finished last began, or earlier; zero if that is not known
}

// add takes a reading in. All that was spent since the last round that was counted is taken for the time of the one that
// finished last, so began is never too late: neither if there were more rounds than readings, nor if some failed.
func (r *rounds) add(s syncs) {
	r.last = s
	switch {
	case r.counted.count == 0 || s.count < r.counted.count: // the first reading, or another kube-proxy
		r.counted, r.began = s, time.Time{}
	case s.finished.Equal(r.counted.finished): // nothing new
	case s.count > r.counted.count:
		r.began = s.finished.Add(r.counted.spent - s.spent)
		r.counted = s
	default: // finished a moment ago, and not counted yet
		r.began = time.Time{}
	}
}

// include is true if kube-proxy's rules hold, at the time now, a change first seen here at that time. Both have heard of
// it from the API server at about the same time: it has come to kube-proxy at most heardWithin later than to us.
//
//  1. A round that began after that includes it, whatever else has come in since.
//  2. Else kube-proxy must have heard something not long before, and have finished a round since.
//  3. If that round began after the last change was queued there is no change that it does not include.
//  4. Where it is not known when it began, or the two were at the same moment, the change may have come in during the
//     round. Then another follows as soon as kube-proxy has rested. If none has, not even one that failed, there was none
//     to follow.
func (r *rounds) include(seen, now time.Time) bool {
	heard, s := seen.Add(heardWithin), r.last
	switch {
	case now.Before(heard):
		return false
	case !r.began.Before(heard):
		return true
	case s.queued.Before(seen.Add(-heardBefore)), s.queued.After(s.finished):
		return false
	case !r.began.IsZero() && !s.queued.After(r.began.Add(sameMoment)):
		return true
	default:
		return s.count == r.counted.count && now.Sub(s.finished) >= restsFor+2*s.usual()
	}
}

// usual is how long a round takes on average.
func (s syncs) usual() time.Duration {
	if s.count == 0 {
		return 0
	}
	return time.Duration(float64(s.spent) / s.count)
}
