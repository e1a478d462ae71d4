package scene

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/fabric"
	"github.com/berthlb/berth/e2e/lab/frames"
)

const clientUsage = "client curl [-timeout D] URL | client neigh [IP] | client flush | client exec COMMAND..."

func client(s *Scene, args []string) (string, error) {
	if len(args) == 0 {
		return "", usageError{clientUsage}
	}
	c := s.lab.Client()
	switch args[0] {
	case "curl":
		return curl(s, func() (*fabric.Space, error) { return c.Space(), nil }, args[1:])
	case "neigh":
		return neighbours(s, args[1:])
	case "flush":
		return "", c.FlushNeighbours()
	case "exec":
		return c.Exec(s.ctx, args[1:]...)
	default:
		return "", usageError{clientUsage}
	}
}

const curlTimeout = 2 * time.Second

// curl asks for a URL over a new connection and prints the answer's body.
func curl(s *Scene, from func() (*fabric.Space, error), args []string) (string, error) {
	timeout := curlTimeout
	if len(args) == 3 && args[0] == "-timeout" {
		var err error
		if timeout, err = time.ParseDuration(args[1]); err != nil {
			return "", usageError{clientUsage}
		}
		args = args[2:]
	}
	if len(args) != 1 {
		return "", usageError{clientUsage}
	}
	space, err := from()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	return lab.Get(ctx, space, withScheme(args[0]))
}

func withScheme(url string) string {
	if strings.Contains(url, "://") {
		return url
	}
	return "http://" + url
}

// neighbours prints the client's neighbour table as "ADDRESS NAME STATE" lines.
func neighbours(s *Scene, args []string) (string, error) {
	table, err := s.lab.Client().Neighbours()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, n := range table {
		if len(args) == 1 && n.IP.String() != args[0] || n.HardwareAddr == nil {
			continue
		}
		fmt.Fprintf(&out, "%s %s %#x\n", n.IP, s.lab.NameOf(n.HardwareAddr.String()), n.State)
	}
	return out.String(), nil
}

const answerWait = 300 * time.Millisecond

// arp prints who answers for an address, one "NAME MAC" line each, and fails if nobody does. It asks once, or as often
// as -count says, and prints everybody who answered any question.
func arp(s *Scene, args []string) (string, error) {
	const usage = "arp who-has IP [-count N]"
	if len(args) < 2 || args[0] != "who-has" {
		return "", usageError{usage}
	}
	target, err := netip.ParseAddr(args[1])
	if err != nil {
		return "", usageError{usage + ": " + err.Error()}
	}
	count, err := parseCount(args[2:], usage)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	seen := map[string]bool{}
	for range count {
		macs, err := s.lab.Client().WhoHas(target, answerWait)
		if err != nil {
			return "", err
		}
		for _, mac := range macs {
			if !seen[mac] {
				seen[mac] = true
				fmt.Fprintf(&out, "%s %s\n", s.lab.NameOf(mac), mac)
			}
		}
	}
	if len(seen) == 0 {
		return "", fmt.Errorf("nobody answers for %s", target)
	}
	return out.String(), nil
}

// parseCount reads -count N; without it the answer is 1.
func parseCount(args []string, usage string) (int, error) {
	options, err := parseFlags(args, usage, "count")
	if err != nil || options["count"] == "" {
		return 1, err
	}
	count, err := strconv.Atoi(options["count"])
	if err != nil || count < 1 {
		return 0, usageError{usage}
	}
	return count, nil
}

const (
	ownerLimit  = 10 * time.Second
	ownerProbes = 3
)

// owner waits until exactly one node answers for an address, to several questions in a row, and puts its name into a
// variable of the script.
func owner(s *Scene, args []string) (string, error) {
	if len(args) != 2 {
		return "", usageError{"owner VARIABLE IP"}
	}
	count := strconv.Itoa(ownerProbes)
	text, err := eventually(s, []string{ownerLimit.String(), "-nomatch", `\n.`, "arp", "who-has", args[1], "-count", count})
	if err != nil {
		return text, err
	}
	name, _, _ := strings.Cut(text, " ")
	s.ts.Setenv(args[0], name)
	return text, nil
}

const (
	silentProbes = 20
	silentWait   = 50 * time.Millisecond
)

