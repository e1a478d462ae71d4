package lab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/berthlb/berth/e2e/lab/build"
)

// Programs are the built programs a lab runs. They are built outside the sandbox, which has no network.
type Programs struct {
	Cluster string            // folder with etcd and Kubernetes
	Berth   map[string]string // path of each of Berth's programs that exists

	// Of nodes with containers; empty if none are wanted.
	Node   string // folder with containerd, runc and network plugins
	Images string // folder with image tarballs
	Helm   string // the program
}

const (
	clusterVar = "BERTH_LAB_CLUSTER"
	berthVar   = "BERTH_LAB_PROGRAMS"
	nodeVar    = "BERTH_LAB_NODE"
	imagesVar  = "BERTH_LAB_IMAGES"
	helmVar    = "BERTH_LAB_HELM"
)

// Build makes the cluster's programs, unless the cache has them, and Berth's of the given names.
func Build(ctx context.Context, out io.Writer, names ...string) (Programs, error) {
	cluster, err := build.Cluster(ctx, out)
	if err != nil {
		return Programs{}, err
	}
	berth, err := build.Berth(ctx, out, names...)
	if err != nil {
		return Programs{}, err
	}
	return Programs{Cluster: cluster, Berth: berth}, nil
}

// BuildContainers answers the programs with what nodes with containers need besides.
func BuildContainers(ctx context.Context, out io.Writer, p Programs) (_ Programs, err error) {
	if p.Node, err = build.Node(ctx, out); err != nil {
		return Programs{}, err
	}
	if p.Helm, err = build.Helm(ctx, out); err != nil {
		return Programs{}, err
	}
	p.Images, err = build.Images(ctx, out, p.Berth)
	return p, err
}

// ContainersAreBuilt tells whether the cache has what takes long to build of what nodes with containers need.
func ContainersAreBuilt(ctx context.Context) bool {
	return build.NodeIsBuilt(ctx) && build.HelmIsBuilt(ctx)
}

// LacksForContainers answers a sentence if what nodes with containers need is not built and cannot be.
func LacksForContainers(ctx context.Context) string {
	if build.NodeIsBuilt(ctx) {
		return ""
	}
	return build.LacksForRunc()
}

// Environment carries the programs' places into a sandbox.
func (p Programs) Environment() []string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(p.Berth)) {
		pairs = append(pairs, name+"="+p.Berth[name])
	}
	return []string{
		clusterVar + "=" + p.Cluster, berthVar + "=" + strings.Join(pairs, ","),
		nodeVar + "=" + p.Node, imagesVar + "=" + p.Images, helmVar + "=" + p.Helm,
	}
}

// ProgramsFromEnvironment answers what Environment carried.
func ProgramsFromEnvironment() (Programs, error) {
	p := Programs{
		Cluster: os.Getenv(clusterVar), Berth: map[string]string{},
		Node: os.Getenv(nodeVar), Images: os.Getenv(imagesVar), Helm: os.Getenv(helmVar),
	}
	if p.Cluster == "" {
		return Programs{}, fmt.Errorf("find the lab's programs: %s is not set", clusterVar)
	}
	for pair := range strings.SplitSeq(os.Getenv(berthVar), ",") {
		if name, path, ok := strings.Cut(pair, "="); ok {
			p.Berth[name] = path
		}
	}
	return p, nil
}

// Lacks answers a sentence if a program that only some scenes need is not installed, else nothing.
func Lacks(tool string) string {
	if _, err := exec.LookPath(tool); err != nil {
		return tool + " is not installed"
	}
	return ""
}
