// Package e2e runs the scenes of testdata in the lab. `SCENE=name` picks one, `COUNT=n` repeats it.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/sandbox"
	"github.com/berthlb/berth/e2e/scene"
)

const (
	kubeletVar = "BERTH_LAB_NO_KUBELET" // carries into the sandbox why there are no nodes with a kubelet
	refusedVar = "BERTH_LAB_REFUSED"    // carries into the sandbox how the rung was chosen, as one sentence
	// quietAtOnce is how many scenes share the quiet lab at a time.
	quietAtOnce = 3
)

// TestMain runs the tests inside a sandbox. Outside it chooses the rung and builds, since the sandbox has no network.
func TestMain(m *testing.M) {
	lab.Dispatch()
	flag.Parse()
	var code int
	var err error
	if _, inside := sandbox.Inside(); inside {
		code, err = runInside(m)
	} else {
		code, err = runOutside()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runOutside() (int, error) {
	if err := sandbox.FollowParent(); err != nil {
		return 0, err
	}
	files, err := scene.Read("testdata", os.Getenv("SCENE"))
	if err != nil {
		return 0, err
	}
	top, noKubelet := wantedRung(files)
	choice, err := sandbox.Choose(top)
	if err != nil {
		return 0, err
	}
	fmt.Println("lab:", choice)
	if choice.Rung == sandbox.RungD {
		fmt.Printf("ran 0, skipped %d (%s)\n", len(files), choice)
		return 0, nil
	}
	if noKubelet == "" && choice.Rung != sandbox.RungA {
		noKubelet = "nodes with a kubelet need rung A: " + choice.String()
	}
	ctx := context.Background()
	programs, err := lab.Build(ctx, os.Stdout, needed(files)...)
	if err == nil && noKubelet == "" {
		programs, err = lab.BuildContainers(ctx, os.Stdout, programs)
	}
	if err != nil {
		return 0, err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return 0, err
	}
	return sandbox.Run(sandbox.Config{
		Rung: choice.Rung, Cache: cache,
		Env: append(programs.Environment(), refusedVar+"="+choice.String(), kubeletVar+"="+noKubelet, "BERTH_CACHE="+cache),
	})
}

// wantedRung answers the best rung that the scenes make use of and, if that is not the one of nodes with a kubelet, why
// not. Those take minutes more to build and to run, so that they are run only where SCENE asks for some.
func wantedRung(files []scene.File) (top sandbox.Rung, noKubelet string) {
	wanted := slices.ContainsFunc(files, func(file scene.File) bool { return file.Header.Kubelet })
	switch {
	case !wanted:
		return sandbox.RungB, "no scene wants nodes with a kubelet"
	case os.Getenv("SCENE") == "":
		return sandbox.RungB, "nodes with a kubelet: make test-more has them"
	}
	if sentence := lab.LacksForContainers(context.Background()); sentence != "" {
		return sandbox.RungB, sentence
	}
	return sandbox.RungA, ""
}

// needed answers Berth's programs if one of the scenes uses them.
func needed(files []scene.File) []string {
	for _, file := range files {
		if file.UsesBerth() {
			return []string{"controller", "speaker"}
		}
	}
	return nil
}

// runner is shared by the one test and TestMain, which prints the account after it.
var runner *scene.Runner

func runInside(m *testing.M) (int, error) {
	lab.SilenceLibraries()
	programs, err := lab.ProgramsFromEnvironment()
	if err != nil {
		return 0, err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return 0, err
	}
	if err := flag.Set("test.parallel", strconv.Itoa(quietAtOnce)); err != nil {
		return 0, err
	}
	runner = scene.NewRunner(programs, filepath.Join(cache, "failed"), os.Stdout)
	runner.WithoutKubelet(os.Getenv(kubeletVar))
	code := m.Run()
	account := runner.Account()
	allowed, err := scene.Allowed("skips.txt")
	if err != nil {
		return 0, err
	}
	for _, skip := range account.Unlisted(allowed) {
		fmt.Printf("FAIL: the skip of %s (%s) is not listed in e2e/skips.txt\n", skip.Scene, skip.Sentence)
		code = max(code, 1)
	}
	fmt.Print(account.Slowest())
	fmt.Printf("ran %d, skipped %d (%s)\n", account.Ran, len(account.Skips), os.Getenv(refusedVar))
	return code, nil
}

func TestScenes(t *testing.T) {
	files, err := scene.Read("testdata", os.Getenv("SCENE"))
	if err != nil {
		t.Fatal(err)
	}
	count := 1
	if text := os.Getenv("COUNT"); text != "" {
		if count, err = strconv.Atoi(text); err != nil || count < 1 {
			t.Fatalf("COUNT is %q: it must be a positive number", text)
		}
	}
	runner.Run(t, files, count)
}
