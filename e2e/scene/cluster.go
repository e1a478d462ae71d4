package scene

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/audit"
	"github.com/berthlb/berth/e2e/lab/kubelet"
	"github.com/berthlb/berth/e2e/lab/process"
	"github.com/berthlb/berth/e2e/lab/slow"
)

// kubectl runs kubectl with all rights in the scene's namespace.
func kubectl(s *Scene, args []string) (string, error) { return s.kubectl(nil, args...) }

func (s *Scene) kubectl(stdin []byte, args ...string) (string, error) {
	return s.call(lab.KubectlCall{Kubeconfig: s.kubeconfig, Stdin: stdin}, args...)
}

// kubectlAs runs kubectl with the rights of one of Berth's processes: with the very token it was started with.
func (s *Scene) kubectlAs(who string, args ...string) (string, error) {
	call := lab.KubectlCall{Kubeconfig: s.lab.Kubeconfig(who)}
	return s.call(call, append([]string{"--namespace", s.namespace}, args...)...)
}

func (s *Scene) call(call lab.KubectlCall, args ...string) (string, error) {
	call.Dir = s.ts.MkAbs(".")
	stdout, stderr, err := s.lab.Kubectl(s.ctx, call, args...)
	if err != nil {
		return stdout, fmt.Errorf("%w\n%s", err, stderr)
	}
	return stdout, nil
}

// helm runs helm with all rights, as users do.
func helm(s *Scene, args []string) (string, error) {
	stdout, stderr, err := s.lab.Helm(s.ctx, lab.KubectlCall{Kubeconfig: s.kubeconfig, Dir: s.ts.MkAbs(".")}, args...)
	if err != nil {
		return stdout, fmt.Errorf("%w\n%s", err, stderr)
	}
	return stdout, nil
}

// apply is kubectl apply of the given files.
func apply(s *Scene, args []string) (string, error) {
	if len(args) == 0 {
		return "", usageError{"apply FILE..."}
	}
	return s.kubectl(nil, "apply", "--server-side", "-f", strings.Join(args, ","))
}

// berth installs Berth, or installs and starts all of it.
func berth(s *Scene, args []string) (string, error) {
	if len(args) != 1 {
		return "", usageError{"berth install|start"}
	}
	switch args[0] {
	case "install":
		return "", s.lab.InstallBerth(s.ctx)
	case "start":
		return "", s.lab.StartBerth(s.ctx)
	default:
		return "", usageError{"berth install|start"}
	}
}

const (
	controllerUsage = "controller NAME start [-nowait] [-slow] [FLAG...]|stop|kill|freeze|thaw|alive|ready|log"
	speakerUsage    = "speaker NODE start [-nowait] [-no-net-raw] [FLAG...]|stop|kill|freeze|thaw|alive|ready|log|kubectl ARG..."
)

func controller(s *Scene, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError{controllerUsage}
	}
	name, verb := args[0], args[1]
	switch verb {
	case "start":
		return "", s.lab.StartController(s.ctx, name, extra(args[2:]))
	case "log":
		return s.lab.Log("controller-" + name), nil
	case "ready":
		return "", s.lab.ControllerReady(s.ctx, name)
	}
	p, err := s.lab.ControllerProcess(name)
	if err != nil {
		return "", err
	}
	return handle(p, verb, controllerUsage)
}

func speaker(s *Scene, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError{speakerUsage}
	}
	name, verb := args[0], args[1]
	switch verb {
	case "start":
		return "", s.lab.StartSpeaker(s.ctx, name, extra(args[2:]))
	case "log":
		return s.lab.Log("speaker-" + name), nil
	case "kubectl":
		return s.kubectlAs("speaker-"+name, args[2:]...)
	case "ready":
		return "", s.lab.SpeakerReady(s.ctx, name)
	}
	p, err := s.lab.SpeakerProcess(name)
	if err != nil {
		return "", err
	}
	return handle(p, verb, speakerUsage)
}

// extra reads what follows start: options of ours have one dash, flags of the program two.
func extra(args []string) lab.Extra {
	var extra lab.Extra
	for ; len(args) > 0; args = args[1:] {
		switch args[0] {
		case "-nowait":
			extra.NoWait = true
		case "-slow":
			extra.Slow = true
		case "-no-net-raw":
			extra.NoNetRaw = true
		default:
			extra.Args = args
			return extra
		}
	}
	return extra
}

// handle does to a process what the verb says.
func handle(p *process.Process, verb, usage string) (string, error) {
	switch verb {
	case "stop":
		return "", lab.Stop(p)
	case "kill":
		return "", p.Kill()
	case "freeze":
		return "", lab.Freeze(p)
	case "thaw":
		return "", lab.Thaw(p)
	case "alive":
		if !p.Alive() {
			return "", fmt.Errorf("%s has ended: %w", p.Spec.Name, errOf(p))
		}
		return "", nil
	default:
		return "", usageError{usage}
	}
}

func errOf(p *process.Process) error {
	if err := p.Err(); err != nil {
		return err
	}
	return errors.New("with exit code 0")
}

