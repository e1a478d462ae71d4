package berth_test

import (
	"slices"
	"strings"
)

const ours = "github.com/berthlb/berth/"

// layer is what the packages of one pattern may import.
type layer struct {
	// pattern is a folder, or a folder and /... for it and all beneath. The first layer that matches a folder is its own.
	pattern string
	// arrows are the patterns of our packages it may import. What matches its own pattern it always may.
	arrows []string
	// pure forbids what law 1 forbids.
	pure bool
	// foreign, if not nil, are the only modules of others it may import.
	foreign []string
}

// layers are the arrows. A folder that no pattern matches fails the test: whoever adds a package says where it belongs.
func layers() []layer {
	set := "go4.org/netipx"
	core := []string{
		"internal/announce", "internal/bfd", "internal/cluster", "internal/election", "internal/ipam", "internal/liveness",
		"internal/reason", "internal/rib",
	}
	border := []string{"api/...", "internal/compile"}
	shell := slices.Concat(core, border, []string{"internal/kube", "internal/view"})

	all := []layer{
		{pattern: "."},
		{pattern: "api/...", foreign: []string{"k8s.io/apimachinery"}},

		{pattern: "internal/reason", pure: true, foreign: []string{}},
		{pattern: "internal/election", pure: true, foreign: []string{"github.com/cespare/xxhash/v2"}},
		{pattern: "internal/liveness", pure: true, foreign: []string{}},
		{pattern: "internal/rib", pure: true, foreign: []string{set}},
		{pattern: "internal/bfd", pure: true, foreign: []string{}},
		{pattern: "internal/cluster", pure: true, foreign: []string{set}, arrows: []string{"internal/reason"}},
		{
			pattern: "internal/ipam", pure: true, foreign: []string{set, "github.com/google/btree"},
			arrows: []string{"internal/cluster", "internal/reason"},
		},
		{
			pattern: "internal/announce", pure: true, foreign: []string{set},
			arrows: []string{"internal/cluster", "internal/election", "internal/rib", "internal/reason"},
		},

		// The border knows Kubernetes' types and no client.
		{
			pattern: "internal/compile", foreign: []string{set, "k8s.io/api", "k8s.io/apimachinery"},
			arrows: []string{"api/...", "internal/cluster", "internal/reason"},
		},

		{pattern: "internal/kube", arrows: slices.Concat(core, border)},
		{pattern: "internal/view", arrows: core},
		{pattern: "internal/dashboard", arrows: slices.Concat(core, []string{"internal/view"})},
		{pattern: "internal/lbtest", arrows: shell},

		{pattern: "controller", arrows: slices.Concat(shell, []string{"controller/internal/..."})},
		{pattern: "speaker", arrows: slices.Concat(shell, []string{"speaker/internal/..."})},
		{pattern: "cmd/...", arrows: slices.Concat(shell, []string{"internal/dashboard"})},

		// The lab sees what a user sees: the API, and the tables that people are shown.
		{pattern: "e2e/cluster"},
		{pattern: "e2e/...", arrows: []string{"api/...", "internal/view"}},
		{pattern: "hack/image"},
		{pattern: "hack/tools/..."},
	}
	// A shell knows no other shell: what it needs of one is a small interface of its own, filled by main.
	for _, name := range shells() {
		all = append(all, layer{pattern: name + "/...", arrows: shell})
	}
	return all
}

func shells() []string {
	return []string{
		"controller/internal/announced", "controller/internal/assign", "controller/internal/poolstatus",
		"speaker/internal/agent", "speaker/internal/bfdnet", "speaker/internal/bgp", "speaker/internal/bgpconn",
		"speaker/internal/gossip", "speaker/internal/l2", "speaker/internal/proxy", "speaker/internal/report",
		"speaker/internal/succession", "speaker/internal/watch", "speaker/internal/wire",
	}
}

// engines names, for each engine, the only packages that may import it (law 4). The lab is a module of its own and makes
// its links and frames by itself.
func engines() map[string][]string {
	wire := []string{"speaker/internal/wire/...", "e2e/..."}
	return map[string][]string{
		"github.com/osrg/gobgp":                      {"speaker/internal/bgp"},
		"github.com/hashicorp/memberlist":            {"speaker/internal/gossip"},
		"github.com/mdlayher":                        wire,
		"github.com/vishvananda/netlink":             wire,
		"k8s.io/client-go/kubernetes/typed":          {"internal/kube"},
		"k8s.io/client-go/tools/events":              {"internal/kube"},
		"k8s.io/client-go/tools/record":              {"internal/kube"},
		"k8s.io/kubernetes":                          {"e2e/cluster"},
		"sigs.k8s.io/controller-runtime/pkg/webhook": {}, // rule O1: no webhook
		"github.com/google/wire":                     {}, // wiring is plain code in main
		"go.uber.org/fx":                             {},
	}
}

// impure are the packages of the standard library that law 1 forbids, each with what it would bring into the core. A
// path that ends in a slash stands for everything beneath.
func impure() map[string]string {
	return map[string]string{
		"context":      "cancellation is the shell's",
		"crypto/rand":  "randomness",
		"hash/maphash": "a hash that differs between processes",
		"io/fs":        "files",
		"log":          "a logger",
		"log/":         "a logger",
		"math/rand":    "randomness",
		"math/rand/":   "randomness",
		"net":          "the network (net/netip is allowed)",
		"net/":         "the network (net/netip is allowed)",
		"os":           "files and processes",
		"os/":          "files and processes",
		"runtime":      "the machine",
		"sync":         "goroutines",
		"sync/":        "goroutines",
		"syscall":      "the machine",
	}
}

// clocks are the functions of package time that ask the clock; values and durations are welcome in the core.
func clocks() []string {
	return []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}
}

// writers names, for each package of clients, what can write to the API server: only kube uses it, and main hands it on.
func writers() map[string][]string {
	return map[string][]string{
		"sigs.k8s.io/controller-runtime/pkg/client": {
			"Client", "New", "NewWithWatch", "StatusClient", "StatusWriter", "SubResourceClient", "SubResourceWriter", "WithWatch", "Writer",
		},
		"k8s.io/client-go/kubernetes": {"Clientset", "Interface", "New", "NewForConfig", "NewForConfigAndClient", "NewForConfigOrDie"},
		"k8s.io/client-go/dynamic":    {"Interface", "NewForConfig", "NewForConfigAndClient", "NewForConfigOrDie"},
		"k8s.io/client-go/rest":       {"RESTClientFor", "RESTClientForConfigAndClient", "UnversionedRESTClientFor"},
	}
}

// mayWrite tells the packages that writers does not bind: kube itself, the mains, which make the client, and the
// programs that act with their user's own rights.
func mayWrite(dir string) bool {
	return dir == "internal/kube" || dir == "controller" || dir == "speaker" || strings.HasPrefix(dir, "cmd/") || strings.HasPrefix(dir, "e2e")
}

// vague are names of folders that say nothing of what is in them.
func vague() []string {
	return []string{"common", "helper", "helpers", "misc", "pkg", "shared", "util", "utils"}
}

// matches tells whether a folder is the one of the pattern, or beneath it if the pattern ends in /...
func matches(pattern, dir string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == root || strings.HasPrefix(dir, root+"/")
	}
	return dir == pattern
}

func matchesAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, dir) })
}

// layerOf answers the layer of a folder: the first whose pattern matches it.
func layerOf(dir string) (layer, bool) {
	for _, l := range layers() {
		if matches(l.pattern, dir) {
			return l, true
		}
	}
	return layer{}, false
}
