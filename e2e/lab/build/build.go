// Package build makes the programs the lab runs and keeps them in the cache folder: Kubernetes and etcd as one program,
// which takes minutes once and nothing afterwards, and Berth's own, which Go's build cache makes quick.
//
// A finished program lies in a folder named after everything it was made of, is written under another name and then
// renamed, and is never changed afterwards: a lab that runs from it cannot be disturbed by the next build.
package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const progressEvery = 10 * time.Second

// Root answers the repository's root: the nearest folder above the working folder that holds e2e/cluster/go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "e2e", "cluster", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: no folder above %s holds e2e/cluster/go.mod", start)
		}
	}
}

// Berth builds the repository's own programs of the given names ("controller" is package ./controller) and answers the
// path of each. Programs whose folder does not exist are left out.
func Berth(ctx context.Context, out io.Writer, names ...string) (map[string]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	flags := "-s -w -X main.version=" + describe(ctx, root)
	paths := map[string]string{}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(root, name, "main.go")); err != nil {
			continue
		}
		if paths[name], err = program(ctx, root, cache, source{pkg: "./" + name, flags: flags}, out); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// describe answers the version to stamp, "dev" where there is no git or no commit.
func describe(ctx context.Context, root string) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty")
	cmd.Dir = root
	if text, err := cmd.Output(); err == nil && len(bytes.TrimSpace(text)) > 0 {
		return string(bytes.TrimSpace(text))
	}
	return "dev"
}

// source is what one of the repository's own programs is made of.
type source struct{ pkg, flags string }

// program builds one program into a folder named after its content, so that labs which run an older one keep it.
func program(ctx context.Context, module, cache string, from source, out io.Writer) (string, error) {
	name := filepath.Base(from.pkg)
	if from.pkg == "." {
		name = filepath.Base(module)
	}
	store := filepath.Join(cache, "programs", name)
	if err := os.MkdirAll(store, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	half, err := os.MkdirTemp(cache, "half-")
	if err != nil {
		return "", fmt.Errorf("make a folder to build in: %w", err)
	}
	defer os.RemoveAll(half)
	binary := filepath.Join(half, name)
	say := progress{out: out, what: "building " + name, hint: "quick once its libraries are compiled"}
	args := []string{"build", "-ldflags", from.flags, "-o", binary, from.pkg}
	if err := goBuild(ctx, goCommand{dir: module, args: args}, cache, say); err != nil {
		return "", err
	}
	sum, err := fileSum(binary)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(store, sum[:16])
	if err := settle(half, dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, name), prune(store, keepPrograms)
}

func fileSum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the built program: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
