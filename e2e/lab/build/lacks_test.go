package build_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthlb/berth/e2e/lab/build"
)

// TestLacksForRunc shows the sentence of machines that lack one thing each: what it is, what that switches off, and how to
// get it.
func TestLacksForRunc(t *testing.T) {
	for name, test := range map[string]struct {
		reason   string
		programs map[string]string // scripts
		want     string            // beginning of the sentence
	}{
		"NoCompiler":  {"runc is partly C", map[string]string{"pkg-config": "exit 0"}, "gcc is missing"},
		"NoPkgConfig": {"it finds the headers", map[string]string{"gcc": "exit 0"}, "pkg-config is missing"},
		"NoSeccomp":   {"runc filters system calls", map[string]string{"gcc": "exit 0", "pkg-config": "exit 1"}, "libseccomp-dev is missing"},
		"NoHeaders":   {"a compiler alone has no headers", map[string]string{"gcc": "exit 1", "pkg-config": "exit 0"}, "libc6-dev is missing"},
		"All":         {"nothing is missing", map[string]string{"gcc": "exit 0", "pkg-config": "exit 0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			shell, err := exec.LookPath("sh")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for program, text := range test.programs {
				if err := os.WriteFile(filepath.Join(dir, program), []byte("#!"+shell+"\n"+text+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			got := build.LacksForRunc()
			if !strings.HasPrefix(got, test.want) || (test.want == "") != (got == "") {
				t.Errorf("%s: said %q, want %q", test.reason, got, test.want)
			}
			if got != "" && !strings.Contains(got, "switched off; as root: apt-get install") {
				t.Errorf("%s: %q does not say what to do", test.reason, got)
			}
		})
	}
}
