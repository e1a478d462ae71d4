package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Kubectl runs kubectl as a user ("admin" may do everything) in a working folder and answers its two outputs.
func (l *Lab) Kubectl(ctx context.Context, call KubectlCall, args ...string) (stdout, stderr string, err error) {
	args = append([]string{"kubectl", "--kubeconfig", call.Kubeconfig}, args...)
	return l.runTool(ctx, filepath.Join(l.options.Programs.Cluster, "cluster"), call, args)
}

// Helm runs helm likewise.
func (l *Lab) Helm(ctx context.Context, call KubectlCall, args ...string) (stdout, stderr string, err error) {
	if l.options.Programs.Helm == "" {
		return "", "", errors.New("run helm: it was built for no lab but those whose nodes have a kubelet")
	}
	args = append([]string{"helm", "--kubeconfig", call.Kubeconfig}, args...)
	return l.runTool(ctx, l.options.Programs.Helm, call, args)
}

// runTool runs a client of the API server on the control plane's host.
func (l *Lab) runTool(ctx context.Context, path string, call KubectlCall, args []string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = args
	cmd.Dir, cmd.Stdin = call.Dir, bytes.NewReader(call.Stdin)
	// What a tool keeps lies with the lab: another cluster had the same address a minute ago.
	cmd.Env = append(os.Environ(), "HOME="+l.dir, "KUBECACHEDIR="+filepath.Join(l.dir, "kubecache"),
		"HELM_CACHE_HOME="+filepath.Join(l.dir, "helm"), "HELM_CONFIG_HOME="+filepath.Join(l.dir, "helm"),
		"HELM_DATA_HOME="+filepath.Join(l.dir, "helm"))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := l.Control().Do(cmd.Start); err != nil {
		return "", "", fmt.Errorf("start %s: %w", args[0], err)
	}
	err = cmd.Wait()
	return out.String(), errOut.String(), err
}

// KubectlCall is who calls kubectl or helm from where.
type KubectlCall struct {
	Kubeconfig string
	Dir        string
	Stdin      []byte
}
