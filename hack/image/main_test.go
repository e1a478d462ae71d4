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
		program: self(t), arch: runtime.GOARCH, tag: "registry.test/berth/self:v1", user: "65532",
		output: filepath.Join(t.TempDir(), "image.tar"),
	}
	if err := write(o, io.Discard); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(o.tag)
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
	err := write(order{program: self(t), arch: other, tag: "registry.test/berth/self:v1", output: filepath.Join(t.TempDir(), "image.tar")}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "EM_") {
		t.Errorf("an image for %s of a program for %s: %v", other, runtime.GOARCH, err)
	}
}
