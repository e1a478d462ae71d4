package berth_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestArchitectureRulesFire shows that each rule finds what it forbids, and leaves alone what it allows: a test of the
// tree passes just as well when its rules are blind.
func TestArchitectureRulesFire(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		path   string
		text   string
		want   string
	}{
		"unknown folder": {"A new package has no rule yet.", "internal/cloud/x.go", "package cloud", "no layer"},
		"unknown shell": {
			"A new shell is named, or it could be a second one for the same thing.", "speaker/internal/ospf/x.go",
			"package ospf",
			"no layer",
		},
		"vague folder":       {"util is no idea.", "cmd/util/x.go", "package util", "says nothing"},
		"core imports shell": {"Arrows lead into the core.", "internal/ipam/x.go", importing("ipam", ours+"internal/kube"), "no arrow"},
		"core imports core": {
			"Not every part of the core knows every other.", "internal/election/x.go",
			importing("election", ours+"internal/cluster"),
			"no arrow",
		},
		"shell imports shell": {
			"Only main sees shells together.", "speaker/internal/l2/x.go",
			importing("l2", ours+"speaker/internal/wire"),
			"no arrow",
		},
		"speaker's parts": {
			"The controller has no part of the speaker.", "controller/x.go",
			importing("main", ours+"speaker/internal/wire"),
			"no arrow",
		},
		"lab imports core": {"The lab sees what users see.", "e2e/lab/x.go", importing("lab", ours+"internal/ipam"), "no arrow"},
		"tests in product": {"Builders for tests stay in tests.", "internal/view/x.go", importing("view", ours+"internal/lbtest"), "for tests"},
		"types in core": {
			"Kubernetes' types end at the border.", "internal/cluster/x.go",
			importing("cluster", "k8s.io/api/core/v1"),
			"may import of other modules only",
		},
		"client at border": {
			"The border knows types, no client.", "internal/compile/x.go",
			importing("compile", "k8s.io/client-go/kubernetes"),
			"may import of other modules only",
		},

		"memberlist": {
			"Memberlist is gossip's.", "speaker/internal/agent/x.go",
			importing("agent", "github.com/hashicorp/memberlist"),
			"which only [speaker/internal/gossip",
		},
		"netlink": {
			"Netlink is wire's.", "speaker/internal/l2/x.go",
			importing("l2", "github.com/vishvananda/netlink"),
			"which only [speaker/internal/wire",
		},
		"mdlayher": {
			"Frames are wire's.", "speaker/internal/l2/x.go",
			importing("l2", "github.com/mdlayher/arp"),
			"which only [speaker/internal/wire",
		},
		"gobgp": {
			"GoBGP is bgp's.", "speaker/x.go",
			importing("main", "github.com/osrg/gobgp/v3/pkg/server"),
			"which only [speaker/internal/bgp",
		},
		"kubernetes": {
			"Only the lab's cluster program is Kubernetes.", "e2e/lab/x.go",
			importing("lab", "k8s.io/kubernetes/pkg/api"),
			"which only [e2e/cluster",
		},
		"webhook": {
			"There is no webhook (rule O1).", "controller/x.go",
			importing("main", "sigs.k8s.io/controller-runtime/pkg/webhook"),
			"which only []",
		},

		"network in core": {"Law 1.", "internal/ipam/x.go", importing("ipam", "net"), "the network"},
		"http in core":    {"Law 1.", "internal/ipam/x.go", importing("ipam", "net/http"), "the network"},
		"files in core":   {"Law 1.", "internal/ipam/x.go", importing("ipam", "os"), "files"},
		"logger in core":  {"Law 1.", "internal/ipam/x.go", importing("ipam", "log/slog"), "a logger"},
		"context in core": {"Law 1.", "internal/announce/x.go", importing("announce", "context"), "cancellation"},
		"locks in core":   {"Law 1.", "internal/announce/x.go", importing("announce", "sync/atomic"), "goroutines"},
		"dice in core":    {"Law 1.", "internal/election/x.go", importing("election", "math/rand/v2"), "randomness"},
		"clock in core": {
			"Law 1.", "internal/announce/x.go",
			"package announce\nimport \"time\"\nfunc f() time.Time { return time.Now() }",
			"time.Now",
		},
		"renamed clock": {
			"The name of an import hides nothing.", "internal/announce/x.go",
			"package announce\nimport clock \"time\"\nfunc f() { <-clock.After(1) }",
			"time.After",
		},
		"goroutine in core": {"Law 1.", "internal/announce/x.go", "package announce\nfunc f() { go f() }", "goroutine"},

		"sleep": {
			"A time that is long enough here is too short elsewhere.", "internal/kube/x_test.go",
			"package kube\nimport \"time\"\nfunc f() { time.Sleep(1) }",
			"sleeps in line 3",
		},

		"client in shell": {
			"Only kube writes.", "controller/internal/assign/x.go",
			"package assign\nimport \"sigs.k8s.io/controller-runtime/pkg/client\"\ntype a struct{ c client.Client }",
			"only internal/kube writes",
		},
		"typed client": {
			"Only kube writes.", "speaker/internal/report/x.go",
			"package report\nimport \"k8s.io/client-go/kubernetes\"\ntype a struct{ c kubernetes.Interface }",
			"only internal/kube writes",
		},
		"package variable": {"Law 5.", "internal/kube/x.go", "package kube\nvar cache = map[string]int{}", "package variable cache"},
		"zero variable":    {"A variable without a value is no error.", "internal/kube/x.go", "package kube\nvar lock int", "package variable lock"},
		"compiled regexp": {
			"Law 5 has no exception for what looks constant.", "internal/kube/x.go",
			"package kube\nimport \"regexp\"\nvar digits = regexp.MustCompile(`x`)",
			"package variable digits",
		},
		"init":      {"Law 5.", "internal/kube/x.go", "package kube\nfunc init() {}", "init function"},
		"long file": {"A file is one idea.", "internal/kube/x.go", "package kube\n" + strings.Repeat("// line\n", 600), "601 lines"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := found(t, tc.path, tc.text)
			if !strings.Contains(got, tc.want) {
				t.Errorf("%s\n%s\nviolations: %q, want one that says %q", tc.reason, tc.text, got, tc.want)
			}
		})
	}
}

