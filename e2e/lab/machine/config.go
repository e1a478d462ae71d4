package machine

import (
	"embed"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"

	"golang.org/x/sys/unix"
)

//go:embed config
var templates embed.FS

// findings are what a node found out about the machine it is on.
type findings struct {
	Snapshotter string // overlayfs, or native where an overlay is refused
	NoKmsg      bool   // /dev/kmsg cannot be read
}

// look tries what a node can do without.
func look(spec Spec) (findings, error) {
	if spec.Plain {
		return findings{Snapshotter: "native", NoKmsg: true}, nil
	}
	found := findings{Snapshotter: "overlayfs"}
	overlay, err := mayOverlay(filepath.Join(spec.disk(), "overlay"))
	if err != nil {
		return found, err
	}
	if !overlay {
		found.Snapshotter = "native"
	}
	if kmsg, err := os.Open("/dev/kmsg"); err == nil {
		return found, kmsg.Close()
	}
	found.NoKmsg = true
	return found, nil
}

// mayOverlay tries to lay one folder over another, as a container's file system is made.
func mayOverlay(dir string) (bool, error) {
	defer os.RemoveAll(dir)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return false, err
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", dir+"/merged", "overlay", 0, options); err != nil {
		return false, nil // that it is refused is the answer
	}
	if err := unix.Unmount(dir+"/merged", 0); err != nil {
		return false, fmt.Errorf("undo a mount: %w", err)
	}
	return true, nil
}

// values fill the templates.
type values struct {
	findings
	Disk, Config, Programs, Socket, PauseImage, CA string
	PodRanges                                      []netip.Prefix
}

// writeConfig writes the files that the node's programs are told of.
func (s Spec) writeConfig(found findings) error {
	all, err := template.ParseFS(templates, "config/*")
	if err != nil {
		return fmt.Errorf("read the configuration of a node: %w", err)
	}
	v := values{
		findings: found, Disk: s.disk(), Config: s.config(), Programs: programs + "/node", Socket: socket,
		PauseImage: PauseImage, CA: s.CA, PodRanges: s.PodRanges,
	}
	for name, path := range map[string]string{
		"containerd.toml": "containerd.toml", "kubelet.yaml": "kubelet.yaml", "cni.conflist": "cni/10-lab.conflist",
	} {
		file, err := os.Create(filepath.Join(s.config(), path))
		if err != nil {
			return fmt.Errorf("write the configuration of a node: %w", err)
		}
		err = all.ExecuteTemplate(file, name, v)
		if closed := file.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
