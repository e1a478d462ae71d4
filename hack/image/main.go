// Command image puts one static program into a container image and writes it as a tarball that docker load, podman load
// and ctr image import take. There is no base image: the program is all there is.
//
//	image -program bin/speaker -arch amd64 -tag ghcr.io/berthlb/speaker:dev -output speaker-amd64.tar
package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// order is what the command line asks for.
type order struct {
	program, arch, output, user string
	// tags are the names of the image; more than one may lead to it.
	tags []string
}

func main() {
	var o order
	flag.StringVar(&o.program, "program", "", "static Linux program to put in")
	flag.StringVar(&o.arch, "arch", "", "architecture it was built for: amd64 or arm64")
	flag.Func("tag", "name of the image; given again, a further name of the same image", func(tag string) error {
		o.tags = append(o.tags, tag)
		return nil
	})
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
	if err := checkParts(o.program); err != nil {
		return err
	}
	image, err := build(o)
	if err != nil {
		return err
	}
	named, err := names(o.tags, image)
	if err != nil {
		return err
	}
	if err := tarball.MultiRefWriteToFile(o.output, named); err != nil {
		return fmt.Errorf("write %s: %w", o.output, err)
	}
	binary, err := size(o.program)
	if err != nil {
		return err
	}
	archive, err := size(o.output)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s for linux/%s, %.1f MB (the program alone %.1f MB)\n",
		o.output, strings.Join(o.tags, ", "), o.arch, archive, binary)
	return err //nolint:wrapcheck // the terminal is gone: there is nobody to tell
}

// names are the references under which the tarball offers the image.
func names(tags []string, image v1.Image) (map[name.Reference]v1.Image, error) {
	if len(tags) == 0 {
		return nil, errors.New("read -tag: no name is given")
	}
	named := map[name.Reference]v1.Image{}
	for _, text := range tags {
		tag, err := name.NewTag(text)
		if err != nil {
			return nil, fmt.Errorf("read -tag: %w", err)
		}
		named[tag] = image
	}
	return named, nil
}

// size is that of a file, in megabytes.
func size(path string) (float64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", path, err)
	}
	return float64(info.Size()) / 1e6, nil
}

// checkMachine refuses a program of another architecture, naming both: such an image would only fail on a node.
func checkMachine(program, arch string) error {
	machine, known := machines()[arch]
	if !known {
		return fmt.Errorf("-arch is %q: it must be amd64 or arm64", arch)
	}
	file, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read %s: %w", program, err)
	}
	defer file.Close()
	if file.Machine != machine {
		return fmt.Errorf("%s is a program for %s, and the image is to be for %s: build it with GOARCH=%s",
			program, architecture(file.Machine), arch, arch)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("%s needs a dynamic loader, which the image has not: build it with CGO_ENABLED=0", program)
		}
	}
	return nil
}

// checkParts refuses a program that does not say which modules it is made of: that list, which `go version -m` prints and
// scanners of images read, is the image's bill of materials.
func checkParts(program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read of which modules %s is made: %w", program, err)
	}
	if info.Main.Path == "" {
		return fmt.Errorf("%s does not say of which modules it is made: build it in module mode", program)
	}
	return nil
}

// machines are the architectures that images are made for, by Go's names.
func machines() map[string]elf.Machine {
	return map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
}

// architecture answers Go's name for a machine, or ELF's where that is no architecture of ours.
func architecture(machine elf.Machine) string {
	for arch, known := range machines() {
		if known == machine {
			return arch
		}
	}
	return machine.String()
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
