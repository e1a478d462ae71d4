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
	"runtime"
	"strings"
	"time"
)

const progressEvery = 10 * time.Second

// clusterNames are the programs that the one cluster program is, each by the name it is called by.
func clusterNames() []string {
	return []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl",
	}
}

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

// Cluster answers the folder with the cluster's programs, building it first if the cache does not hold it.
func Cluster(ctx context.Context, out io.Writer) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "e2e", "cluster")
	key, err := moduleKey(ctx, module)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, key)
	if complete(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	release, err := lock(ctx, cache, out)
	if err != nil {
		return "", err
	}
	defer release()
	if complete(dir) { // the build we waited for was this one
		return dir, nil
	}
	return dir, buildCluster(ctx, module, cache, dir, out)
}

func complete(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// moduleKey names a build by all that decides it: the module's files, the platform and the Go version.
func moduleKey(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOOS", "GOARCH", "GOVERSION")
	cmd.Dir = module
	platform, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask Go for its version: %w", err)
	}
	return Key(os.DirFS(module), string(platform))
}

func buildCluster(ctx context.Context, module, cache, dir string, out io.Writer) error {
	if err := checkFree(cache); err != nil {
		return err
	}
	version, err := kubernetesVersion(filepath.Join(module, "go.mod"))
	if err != nil {
		return err
	}
	half, err := os.MkdirTemp(cache, "half-")
	if err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	defer os.RemoveAll(half)
	what := fmt.Sprintf("building Kubernetes %s and etcd", strings.TrimPrefix(version, "v"))
	hint := fmt.Sprintf("first time only, about 10 min on 2 cores (this machine has %d)", runtime.NumCPU())
	args := []string{"build", "-trimpath", "-ldflags", clusterFlags(version), "-o", filepath.Join(half, "cluster"), "."}
	if err := goBuild(ctx, module, cache, args, progress{out: out, what: what, hint: hint}); err != nil {
		return err
	}
	for _, name := range clusterNames() {
		if err := os.Symlink("cluster", filepath.Join(half, name)); err != nil {
			return fmt.Errorf("name the cluster program %s: %w", name, err)
		}
	}
	if err := os.Chmod(half, 0o755); err != nil {
		return fmt.Errorf("open the built folder to other users: %w", err)
	}
	if err := os.Rename(half, dir); err != nil {
		return fmt.Errorf("put the built programs in their place: %w", err)
	}
	return nil
}

// clusterFlags stamps Kubernetes' version: without it the server calls itself v0.0.0, and charts that ask for a version
// refuse to be installed.
func clusterFlags(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	const base = "k8s.io/component-base/version."
	return strings.Join([]string{
		"-s -w",
		"-X", base + "gitVersion=" + version,
		"-X", base + "gitMajor=" + parts[0],
		"-X", base + "gitMinor=" + parts[1],
		"-X", "k8s.io/client-go/pkg/version.gitVersion=" + version,
	}, " ")
}

func kubernetesVersion(goMod string) (string, error) {
	text, err := os.ReadFile(goMod)
	if err != nil {
		return "", fmt.Errorf("read the cluster's module: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" && strings.Count(fields[1], ".") == 2 {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("find Kubernetes' version: %s does not require k8s.io/kubernetes", goMod)
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
		build := progress{out: out, what: "building " + name, hint: "quick once its libraries are compiled"}
		if paths[name], err = berthProgram(ctx, root, cache, name, flags, build); err != nil {
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

// berthProgram builds one program into a folder named after its content, so that labs which run an older one keep it.
func berthProgram(ctx context.Context, root, cache, name, flags string, say progress) (string, error) {
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
	if err := goBuild(ctx, root, cache, []string{"build", "-ldflags", flags, "-o", binary, "./" + name}, say); err != nil {
		return "", err
	}
	sum, err := fileSum(binary)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(store, sum[:16])
	if complete(dir) {
		return filepath.Join(dir, name), nil
	}
	if err := os.Chmod(half, 0o755); err != nil {
		return "", fmt.Errorf("open the built folder to other users: %w", err)
	}
	if err := os.Rename(half, dir); err != nil && !complete(dir) { // another build of the same content was first
		return "", fmt.Errorf("put %s in its place: %w", name, err)
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
