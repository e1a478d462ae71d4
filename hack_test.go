package berth_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctor shows what the doctor says of machines that this one is not.
func TestDoctor(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		// programs are scripts that stand for a program of the machine.
		programs map[string]string
		args     []string
		want     string
		fails    bool
	}{
		"no Go": {
			reason: "Without Go nothing can be done, and the sentence says where it is to be had.",
			args:   []string{"build"}, want: "https://go.dev/dl/", fails: true,
		},
		"very old Go": {
			reason:   "Before 1.21 the go command could not fetch another.",
			programs: map[string]string{"go": "echo go version go1.19.8 linux/amd64"},
			args:     []string{"build"}, want: "1.19.8 is too old", fails: true,
		},
		"old Go": {
			reason:   "The go command can fetch the one that is needed.",
			programs: map[string]string{"go": "echo go version go1.24.4 linux/amd64"},
			args:     []string{"build"}, want: "1.24.4 found, 1.26",
		},
		"toolchain of old Go": {
			reason:   "Debian's Go says GOTOOLCHAIN=local and would refuse.",
			programs: map[string]string{"go": "echo go version go1.24.4 linux/amd64"},
			args:     []string{"--toolchain"}, want: "+auto",
		},
		"toolchain of new Go": {
			reason:   "A Go that is new enough is used as it is.",
			programs: map[string]string{"go": "echo go version go1.99.0 linux/amd64"},
			args:     []string{"--toolchain"}, want: "",
		},
		"no space": {
			reason: "The figure, and the variable that names another folder.",
			programs: map[string]string{
				"go": "echo go version go1.99.0 linux/amd64",
				"df": "echo Filesystem; echo /dev/x 9999999 1 3145728 1% /",
			},
			args: []string{"demo"}, want: "3 GiB free", fails: true,
		},
		"no git": {
			reason:   "It costs the version, no more.",
			programs: map[string]string{"go": "echo go version go1.99.0 linux/amd64"},
			args:     []string{"--quiet", "build"}, want: "binaries say version dev",
		},
		"no gcc, nothing to be installed": {
			reason: "What stays missing switches off its own part, in a sentence.",
			programs: map[string]string{
				"go": "echo go version go1.99.0 linux/amd64",
				"df": "echo Filesystem; echo /dev/x 99999999 1 99999999 1% /",
			},
			args: []string{"--quiet", "test-more"}, want: "missing, so this is switched off: the race detector",
		},
		"no pkg-config": {
			reason: "Without what builds runc there are no nodes with a kubelet, and the sentence names the packages to install.",
			programs: map[string]string{
				"go": "echo go version go1.99.0 linux/amd64",
				"df": "echo Filesystem; echo /dev/x 99999999 1 99999999 1% /",
			},
			args: []string{"--quiet", "test-more"}, want: "pkg-config  missing, so this is switched off: scenes on nodes with a kubelet (building runc). BERTH_NO_INSTALL is set; apt-get install",
		},
		"no namespaces": {
			reason: "Without them the reason of the kernel is passed on.",
			programs: map[string]string{
				"go":      "echo go version go1.99.0 linux/amd64",
				"df":      "echo Filesystem; echo /dev/x 99999999 1 99999999 1% /",
				"unshare": "echo unshare: unshare failed: Operation not permitted >&2; exit 1",
			},
			args: []string{"--quiet", "demo"}, want: "Operation not permitted",
		},
		"unknown goal": {
			reason: "A goal that does not exist is an error, not a silent success.",
			args:   []string{"lunch"}, want: "no goal named lunch", fails: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := machine(t, tc.programs)
			out, code := script(t, []string{"PATH=" + path, "BERTH_CACHE=" + t.TempDir(), "BERTH_NO_INSTALL=1"}, "hack/doctor", tc.args...)
			if !strings.Contains(out, tc.want) || (tc.want == "" && out != "") {
				t.Errorf("%s\nsaid %q, want %q in it", tc.reason, out, tc.want)
			}
			if (code != 0) != tc.fails {
				t.Errorf("%s\nexit code %d\n%s", tc.reason, code, out)
			}
		})
	}
}

// machine makes a folder for PATH with what every Debian has, none of what the doctor looks for, and the given scripts.
func machine(t *testing.T, programs map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name := range strings.FieldsSeq("awk cat chmod cut df dirname find grep head id mkdir mv rm sed sh tr") {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("needs %s, which every Debian has: %v", name, err)
		}
		if err := os.Symlink(path, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range programs {
		path := filepath.Join(folder, name)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestSteps shows how steps are counted, and which fail.
func TestSteps(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		env    []string
		args   []string
		want   []string
		fails  bool
	}{
		"passed": {
			reason: "A step without tests counts as one.",
			args:   []string{"one|9|true", "two|9|true"},
			want:   []string{"2 passed, 0 failed"},
		},
		"failed": {
			reason: "The first failure ends the run.",
			args:   []string{"one|9|exit 3", "two|9|true"},
			want:   []string{"FAILED: exit 3", "\n0 passed, 1 failed"},
			fails:  true,
		},
		"going on": {
			reason: "KEEP_GOING runs the rest, and the run has failed.",
			env:    []string{"KEEP_GOING=1"},
			args:   []string{"one|9|false", "two|9|true"},
			want:   []string{"1 passed, 1 failed"},
			fails:  true,
		},
		"over its limit": {
			reason: "A step that takes too long fails by name, though its command succeeds.",
			args:   []string{"slow|-1|true"},
			want:   []string{"slow", "FAILED: over its limit", "0 passed, 1 failed"},
			fails:  true,
		},
		"tests": {
			reason: "Tests count instead of the step that ran them.",
			args:   []string{`tests|9|printf "tests\t7\t0\t2\n" >>$BERTH_STEPS`},
			want:   []string{"2 tests skipped", "\n7 passed, 0 failed"},
		},
		"failed tests": {
			reason: "A step that failed by its tests is no failure more.",
			args:   []string{`tests|9|printf "tests\t7\t1\t0\n" >>$BERTH_STEPS; false`},
			want:   []string{"7 passed, 1 failed"},
			fails:  true,
		},
		"nested": {
			reason: "The parts of a group count, the group does not, and there is one table.",
			args:   []string{"group|9|hack/steps 'a|9|true' 'b|9|true'"},
			want:   []string{"group in all", "\n2 passed, 0 failed"},
		},
		"failed in a group": {
			reason: "A failure in a group fails the run, once.",
			args:   []string{"group|9|hack/steps 'a|9|true' 'b|9|false'"},
			want:   []string{"\n1 passed, 1 failed"},
			fails:  true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := append([]string{"PATH=" + os.Getenv("PATH"), "BERTH_CACHE=" + t.TempDir()}, tc.env...)
			out, code := script(t, env, "hack/steps", tc.args...)
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s\nsaid:\n%s\nwant %q in it", tc.reason, out, want)
				}
			}
			if (code != 0) != tc.fails {
				t.Errorf("%s\nexit code %d\n%s", tc.reason, code, out)
			}
		})
	}
}

// script runs a script of the repository with nothing but env around it.
func script(t *testing.T, env []string, name string, args ...string) (out string, code int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/bin/sh", append([]string{name}, args...)...)
	command.Env = env
	text, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s: %v", name, err)
	}
	return string(text), command.ProcessState.ExitCode()
}
