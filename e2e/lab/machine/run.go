package machine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// run is a node's life. It stays on one thread, which is the only one with the node's control groups as its root, so
// that every program is started from there.
func run(path string) error {
	runtime.LockOSThread()
	spec, err := read(path)
	if err != nil {
		return err
	}
	if err := arrange(spec); err != nil {
		return err
	}
	found, err := look(spec)
	if err != nil {
		return err
	}
	if err := spec.writeConfig(found); err != nil {
		return err
	}
	containerd, err := spec.start("containerd", filepath.Join(programs, "node", "containerd"), "--config", spec.config()+"/containerd.toml")
	if err != nil {
		return err
	}
	if err := await(socket); err != nil {
		return err
	}
	// Before the kubelet, which does not start while a file system comes or goes with an image that is being unpacked.
	if err := spec.importImages(found); err != nil {
		return err
	}
	kubelet, err := spec.start("kubelet", filepath.Join(programs, "cluster", "cluster"),
		"--config", spec.config()+"/kubelet.yaml", "--kubeconfig", spec.Kubeconfig, "--root-dir", spec.disk()+"/kubelet",
		"--hostname-override", spec.Node, "--node-ip", spec.nodeIPs())
	if err != nil {
		return err
	}
	return reap(map[int]string{containerd.Pid: "containerd", kubelet.Pid: "kubelet"})
}

// start starts one of the node's programs with its output in a log of its own.
func (s Spec) start(name, path string, args ...string) (*os.Process, error) {
	log, err := os.OpenFile(filepath.Join(s.Logs, name+"-"+s.Node+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := &exec.Cmd{Path: path, Args: append([]string{name}, args...), Env: environment(), Stdout: log, Stderr: log}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return cmd.Process, nil
}

// environment is that of the node's programs. containerd looks for its shim on the path.
func environment() []string {
	return append(os.Environ(), "PATH="+programs+"/node:"+os.Getenv("PATH"), "TMPDIR="+temporary,
		"CONTAINERD_ADDRESS="+socket, "GOGC=400")
}

// await waits until something accepts connections at a socket.
func await(path string) error {
	const patience = 20 * time.Second
	for begin := time.Now(); ; {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return conn.Close()
		}
		if time.Since(begin) > patience {
			return fmt.Errorf("containerd does not serve after %s: %w", patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// importImages gives containerd the images, all at once. A node that has had power before has them on its disk.
func (s Spec) importImages(found findings) error {
	done := filepath.Join(s.disk(), "images-imported")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	tarballs, err := filepath.Glob(filepath.Join(programs, "images", "*.tar"))
	if err != nil {
		return err
	}
	running := map[string]*exec.Cmd{}
	said := map[string]*strings.Builder{}
	for _, tarball := range tarballs {
		cmd := exec.Command(filepath.Join(programs, "node", "ctr"), "--namespace", "k8s.io", "images", "import",
			// By itself, since containerd's own service unpacks for its usual driver alone.
			"--local", "--snapshotter", found.Snapshotter, tarball)
		said[tarball] = &strings.Builder{}
		cmd.Env, cmd.Stdout, cmd.Stderr = environment(), said[tarball], said[tarball]
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("import %s: %w", tarball, err)
		}
		running[tarball] = cmd
	}
	var errs []error
	for tarball, cmd := range running {
		if err := cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("import %s: %w: %s", tarball, err, said[tarball]))
		}
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	return os.WriteFile(done, nil, 0o600)
}

// reap waits for every process of the node, adopted ones too, and returns when one of those that make it a node ends.
func reap(vital map[int]string) error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for the node's processes: %w", err)
		case vital[pid] != "":
			return fmt.Errorf("%s ended: %v", vital[pid], status)
		}
	}
}