// silent asks for an address twenty times within a second and fails at the first answer.
func silent(s *Scene, args []string) (string, error) {
	if len(args) != 1 {
		return "", usageError{"silent IP"}
	}
	target, err := netip.ParseAddr(args[0])
	if err != nil {
		return "", usageError{"silent IP: " + err.Error()}
	}
	for i := range silentProbes {
		macs, err := s.lab.Client().WhoHas(target, silentWait)
		if err != nil {
			return "", err
		}
		if len(macs) > 0 {
			return "", fmt.Errorf("%s answered for %s at probe %d", s.lab.NameOf(macs[0]), target, i+1)
		}
	}
	return "", nil
}

// listFrames prints what the client's port saw, with times since the mark.
func listFrames(s *Scene, args []string) (string, error) {
	const usage = "frames [-since MARK|-last DURATION] [-ip IP] [-op request|reply|ns|na] [-gratuitous] [-match RE]"
	gratuitous := false
	if i := indexOf(args, "-gratuitous"); i >= 0 {
		gratuitous, args = true, append(append([]string{}, args[:i]...), args[i+1:]...)
	}
	options, err := parseFlags(args, usage, "since", "last", "ip", "op", "match")
	if err != nil {
		return "", err
	}
	since, err := s.since(options["since"])
	if err != nil {
		return "", err
	}
	if options["last"] != "" {
		last, err := time.ParseDuration(options["last"])
		if err != nil {
			return "", usageError{usage}
		}
		since = time.Now().Add(-last)
	}
	var lines []string
	for _, f := range s.lab.Client().Frames(since) {
		if wanted(f, options) && (f.Gratuitous() || !gratuitous) {
			lines = append(lines, fmt.Sprintf("+%.3f %s %s", f.Time.Sub(since).Seconds(), s.lab.NameOf(f.Source.String()), f))
		}
	}
	return matching(lines, options["match"], usage)
}

// wanted tells whether a frame came in and is of the address and operation asked for.
func wanted(f frames.Frame, options map[string]string) bool {
	ip, op := options["ip"], options["op"]
	return !f.Outgoing && (ip == "" || f.Subject().String() == ip) && (op == "" || f.Op == frames.Op(op))
}

// probe measures how long a URL cannot be had, by new connections at a fixed rate.
func probe(s *Scene, args []string) (string, error) {
	const usage = "gap start URL | gap stop [-max D] [-min D]"
	switch {
	case len(args) == 2 && args[0] == "start":
		if s.prober != nil {
			return "", errors.New("a prober runs already: gap stop ends it")
		}
		s.prober = s.lab.Client().Probe(s.ctx, withScheme(args[1]))
		return "", nil
	case len(args) > 0 && args[0] == "stop":
		options, err := parseFlags(args[1:], usage, "max", "min")
		if err != nil {
			return "", err
		}
		if s.prober == nil {
			return "", errors.New("no prober runs: gap start begins one")
		}
		result := s.prober.Stop()
		s.prober = nil
		return result.String() + "\n", within(result.Gap, options)
	default:
		return "", usageError{usage}
	}
}

func within(gap time.Duration, options map[string]string) error {
	for name, text := range options {
		limit, err := time.ParseDuration(text)
		if err != nil {
			return usageError{err.Error()}
		}
		if name == "max" && gap > limit || name == "min" && gap < limit {
			return fmt.Errorf("the gap is %s, the %s is %s", gap, name, limit)
		}
	}
	return nil
}

// markName keeps the marks of scenes that share a lab apart.
func (s *Scene) markName(name string) string { return s.namespace + "/" + name }

func (s *Scene) since(mark string) (time.Time, error) {
	if mark == "" {
		return time.Time{}, nil
	}
	return s.lab.Marked(s.markName(mark))
}

// parseFlags reads "-name value" pairs of the given names; "--name" is the same.
func parseFlags(args []string, usage string, names ...string) (map[string]string, error) {
	values := map[string]string{}
	for len(args) > 0 {
		name := strings.TrimPrefix(strings.TrimPrefix(args[0], "-"), "-")
		if name == args[0] || indexOf(names, name) < 0 || len(args) < 2 {
			return nil, usageError{usage}
		}
		values[name], args = args[1], args[2:]
	}
	return values, nil
}

func indexOf(list []string, wanted string) int {
	for i, item := range list {
		if item == wanted {
			return i
		}
	}
	return -1
}

// matching joins the lines that match an expression; an empty one matches all.
func matching(lines []string, expression, usage string) (string, error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return "", usageError{usage + ": " + err.Error()}
	}
	var out strings.Builder
	for _, line := range lines {
		if re.MatchString(line) {
			out.WriteString(line + "\n")
		}
	}
	return out.String(), nil
}
