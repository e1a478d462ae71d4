package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// recipe is how the programs of others are built from modules that name them: into one folder, once for all.
type recipe struct {
	what, hint string
	modules    []string // folders below e2e whose files decide the result
	steps      []step
	links      map[string][]string // further names of a program
}

// step is one run of the go command.
type step struct {
	module   string // folder below e2e
	tags     string
	cgo      bool
	flags    string // for the linker, besides -s -w
	packages []string
	output   string // name of the one program; empty: each has its package's name
}

// Cluster answers the folder with the cluster's programs, building it first if the cache does not hold it.
func Cluster(ctx context.Context, out io.Writer) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	version, err := kubernetesVersion(filepath.Join(root, "e2e", "cluster", "go.mod"))
	if err != nil {
		return "", err
	}
	return built(ctx, out, recipe{
		what:    fmt.Sprintf("building Kubernetes %s and etcd", strings.TrimPrefix(version, "v")),
		hint:    fmt.Sprintf("first time only, about 10 min on 2 cores (this machine has %d)", runtime.NumCPU()),
		modules: []string{"cluster"},
		steps:   []step{{module: "cluster", flags: clusterFlags(version), packages: []string{"."}, output: "cluster"}},
		links: map[string][]string{"cluster": {
			"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl",
		}},
	})
}

// Node answers the folder with what a node with containers needs beside Kubernetes: containerd, runc, network plugins.
func Node(ctx context.Context, out io.Writer) (string, error) {
	if sentence := LacksForRunc(); sentence != "" && !NodeIsBuilt(ctx) {
		return "", fmt.Errorf("build runc: %s", sentence)
	}
	return built(ctx, out, nodeRecipe())
}

// NodeIsBuilt tells whether the cache holds what Node answers.
func NodeIsBuilt(ctx context.Context) bool { return isBuilt(ctx, nodeRecipe()) }

// HelmIsBuilt tells whether the cache holds what Helm answers.
func HelmIsBuilt(ctx context.Context) bool { return isBuilt(ctx, helmRecipe()) }

func isBuilt(ctx context.Context, r recipe) bool {
	_, dir, err := placeOf(ctx, r)
	return err == nil && complete(dir)
}

func nodeRecipe() recipe {
	const containerd, plugins = "github.com/containerd/containerd/v2/cmd/", "github.com/containernetworking/plugins/plugins/"
	return recipe{
		what:    "building containerd, runc and network plugins",
		hint:    fmt.Sprintf("first time only, about 2 min on 2 cores (this machine has %d)", runtime.NumCPU()),
		modules: []string{"node", "runc"},
		steps: []step{
			{module: "node", tags: "urfave_cli_no_docs", packages: []string{containerd + "containerd", containerd + "ctr"}},
			{module: "node", tags: "urfave_cli_no_docs,no_grpc", packages: []string{containerd + "containerd-shim-runc-v2"}},
			{module: "node", packages: []string{plugins + "main/ptp", plugins + "main/loopback", plugins + "ipam/host-local"}},
			{module: "runc", tags: "seccomp", cgo: true, packages: []string{"github.com/opencontainers/runc"}},
		},
	}
}

// LacksForRunc answers a sentence if something is not there without which runc cannot be built: a C compiler, or the
// headers of libseccomp and what finds them.
func LacksForRunc() string {
	const how = " is missing, so nodes with a kubelet are switched off; as root: apt-get install gcc libc6-dev libseccomp-dev pkg-config"
	for _, tool := range []string{"gcc", "pkg-config"} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool + how
		}
	}
	if err := exec.Command("pkg-config", "--exists", "libseccomp").Run(); err != nil {
		return "libseccomp-dev" + how
	}
	if err := exec.Command("gcc", "-E", "-include", "stdlib.h", "-x", "c", "/dev/null").Run(); err != nil {
		return "libc6-dev" + how
	}
	return ""
}

// Helm answers the program helm, building it first if the cache does not hold it.
func Helm(ctx context.Context, out io.Writer) (string, error) {
	dir, err := built(ctx, out, helmRecipe())
	return filepath.Join(dir, "helm"), err
}

func helmRecipe() recipe {
	return recipe{
		what:    "building helm",
		hint:    fmt.Sprintf("first time only, about 3 min on 2 cores (this machine has %d)", runtime.NumCPU()),
		modules: []string{"helm"},
		steps:   []step{{module: "helm", packages: []string{"helm.sh/helm/v4/cmd/helm"}}},
	}
}

// built answers the folder with what a recipe makes.
func built(ctx context.Context, out io.Writer, r recipe) (string, error) {
	cache, dir, err := placeOf(ctx, r)
	if err != nil {
		return "", err
	}
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
	return dir, r.build(ctx, cache, dir, out)
}

// placeOf answers the cache folder and, in it, the folder named after all that decides what the recipe makes.
func placeOf(ctx context.Context, r recipe) (cache, dir string, err error) {
	root, err := Root()
	if err != nil {
		return "", "", err
	}
	if cache, err = CacheDir(); err != nil {
		return "", "", err
	}
	var keys []string
	for _, module := range r.modules {
		key, err := moduleKey(ctx, filepath.Join(root, "e2e", module))
		if err != nil {
			return "", "", err
		}
		keys = append(keys, key)
	}
	return cache, filepath.Join(cache, joinKeys(keys)), nil
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

func (r recipe) build(ctx context.Context, cache, dir string, out io.Writer) error {
	if err := checkFree(cache); err != nil {
		return err
	}
	root, err := Root()
	if err != nil {
		return err
	}
	half, err := os.MkdirTemp(cache, "half-")
	if err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	defer os.RemoveAll(half)
	for _, step := range r.steps {
		command := goCommand{dir: filepath.Join(root, "e2e", step.module), args: step.args(half), cgo: step.cgo}
		if err := goBuild(ctx, command, cache, progress{out: out, what: r.what, hint: r.hint}); err != nil {
			return err
		}
	}
	for program, names := range r.links {
		for _, name := range names {
			if err := os.Symlink(program, filepath.Join(half, name)); err != nil {
				return fmt.Errorf("name the program %s: %w", name, err)
			}
		}
	}
	return settle(half, dir)
}

func (s step) args(into string) []string {
	args := []string{"build", "-trimpath", "-ldflags", strings.TrimSpace("-s -w " + s.flags), "-o", filepath.Join(into, s.output) + "/"}
	if s.output != "" {
		args[len(args)-1] = filepath.Join(into, s.output)
	}
	if s.tags != "" {
		args = append(args, "-tags", s.tags)
	}
	return append(args, s.packages...)
}

// settle puts a folder that was built under another name in its place. Another build of the same may have been first.
func settle(half, dir string) error {
	if complete(dir) {
		return nil
	}
	if err := os.Chmod(half, 0o755); err != nil {
		return fmt.Errorf("open the built folder to other users: %w", err)
	}
	if err := os.Rename(half, dir); err != nil && !complete(dir) {
		return fmt.Errorf("put what was built in its place: %w", err)
	}
	return nil
}

// clusterFlags stamps Kubernetes' version: without it the server calls itself v0.0.0, and charts that ask for a version
// refuse to be installed.
func clusterFlags(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	const base = "k8s.io/component-base/version."
	return strings.Join([]string{
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
