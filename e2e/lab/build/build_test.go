package build_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/berthlb/berth/e2e/lab/build"
)

func TestKey(t *testing.T) {
	t.Parallel()
	module := func(pairs ...string) fstest.MapFS {
		files := fstest.MapFS{}
		for i := 0; i < len(pairs); i += 2 {
			files[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return files
	}
	const platform = "linux amd64 go1.26.8"
	same := module("go.mod", "module m", "main.go", "package main")
	want, err := build.Key(same, platform)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		reason   string
		files    fstest.MapFS
		platform string
		equal    bool
	}{
		"Same":          {"the same files are the same build", module("main.go", "package main", "go.mod", "module m"), platform, true},
		"OtherContent":  {"a changed file is another build", module("go.mod", "module m2", "main.go", "package main"), platform, false},
		"OtherName":     {"a renamed file is another build", module("go.mod", "module m", "main2.go", "package main"), platform, false},
		"OtherPlatform": {"another Go is another build", same, "linux amd64 go1.27.0", false},
		"MovedBoundary": {"bytes moved from a name to a content are another build", module("go.mo", "dmodule m", "main.go", "package main"), platform, false},
		"OneTestMore":   {"a test is in no program", module("go.mod", "module m", "main.go", "package main", "x_test.go", ""), platform, true},
		"OneFileMore":   {"one file more is another build", module("go.mod", "module m", "main.go", "package main", "x.go", ""), platform, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := build.Key(test.files, test.platform)
			if err != nil {
				t.Fatal(err)
			}
			if (got == want) != test.equal {
				t.Errorf("%s: key %s, the first was %s", test.reason, got, want)
			}
		})
	}
}

func TestCacheDirFollowsTheVariable(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BERTH_CACHE", dir)
	if got, err := build.CacheDir(); err != nil || got != dir {
		t.Errorf("CacheDir() = %q, %v; want %q", got, err, dir)
	}
}

func TestRootIsFoundFromBelow(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"e2e/cluster", "e2e/lab/build"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "e2e/cluster/go.mod"), []byte("module m\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(root, "e2e/lab/build"))
	got, err := build.Root()
	if err != nil {
		t.Fatal(err)
	}
	if got, _ = filepath.EvalSymlinks(got); got != root {
		t.Errorf("Root() = %q, want %q", got, root)
	}
}
