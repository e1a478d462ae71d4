package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// self is a program for this machine: the test itself.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestImageRunsTheProgram reads the tarball back as a container engine does.
func TestImageRunsTheProgram(t *testing.T) {
	t.Parallel()
	o := order{
		program: self(t), arch: runtime.GOARCH, tags: []string{"registry.test/berth/self:v1", "registry.test/berth/self:v2"}, user: "65532",
		output: filepath.Join(t.TempDir(), "image.tar"),
	}
	if err := write(o, io.Discard); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(o.tags[1])
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(o.output, &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := "/" + filepath.Base(o.program)
	if config.OS != "linux" || config.Architecture != runtime.GOARCH || config.Config.User != "65532" ||
		len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != want {
		t.Errorf("the image is %s/%s, user %s, entrypoint %v", config.OS, config.Architecture, config.Config.User, config.Config.Entrypoint)
	}
}

// TestAnotherArchitectureIsRefused names both.
func TestAnotherArchitectureIsRefused(t *testing.T) {
	t.Parallel()
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	err := write(order{program: self(t), arch: other, tags: []string{"registry.test/berth/self:v1"}, output: filepath.Join(t.TempDir(), "image.tar")}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "program for "+runtime.GOARCH) || !strings.Contains(err.Error(), "to be for "+other) {
		t.Errorf("an image for %s of a program for %s: %v", other, runtime.GOARCH, err)
	}
}

// TestUnfitProgramsAreRefused shows what an image is not made of, and that the sentence says why.
func TestUnfitProgramsAreRefused(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		reason, program, arch string
		tags                  []string
		want                  string
	}{
		"script":       {"A script needs a shell, which the image has not.", text, runtime.GOARCH, []string{"registry.test/a:b"}, "read "},
		"architecture": {"Only what the nodes may be.", self(t), "riscv64", []string{"registry.test/a:b"}, "must be amd64 or arm64"},
		"no name":      {"An image without a name cannot be run.", self(t), runtime.GOARCH, nil, "no name is given"},
		"bad name":     {"A name that no registry takes.", self(t), runtime.GOARCH, []string{"Not A Name"}, "read -tag"},
		"missing":      {"The program's path is in the sentence.", text + ".missing", runtime.GOARCH, []string{"registry.test/a:b"}, "text.missing"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := order{program: tc.program, arch: tc.arch, tags: tc.tags, output: filepath.Join(t.TempDir(), "image.tar")}
			if err := write(o, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nsaid %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestSameProgramSameImage shows that nothing in the image depends on when or where it was made.
func TestSameProgramSameImage(t *testing.T) {
	t.Parallel()
	var digests []string
	for range 2 {
		image, err := build(order{program: self(t), arch: runtime.GOARCH, user: "0"})
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("two images of one program: %v", digests)
	}
}