const nodeUsage = "node NAME cut|power-cut|restore|link-down|link-up|freeze|thaw|exec COMMAND..."

func node(s *Scene, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError{nodeUsage}
	}
	n, err := s.lab.Node(args[0])
	if err != nil {
		return "", err
	}
	switch args[1] {
	case "exec":
		return n.Exec(s.ctx, args[2:]...)
	case "curl":
		return curl(s, n.Space, args[2:])
	}
	act, known := map[string]func() error{
		"cut": n.Cut, "power-cut": n.PowerCut, "restore": func() error { return n.Restore(s.ctx) },
		"link-down": n.LinkDown, "link-up": n.LinkUp, "freeze": n.Freeze, "thaw": n.Thaw,
	}[args[1]]
	if !known {
		return "", usageError{nodeUsage}
	}
	return "", act()
}

// pod overrides a pod's readiness, or gives it back to its probe; -on NODE means every pod of the scene there.
func pod(s *Scene, args []string) (string, error) {
	const usage = "pod ready NAME|-on NODE true|false|auto"
	if len(args) < 3 || args[0] != "ready" {
		return "", usageError{usage}
	}
	wishes := map[string]kubelet.Readiness{"true": kubelet.Ready, "false": kubelet.NotReady, "auto": kubelet.Probed}
	wish, ok := wishes[args[len(args)-1]]
	if !ok {
		return "", usageError{usage}
	}
	names := args[1 : len(args)-1]
	if len(names) == 2 && names[0] == "-on" {
		list, err := s.kubectl(nil, "get", "pods", "--field-selector", "spec.nodeName="+names[1],
			"-o", "jsonpath={.items[*].metadata.name}")
		if err != nil {
			return "", err
		}
		names = strings.Fields(list)
	}
	for _, name := range names {
		if err := s.lab.SetPodReady(types.NamespacedName{Namespace: s.namespace, Name: name}, wish); err != nil {
			return "", err
		}
	}
	return strings.Join(names, "\n") + "\n", nil
}

const apiserverUsage = "apiserver stop|start|slow [-writes D,...] [-watches D] [-lose N]"

func apiserver(s *Scene, args []string) (string, error) {
	if len(args) == 0 {
		return "", usageError{apiserverUsage}
	}
	if args[0] == "slow" {
		return slowServer(s, args[1:])
	}
	if len(args) > 1 {
		return "", usageError{apiserverUsage}
	}
	switch args[0] {
	case "stop":
		return "", s.lab.StopAPIServer()
	case "start":
		return "", s.lab.StartAPIServer(s.ctx)
	default:
		return "", usageError{apiserverUsage}
	}
}

// slowServer changes how a controller started with -slow finds the API server, and prints what it asked of it before.
func slowServer(s *Scene, args []string) (string, error) {
	options, err := parseFlags(args, apiserverUsage, "writes", "watches", "lose")
	if err != nil {
		return "", err
	}
	var manners slow.Manners
	if options["writes"] != "" {
		for text := range strings.SplitSeq(options["writes"], ",") {
			wait, err := time.ParseDuration(text)
			if err != nil {
				return "", usageError{apiserverUsage}
			}
			manners.Writes = append(manners.Writes, wait)
		}
	}
	if manners.Watches, err = time.ParseDuration(cmp.Or(options["watches"], "0s")); err != nil {
		return "", usageError{apiserverUsage}
	}
	if manners.Lose, err = strconv.Atoi(cmp.Or(options["lose"], "0")); err != nil {
		return "", usageError{apiserverUsage}
	}
	seen, err := s.lab.SlowAPIServer(manners)
	return seen.String() + "\n", err
}

// writes prints the write requests that the API server answered.
func writes(s *Scene, args []string) (string, error) {
	const usage = "writes [-user USER] [-from CONTROLLER] [-since MARK] [-match RE]"
	options, err := parseFlags(args, usage, "user", "from", "since", "match")
	if err != nil {
		return "", err
	}
	filter := audit.Filter{User: options["user"]}
	if name := options["from"]; name != "" {
		address, err := s.lab.ControllerAddress(name)
		if err != nil {
			return "", err
		}
		filter.From = address.String()
	}
	if filter.Since, err = s.since(options["since"]); err != nil {
		return "", err
	}
	list, err := s.lab.Writes(filter)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, w := range list {
		lines = append(lines, w.String())
	}
	return matching(lines, options["match"], usage)
}

// mark remembers this moment.
func mark(s *Scene, args []string) (string, error) {
	if len(args) != 1 {
		return "", usageError{"mark NAME"}
	}
	s.lab.Mark(s.markName(args[0]))
	return "", nil
}

// need skips the scene if a program is not installed.
func need(s *Scene, args []string) (string, error) {
	for _, tool := range args {
		if sentence := lab.Lacks(tool); sentence != "" {
			s.skip(sentence)
		}
	}
	return "", nil
}

// showLog prints the end of the log of a process of the lab.
func showLog(s *Scene, args []string) (string, error) {
	if len(args) != 1 {
		return "", usageError{"log NAME"}
	}
	return s.lab.Log(args[0]), nil
}
