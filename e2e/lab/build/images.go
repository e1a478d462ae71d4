package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// keepImages is how many sets of images the cache keeps.
const keepImages = 3

// imageNames are where the chart looks for Berth's images by itself.
const imageNames = "ghcr.io/berthlb/berth/"

// container is one image to make: the program in it, its names, and the user it runs as.
type container struct {
	program string
	tags    []string
	user    string
}

// Images answers the folder with the images of the lab's nodes as tarballs: Berth's two, given by the paths of their
// programs, by the names that the chart has for them, and the lab's own. Each of Berth's has a second name, for scenes
// that upgrade.
func Images(ctx context.Context, out io.Writer, berth map[string]string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	version, err := AppVersion()
	if err != nil {
		return "", err
	}
	tool, err := program(ctx, filepath.Join(root, "hack", "image"), cache, source{pkg: ".", flags: "-s -w"}, out)
	if err != nil {
		return "", err
	}
	pod, err := program(ctx, filepath.Join(root, "e2e"), cache, source{pkg: "./cmd/pod", flags: "-s -w"}, out)
	if err != nil {
		return "", err
	}
	wanted := []container{
		{program: pod, tags: []string{"berth.lab/web:v1"}, user: "65532"},
		{program: pod, tags: []string{"berth.lab/pause:v1"}, user: "65532"},
	}
	for name, path := range berth {
		image := imageNames + name + ":" + version
		wanted = append(wanted, container{program: path, tags: []string{image, image + "-next"}, user: userOf(name)})
	}
	return images(ctx, cache, tool, wanted)
}

// userOf is whom one of Berth's programs runs as: a capability is given to root alone, so the speaker is.
func userOf(program string) string {
	if program == "speaker" {
		return "0"
	}
	return "65532"
}

// AppVersion answers the version that the chart installs.
func AppVersion() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "charts", "berth", "Chart.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the chart: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if version, found := strings.CutPrefix(line, "appVersion:"); found {
			return strings.Trim(strings.TrimSpace(version), `"`), nil
		}
	}
	return "", fmt.Errorf("read the chart: %s has no appVersion", path)
}

// images makes a set of images in a folder named after everything in it.
func images(ctx context.Context, cache, tool string, wanted []container) (string, error) {
	hash := sha256.New()
	for _, c := range wanted {
		sum, err := fileSum(c.program)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(hash, tool, sum, c.tags, c.user)
	}
	store := filepath.Join(cache, "images")
	if err := os.MkdirAll(store, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	dir := filepath.Join(store, hex.EncodeToString(hash.Sum(nil))[:16])
	if complete(dir) {
		return dir, nil
	}
	half, err := os.MkdirTemp(cache, "half-")
	if err != nil {
		return "", fmt.Errorf("make a folder to build in: %w", err)
	}
	defer os.RemoveAll(half)
	for _, c := range wanted {
		if err := c.write(ctx, tool, half); err != nil {
			return "", err
		}
	}
	if err := settle(half, dir); err != nil {
		return "", err
	}
	return dir, prune(store, keepImages)
}

// write makes the image's tarball. The program's name in the image is the last part of the image's own.
func (c container) write(ctx context.Context, tool, dir string) error {
	name, _, _ := strings.Cut(c.tags[0], ":")
	name = filepath.Base(name)
	entry := name
	if strings.HasPrefix(c.tags[0], "berth.lab/") {
		entry = "lab-" + name // what package program knows it by
	}
	work, err := os.MkdirTemp(dir, "image-")
	if err != nil {
		return fmt.Errorf("make a folder for an image: %w", err)
	}
	defer os.RemoveAll(work)
	if err := os.Link(c.program, filepath.Join(work, entry)); err != nil {
		return fmt.Errorf("put %s into an image: %w", name, err)
	}
	args := []string{
		"-program", filepath.Join(work, entry), "-arch", runtime.GOARCH, "-user", c.user,
		"-output", filepath.Join(dir, name+".tar"),
	}
	for _, tag := range c.tags {
		args = append(args, "-tag", tag)
	}
	if text, err := exec.CommandContext(ctx, tool, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("make image %s: %w\n%s", c.tags[0], err, text)
	}
	return nil
}
