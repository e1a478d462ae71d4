// Package machine is a node of the lab as a machine of its own: pid 1 of namespaces for processes, mounts, host name and
// control groups, in the network namespace of a host of the lab. On it run containerd and a real kubelet, so that pods
// are containers of images.
//
//	lab ── lab-machine (pid 1 of the node) ─┬─ containerd ── a shim for each pod ── its containers
//	                                        └─ kubelet
//
// What a node keeps when it loses its power lies in its folder (its disk); all else is gone with its pid 1.
package machine

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthlb/berth/e2e/lab/cgroup"
)

// Name is what the lab's binary is called as to be a node's pid 1; its one argument is a file with a Spec.
const Name = "lab-machine"

// PauseImage holds a pod's namespaces open.
const PauseImage = "berth.lab/pause:v1"

const (
	socket = "/run/containerd/containerd.sock"
	// programs is where a node sees the programs of the lab, wherever they lie outside.
	programs = "/run/programs"
	// temporary is the folder for temporary files: the machine's own must get none that a power cut leaves.
	temporary = "/run/tmp"
)

// Spec says what a node is.
type Spec struct {
	Node      string         `json:"node"`
	Dir       string         `json:"dir"`       // its disk, and the files that are written for its programs
	Logs      string         `json:"logs"`      // folder for the logs of containerd and kubelet
	Groups    cgroup.Trees   `json:"groups"`    // beneath which it makes its own control groups
	Programs  string         `json:"programs"`  // folder with containerd, runc and the network plugins
	Cluster   string         `json:"cluster"`   // folder with Kubernetes
	Images    string         `json:"images"`    // folder of image tarballs
	Addrs     []netip.Addr   `json:"addrs"`     // of the node
	PodRanges []netip.Prefix `json:"podRanges"` // one of each family
	// Plain makes the node do as if this machine refused what a node can do without, so that it is seen to.
	Plain bool `json:"plain"`
	// Kubeconfig and CA are files of the lab: how the kubelet knows the API server, and it the kubelet.
	Kubeconfig string `json:"kubeconfig"`
	CA         string `json:"ca"`
}

// Write writes the spec into the node's folder and answers the file.
func (s Spec) Write() (string, error) {
	for _, name := range []string{"disk", "config/cni"} {
		if err := os.MkdirAll(filepath.Join(s.Dir, name), 0o755); err != nil {
			return "", fmt.Errorf("make the folder of node %s: %w", s.Node, err)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("write down node %s: %w", s.Node, err)
	}
	path := filepath.Join(s.Dir, "node.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("write down node %s: %w", s.Node, err)
	}
	return path, nil
}

func read(path string) (s Spec, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("read what this node is: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read what this node is: %w", err)
	}
	return s, nil
}

func (s Spec) disk() string   { return filepath.Join(s.Dir, "disk") }
func (s Spec) config() string { return filepath.Join(s.Dir, "config") }

// nodeIPs is how the kubelet wants the node's addresses.
func (s Spec) nodeIPs() string {
	var texts []string
	for _, addr := range s.Addrs {
		texts = append(texts, addr.String())
	}
	return strings.Join(texts, ",")
}

// Dispatch is a node's pid 1, if this binary was called as that, until the node loses its power. Call it first thing in
// main.
func Dispatch() {
	if filepath.Base(os.Args[0]) != Name {
		return
	}
	fmt.Fprintln(os.Stderr, Name+":", run(os.Args[1])) // it returns only for a reason
	os.Exit(1)
}
