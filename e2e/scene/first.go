package scene

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berthlb/berth/e2e/gap"
)

const (
	firstUsage = "first-answer IP [-apply FILE] [-port N] [-max DURATION]"
	// firstAsk is how often the client asks until somebody answers: it is by how much it may be late.
	firstAsk = 20 * time.Millisecond
	// firstWatch is for how long connections must be answered from then on: longer than kube-proxy rests between two
	// rounds, in which a change waits that the round before came too early for.
	firstWatch = 1200 * time.Millisecond
)

// firstAnswer applies a file, if there is one, and asks who has an address until somebody says so. From then on it opens
// connections, each with one SYN. It fails if any of them is not answered, or if nobody says to have the address in time.
func firstAnswer(s *Scene, args []string) (string, error) {
	first, err := parseFirst(args)
	if err != nil {
		return "", err
	}
	if first.file != "" {
		if out, err := apply(s, []string{first.file}); err != nil {
			return out, err
		}
	}
	begin := time.Now()
	var macs []string
	for len(macs) == 0 {
		if time.Since(begin) > first.limit {
			return "", fmt.Errorf("nobody has answered for %s in %s", first.target.Addr(), first.limit)
		}
		if macs, err = s.lab.Client().WhoHas(first.target.Addr(), firstAsk); err != nil {
			return "", err
		}
	}
	took := time.Since(begin)
	meter := gap.Start(s.ctx, s.lab.Client().Space(), first.target)
	defer meter.Stop()
	select {
	case <-s.ctx.Done():
		return "", s.ctx.Err()
	case <-time.After(firstWatch):
	}
	record := meter.Stop()
	failed := slices.DeleteFunc(slices.Clone(record), func(a gap.Attempt) bool { return a.Err == nil })
	out := fmt.Sprintf("%s after %d ms, %d connections, %d failed\n", s.lab.NameOf(macs[0]), took.Milliseconds(), len(record), len(failed))
	if len(failed) == 0 {
		return out, nil
	}
	last := failed[len(failed)-1]
	return out, fmt.Errorf("%s: %d connections failed after it was said who has it, the last %d ms after: %w",
		first.target, len(failed), last.Begin.Sub(begin.Add(took)).Milliseconds(), last.Err)
}

// first is what firstAnswer was asked for.
type first struct {
	target netip.AddrPort
	limit  time.Duration
	file   string // empty: nothing is applied
}

func parseFirst(args []string) (f first, err error) {
	if len(args) == 0 {
		return f, usageError{firstUsage}
	}
	options := map[string]string{"port": "80", "max": "5s"}
	given, err := parseFlags(args[1:], firstUsage, "apply", "port", "max")
	if err != nil {
		return f, err
	}
	maps.Copy(options, given)
	host := args[0]
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if f.target, err = netip.ParseAddrPort(host + ":" + options["port"]); err != nil {
		return f, usageError{firstUsage + ": " + err.Error()}
	}
	if f.limit, err = time.ParseDuration(options["max"]); err != nil {
		return f, usageError{firstUsage + ": " + err.Error()}
	}
	f.file = options["apply"]
	return f, nil
}
