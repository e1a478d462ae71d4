package main

import (
	"strings"
	"testing"
)

// The events are what go test -json printed for packages made for it, with times and packages shortened.
func TestSummary(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason  string
		verbose bool
		code    int
		events  []string
		want    string
	}{
		"passed": {
			reason: "What passes says nothing but its package's line.",
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}`,
				`{"Action":"output","Package":"p","Output":"PASS\n"}`,
				`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: "ok  \tp\t0.1s\n1 passed, 0 failed, 0 skipped\n",
		},
		"verbose": {
			reason:  "With -v each test has a line when it is done.",
			verbose: true,
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.26}`,
			},
			want: "ok TestA 1.3 s\n1 passed, 0 failed, 0 skipped\n",
		},
		"subtest failed": {
			reason: "A failed subtest is one failure: its parent and its package failed only through it.",
			code:   1,
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"run","Package":"p","Test":"TestA/x"}`,
				`{"Action":"run","Package":"p","Test":"TestA/y"}`,
				`{"Action":"output","Package":"p","Test":"TestA/x","Output":"=== RUN   TestA/x\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA/x","Output":"got 1, want 2\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA/x"}`,
				`{"Action":"pass","Package":"p","Test":"TestA/y"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: "got 1, want 2\n1 passed, 1 failed, 0 skipped\n",
		},
		"parent failed": {
			reason: "A test that fails after its subtests passed is a failure of its own.",
			code:   1,
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"run","Package":"p","Test":"TestA/x"}`,
				`{"Action":"pass","Package":"p","Test":"TestA/x"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: "1 passed, 1 failed, 0 skipped\n",
		},
		"not built": {
			reason: "A package that does not build is one failure and shows the compiler's words.",
			code:   1,
			events: []string{
				`{"ImportPath":"p","Action":"build-output","Output":"p.go:3: undefined: x\n"}`,
				`{"ImportPath":"p","Action":"build-fail"}`,
				`{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			},
			want: "p.go:3: undefined: x\n0 passed, 1 failed, 0 skipped\n",
		},
		"skipped": {
			reason: "A skipped test says why.",
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: needs root: to open a packet socket\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestA"}`,
			},
			want: "SKIP TestA: needs root: to open a packet socket\n0 passed, 0 failed, 1 skipped\n",
		},
		"died": {
			reason: "A process that dies leaves tests without an end: their output is shown and the run has failed.",
			code:   2,
			events: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: boom\n"}`,
			},
			want: "p TestA did not end:\npanic: boom\n0 passed, 1 failed, 0 skipped\n",
		},
		"not an event": {
			reason: "What is not an event is passed on.",
			events: []string{"go: downloading example.org v1.0.0"},
			want:   "go: downloading example.org v1.0.0\n0 passed, 0 failed, 0 skipped\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := newSummary(&out, tc.verbose)
			if err := s.read(strings.NewReader(strings.Join(tc.events, "\n") + "\n")); err != nil {
				t.Fatalf("%s\nread: %v", tc.reason, err)
			}
			s.finish(tc.code)
			if got := out.String(); got != tc.want {
				t.Errorf("%s\ngot:\n%s\nwant:\n%s", tc.reason, got, tc.want)
			}
		})
	}
}