// TestArchitectureRulesAllow shows what the rules leave alone.
func TestArchitectureRulesAllow(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		path   string
		text   string
	}{
		"addresses":  {"netip is no network.", "internal/ipam/x.go", importing("ipam", "net/netip")},
		"arrow":      {"ipam speaks of the cluster.", "internal/ipam/x.go", importing("ipam", ours+"internal/cluster")},
		"subpackage": {"A package may have parts.", "speaker/internal/wire/x.go", importing("wire", ours+"speaker/internal/wire/filter")},
		"main":       {"main sees all shells.", "speaker/main.go", importing("main", ours+"speaker/internal/wire")},
		"durations": {
			"Time as a value is welcome.", "internal/announce/x.go",
			"package announce\nimport \"time\"\nfunc f(now time.Time) time.Time { return now.Add(time.Second) }",
		},
		"test of the core": {
			"A test may look where it likes.", "internal/ipam/x_test.go",
			"package ipam_test\nimport _ \"os\"\nimport _ \"github.com/berthlb/berth/internal/lbtest\"\nvar fixture = 1",
		},
		"frames in tests": {
			"What is made for tests speaks on wires of its own.", "speaker/internal/wire/wiretest/x.go",
			importing("wiretest", "github.com/vishvananda/netlink"),
		},
		"reader": {
			"Reading is everybody's.", "controller/internal/assign/x.go",
			"package assign\nimport \"sigs.k8s.io/controller-runtime/pkg/client\"\ntype a struct{ c client.Reader }",
		},
		"made-up clock": {
			"Under synctest sleeping is how time passes.", "internal/kube/x_test.go",
			"package kube\nimport (\n\"testing/synctest\"\n\"time\"\n)\nfunc f() { time.Sleep(1) }\nvar _ = synctest.Wait",
		},
		"error": {"Errors are variables.", "internal/kube/x.go", "package kube\nimport \"errors\"\nvar errGone = errors.New(`gone`)"},
		"embedded file": {
			"Embedded files are variables.", "internal/dashboard/x.go",
			"package dashboard\nimport _ \"embed\"\n//go:embed page.html\nvar page string",
		},
		"claim":   {"A claim for the compiler is none.", "internal/kube/x.go", "package kube\nvar _ error = (*gone)(nil)"},
		"version": {"The linker writes main.version.", "speaker/main.go", "package main\nvar version = `dev`"},
		"scheme":  {"The API may register itself.", "api/v1beta1/x.go", "package v1beta1\nfunc init() {}"},
		"generated": {
			"A generator writes one long file.", "api/v1beta1/x.go",
			"// Code generated by hand. DO NOT EDIT.\n\npackage v1beta1\n" + strings.Repeat("// line\n", 600),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := found(t, tc.path, tc.text); got != "" {
				t.Errorf("%s\n%s\nviolations: %q, want none", tc.reason, tc.text, got)
			}
		})
	}
}

// importing is the text of a file that does nothing but import a package.
func importing(name, imported string) string {
	return fmt.Sprintf("package %s\n\nimport _ %q\n", name, imported)
}

func found(t *testing.T, path, text string) string {
	t.Helper()
	s, err := parse(path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(violations(s), "\n")
}
