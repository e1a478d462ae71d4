package bench

import (
	"fmt"
	"slices"
	"time"
)

// figures are times measured in the trials of one benchmark, in any order.
type figures []time.Duration

// percentile answers the smallest figure that at least p percent of all do not exceed (the nearest rank). There must be
// one figure at least.
func (f figures) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(f))
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

const (
	median  = 50
	rare    = 95
	highest = 100
)

// ms is a time in milliseconds, to a tenth.
func ms(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}

// spread prints the median, the 95th percentile and the highest of figures. Without figures it prints no line, since
// there is nothing that would be true.
func (b *Bench) spread(name string, f figures) {
	if len(f) == 0 {
		b.printf("%s was not measured: no trial gave a figure\n", name)
		return
	}
	b.printf("bench %s/p50 %s ms\n", name, ms(f.percentile(median)))
	b.printf("bench %s/p95 %s ms\n", name, ms(f.percentile(rare)))
	b.printf("bench %s/max %s ms\n", name, ms(f.percentile(highest)))
}
