package machine

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestConfig shows that what a node found out is what its programs are told, in files that they can read.
func TestConfig(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason      string
		found       findings
		snapshotter string
		userspace   bool
	}{
		"usual": {"A machine that refuses nothing.", findings{Snapshotter: "overlayfs"}, "overlayfs", false},
		"plain": {"No overlay, no /dev/kmsg.", findings{Snapshotter: "native", NoKmsg: true}, "native", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := Spec{Node: "n1", Dir: t.TempDir(), PodRanges: []netip.Prefix{
				netip.MustParsePrefix("10.245.1.0/24"), netip.MustParsePrefix("fd00:245:0:1::/64"),
			}}
			if _, err := spec.Write(); err != nil {
				t.Fatal(err)
			}
			if err := spec.writeConfig(tc.found); err != nil {
				t.Fatal(err)
			}
			if text := readConfig(t, spec, "containerd.toml"); !strings.Contains(text, `snapshotter = "`+tc.snapshotter+`"`) {
				t.Errorf("%s\ncontainerd is told:\n%s", tc.reason, text)
			}
			var kubelet struct {
				FailCgroupV1 *bool           `json:"failCgroupV1"`
				FeatureGates map[string]bool `json:"featureGates"`
			}
			if err := yaml.Unmarshal([]byte(readConfig(t, spec, "kubelet.yaml")), &kubelet); err != nil {
				t.Fatal(err)
			}
			if kubelet.FailCgroupV1 == nil || *kubelet.FailCgroupV1 || kubelet.FeatureGates["KubeletInUserNamespace"] != tc.userspace {
				t.Errorf("%s\nthe kubelet is told %+v", tc.reason, kubelet)
			}
			checkNetwork(t, readConfig(t, spec, "cni/10-lab.conflist"))
		})
	}
}

// checkNetwork looks for the pod ranges of both families.
func checkNetwork(t *testing.T, text string) {
	t.Helper()
	var network struct {
		Plugins []struct {
			IPAM struct {
				Ranges [][]struct {
					Subnet netip.Prefix `json:"subnet"`
				} `json:"ranges"`
			} `json:"ipam"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal([]byte(text), &network); err != nil {
		t.Fatalf("the network's file: %v\n%s", err, text)
	}
	ranges := network.Plugins[0].IPAM.Ranges
	if len(ranges) != 2 || ranges[0][0].Subnet.String() != "10.245.1.0/24" || ranges[1][0].Subnet.String() != "fd00:245:0:1::/64" {
		t.Errorf("pods get addresses of %v", ranges)
	}
}

func readConfig(t *testing.T, spec Spec, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(spec.config(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
