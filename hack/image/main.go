// Command image puts one static program into a container image and writes it as a tarball that docker load, podman load
// and ctr image import take. There is no base image: the program is all there is.
//
//	image -program bin/speaker -arch amd64 -tag ghcr.io/berthlb/speaker:dev -output speaker-amd64.tar
package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// order is what the command line asks for.
type order struct {
	program, arch, tag, output, user string
}

func main() {
	var o order
	flag.StringVar(&o.program, "program", "", "static Linux program to put in")
	flag.StringVar(&o.arch, "arch", "", "architecture it was built for: amd64 or arm64")
	flag.StringVar(&o.tag, "tag", "", "name of the image")
	flag.StringVar(&o.output, "output", "", "tarball to write")
	flag.StringVar(&o.user, "user", "65532", "user it runs as")
	flag.Parse()
	if err := write(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write makes the image, writes it, and says on out what it made.
func write(o order, out io.Writer) error {
	if err := checkMachine(o.program, o.arch); err != nil {
		return err
	}
	tag, err := name.NewTag(o.tag)
	if err != nil {
		return fmt.Errorf("read -tag: %w", err)
	}
	image, err := build(o)
	if err != nil {
		return err
	}
	if err := tarball.WriteToFile(o.output, tag, image); err != nil {
		return fmt.Errorf("write %s: %w", o.output, err)
	}
	info, err := os.Stat(o.output)
	if err != nil {
		return fmt.Errorf("look at %s: %w", o.output, err)
	}
	_, err = fmt.Fprintf(out, "%s: %s for linux/%s, %.1f MB\n", o.output, o.tag, o.arch, float64(info.Size())/1e6)
	return err //nolint:wrapcheck // the terminal is gone: there is nobody to tell
}

// checkMachine refuses a program of another architecture, naming both: such an image would only fail on a node.
func checkMachine(program, arch string) error {
	machine, known := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if !known {
		return fmt.Errorf("-arch is %q: it must be amd64 or arm64", arch)
	}
	file, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read %s: %w", program, err)
	}
	defer file.Close()
	if file.Machine != machine {
		return fmt.Errorf("%s is a program for %s, the image is to be for %s", program, file.Machine, machine)
	}
	return nil
}

// build is the image: one layer with the program, made at the same time wherever it is built.
func build(o order) (v1.Image, error) {
	content, err := layer(o.program)
	if err != nil {
		return nil, err
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, made)
	if err != nil {
		return nil, fmt.Errorf("add the layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", o.arch
	config.Config.User = o.user
	config.Config.Entrypoint = []string{"/" + filepath.Base(o.program)}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("configure the image: %w", err)
	}
	return image, nil
}

// layer is a tar archive with the program at the root.
func layer(program string) ([]byte, error) {
	text, err := os.ReadFile(program) //nolint:gosec // the program that the command line names
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", program, err)
	}
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: filepath.Base(program), Mode: 0o755, Size: int64(len(text)), ModTime: time.Unix(0, 0).UTC(),
	}
	err = errors.Join(archive.WriteHeader(header), second(archive.Write(text)), archive.Close())
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", program, err)
	}
	return buffer.Bytes(), nil
}

// second is the error of a write.
func second(_ int, err error) error { return err }
