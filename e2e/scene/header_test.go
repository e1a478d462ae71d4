package scene_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/scene"
)

func TestParseHeader(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, line string
		want         scene.Header
		fails        bool
	}{
		"Quiet": {
			reason: "a quiet scene has Berth", line: "# quiet: a Service gets an address",
			want: scene.Header{Sort: scene.Quiet, About: "a Service gets an address", Nodes: 3, Proxy: lab.NFTables, Berth: true},
		},
		"Options": {
			reason: "a loud scene describes its lab", line: "# loud [nodes=5 proxy=iptables berth]: x",
			want: scene.Header{Sort: scene.Loud, About: "x", Nodes: 5, Proxy: lab.IPTables, Berth: true},
		},
		"Kubelet": {
			reason: "nodes may have a kubelet", line: "# loud [berth kubelet]: x",
			want: scene.Header{Sort: scene.Loud, About: "x", Nodes: 3, Proxy: lab.NFTables, Berth: true, Kubelet: true},
		},
		"KubeletPlain": {
			reason: "and may do without what some machines refuse", line: "# loud [kubelet=plain]: x",
			want: scene.Header{Sort: scene.Loud, About: "x", Nodes: 3, Proxy: lab.NFTables, Kubelet: true, Plain: true},
		},
		"KubeletFancy": {reason: "a misspelt value is not passed over", line: "# loud [kubelet=fancy]: x", fails: true},
		"QuietOptions": {reason: "a shared lab cannot be described", line: "# quiet [nodes=5]: x", fails: true},
		"NoSort":       {reason: "the sort is required", line: "# a Service gets an address", fails: true},
		"OtherSort":    {reason: "there are three sorts", line: "# noisy: x", fails: true},
		"OtherOption":  {reason: "a misspelt option is not passed over", line: "# loud [node=3]: x", fails: true},
		"OtherProxy":   {reason: "kube-proxy has no such mode", line: "# loud [proxy=ebpf]: x", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := scene.ParseHeader(test.line)
			if (err != nil) != test.fails {
				t.Fatalf("%s: %v", test.reason, err)
			}
			if diff := cmp.Diff(test.want, got); err == nil && diff != "" {
				t.Errorf("%s:\n%s", test.reason, diff)
			}
		})
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"link", "link-lost", "node-lost", "local"} {
		if err := os.WriteFile(filepath.Join(dir, name+".txtar"), []byte("# quiet: "+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		reason, pattern string
		want            []string
		fails           bool
	}{
		"All":     {reason: "no pattern is all", want: []string{"link", "link-lost", "local", "node-lost"}},
		"Exact":   {reason: "a whole name is that one alone", pattern: "link", want: []string{"link"}},
		"Part":    {reason: "a part of names is all of them", pattern: "lost", want: []string{"link-lost", "node-lost"}},
		"List":    {reason: "each is run once, however often it is meant", pattern: "lost,node-lost,local", want: []string{"link-lost", "local", "node-lost"}},
		"Unknown": {reason: "a misspelt name among others is not passed over", pattern: "local,lokal", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := scene.Read(dir, test.pattern)
			if (err != nil) != test.fails {
				t.Fatalf("%s: %v", test.reason, err)
			}
			var got []string
			for _, file := range files {
				got = append(got, file.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s:\n%s", test.reason, diff)
			}
		})
	}
}
