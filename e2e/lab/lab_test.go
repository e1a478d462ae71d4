package lab_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

func TestMain(m *testing.M) {
	lab.Dispatch()
	if _, inside := sandbox.Inside(); inside {
		os.Exit(m.Run())
	}
	code, err := outside()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func outside() (int, error) {
	if err := sandbox.FollowParent(); err != nil {
		return 0, err
	}
	choice, err := sandbox.Choose(sandbox.RungB)
	if err != nil {
		return 0, err
	}
	programs, err := lab.Build(context.Background(), os.Stdout)
	if err != nil {
		return 0, err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return 0, err
	}
	return sandbox.Run(sandbox.Config{Rung: choice.Rung, Cache: cache, Env: programs.Environment()})
}

// TestLabLeavesNothing closes a lab while its sandbox goes on, as between two loud scenes.
func TestLabLeavesNothing(t *testing.T) {
	programs, err := lab.ProgramsFromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	before := children(t)
	l, err := lab.Start(t.Context(), lab.Options{Name: "t", Nodes: 2, Programs: programs})
	if err != nil {
		t.Fatal(err)
	}
	if running := len(children(t)) - len(before); running < 6 { // etcd, three of the control plane, two of kube-proxy
		t.Errorf("%d processes run in a lab of two nodes: the test sees nothing that could be left", running)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, children(t)); diff != "" {
		t.Errorf("processes are left:\n%s", diff)
	}
	for _, pattern := range []string{"/run/netns/t-*", "/run/lab/lab-t*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// children answers the ids of this process's children.
func children(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has just ended
		}
		all = append(all, strings.Fields(string(text))...)
	}
	slices.Sort(all)
	return all
}
