package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json`, as `go doc test2json` and `go help buildjson` describe it. Its
// names are capitalised there; encoding/json does not mind.
type event struct {
	Action  string  `json:"action"`
	Package string  `json:"package"`
	Test    string  `json:"test"`
	Elapsed float64 `json:"elapsed"`
	Output  string  `json:"output"`
}

// counts are tests without subtests, by how they ended. A test with subtests counts only if it failed and none of them
// did; a package that failed without a failed test (it did not build, or its TestMain failed) counts as one failed.
type counts struct {
	passed, failed, skipped int
}

// test names one test; an empty name is the package itself.
type test struct {
	pkg, name string
}

// summary turns events into lines for a person. It belongs to one goroutine.
type summary struct {
	out     io.Writer
	verbose bool
	total   counts
	// said holds the output of tests that run: printed if they fail, dropped if they pass.
	said map[test][]string
	// parents are the tests that have subtests, failures the tests and packages with a failed one beneath.
	parents  map[test]bool
	failures map[test]bool
}

func newSummary(out io.Writer, verbose bool) *summary {
	return &summary{
		out:      out,
		verbose:  verbose,
		said:     map[test][]string{},
		parents:  map[test]bool{},
		failures: map[test]bool{},
	}
}

// read takes events until there are no more. A line that is no event is printed as it stands.
func (s *summary) read(events io.Reader) error {
	reader := bufio.NewReader(events)
	for {
		line, err := reader.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
	}
}

func (s *summary) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(s.out, line)
		return
	}
	s.take(e)
}

// take prints or keeps what the event says.
func (s *summary) take(e event) {
	key := test{pkg: e.Package, name: e.Test}
	switch e.Action {
	case "run":
		for parent, ok := key.parent(); ok && parent.name != ""; parent, ok = parent.parent() {
			s.parents[parent] = true
		}
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "output":
		s.output(key, e.Output)
	case "pass", "fail", "skip":
		s.ended(key, e)
	}
}

// output keeps what a test says until it ends, and prints what a package says at once.
func (s *summary) output(key test, text string) {
	switch {
	case strings.HasPrefix(text, "=== "), strings.HasPrefix(text, "testing: warning: no tests"):
		// How tests take turns is nobody's concern, and a package without tests has nothing to say.
	case key.name != "":
		s.said[key] = append(s.said[key], text)
	case text == "PASS\n", strings.HasPrefix(text, "?   \t"):
		// The line of the package follows; one without tests has none.
	default:
		fmt.Fprint(s.out, text)
	}
}

// ended counts a test that has ended and prints what is left to say of it.
func (s *summary) ended(key test, e event) {
	said := s.said[key]
	delete(s.said, key)
	leaf := key.name != "" && !s.parents[key]
	switch e.Action {
	case "fail":
		s.failed(key, said)
	case "skip":
		if leaf {
			s.total.skipped++
			fmt.Fprintf(s.out, "SKIP %s: %s\n", key.name, reason(said))
		}
	case "pass":
		if leaf {
			s.total.passed++
		}
		if leaf && s.verbose {
			fmt.Fprintf(s.out, "ok %s %.1f s\n", key.name, e.Elapsed)
		}
	}
}

// failed prints what a failed test said, and counts it unless one beneath it was counted.
func (s *summary) failed(key test, said []string) {
	for _, text := range said {
		fmt.Fprint(s.out, text)
	}
	if !s.failures[key] {
		s.total.failed++
	}
	for parent, ok := key.parent(); ok; parent, ok = parent.parent() {
		s.failures[parent] = true
	}
}

// finish prints what tests without an end said (the process died), and answers the counts.
func (s *summary) finish(code int) counts {
	for key, said := range s.said {
		fmt.Fprintf(s.out, "%s %s did not end:\n%s", key.pkg, key.name, strings.Join(said, ""))
	}
	if code != 0 && s.total.failed == 0 {
		s.total.failed = 1
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.total.passed, s.total.failed, s.total.skipped)
	return s.total
}

// parent answers what a test is part of: the test whose name is left without the last element, then the package.
func (t test) parent() (test, bool) {
	if t.name == "" {
		return test{}, false
	}
	cut := max(strings.LastIndexByte(t.name, '/'), 0)
	return test{pkg: t.pkg, name: t.name[:cut]}, true
}

// reason finds the sentence of a skipped test in its output: the line that starts with the file and line of t.Skip.
func reason(said []string) string {
	for _, text := range slices.Backward(said) {
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "---") {
			continue
		}
		if _, sentence, found := strings.Cut(text, ": "); found {
			return sentence
		}
		return text
	}
	return "no reason given"
}
