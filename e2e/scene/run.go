package scene

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/build"
)

// quietNodes is how many nodes the lab that quiet scenes share has.
const quietNodes = 4

// soak is for how long a scene watches that nothing happens, unless the environment's DURATION says otherwise.
const soak = "20s"

func duration() string { return cmp.Or(os.Getenv("DURATION"), soak) }

// limits bound a scene's run: far above what a scene of the sort may take, so that only a hanging one meets it.
func limits() map[Sort]time.Duration {
	watched, err := time.ParseDuration(duration())
	if err != nil {
		watched = 0 // the scene itself says what is wrong with it
	}
	return map[Sort]time.Duration{Quiet: 2 * time.Minute, Loud: 3 * time.Minute, Timed: 10*time.Minute + watched}
}

// Runner runs scenes and keeps account of them. Its methods may be called from parallel tests.
type Runner struct {
	programs lab.Programs
	// noKubelet says why there can be no nodes with a kubelet; empty if there can.
	noKubelet string
	failed    string // folder that the logs of failed scenes are copied to
	out       io.Writer
	slots     slots
	alone     chan struct{} // holds a token while no scene has a lab of its own

	shared     sync.Once
	quietLab   *lab.Lab
	quietError error

	mu      sync.Mutex // guards all below
	account Account
	labs    int
}

// NewRunner makes a runner. Logs of failed scenes go below the folder failed; out gets a line for every skipped scene.
func NewRunner(programs lab.Programs, failed string, out io.Writer) *Runner {
	r := &Runner{programs: programs, failed: failed, out: out, alone: make(chan struct{}, 1)}
	r.alone <- struct{}{}
	return r
}

// WithoutKubelet makes scenes skip that want nodes with a kubelet, with this sentence.
func (r *Runner) WithoutKubelet(sentence string) { r.noKubelet = sentence }

// Run runs scenes, each of them count times: quiet ones first, those that measure last.
func (r *Runner) Run(t *testing.T, files []File, count int) {
	t.Helper()
	for _, sort := range Sorts() {
		var paths []string
		headers := map[string]Header{}
		for _, file := range files {
			if file.Header.Sort != sort {
				continue
			}
			for range count {
				paths = append(paths, file.Path)
			}
			headers[file.Name] = file.Header
		}
		if paths == nil {
			continue
		}
		t.Run(string(sort), func(t *testing.T) {
			if sort == Quiet {
				t.Cleanup(func() { r.closeShared(t) })
			}
			testscript.RunT(shim{t}, testscript.Params{
				Files: paths, Cmds: scriptCommands(), RequireUniqueNames: true,
				Setup: func(env *testscript.Env) error { return r.setup(env, headers) },
			})
		})
	}
}

// shim is testing's T as testscript wants it; unlike testscript's own it can be reached from a setup.
type shim struct{ *testing.T }

func (s shim) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(shim{t}) })
}

func (s shim) Verbose() bool { return testing.Verbose() }

// setup gives a script its lab, its namespace and its variables.
func (r *Runner) setup(env *testscript.Env, headers map[string]Header) error {
	t, ok := env.T().(shim)
	if !ok {
		return fmt.Errorf("set up a scene: its T is a %T", env.T())
	}
	name := filepath.Base(t.Name())
	base, _, _ := strings.Cut(name, "#") // a repeated scene has a number
	header := headers[base]
	if sentence := lab.Lacks(header.Proxy.Tool()); sentence != "" {
		r.skip(t.T, name, sentence)
	}
	if header.Kubelet && r.noKubelet != "" {
		r.skip(t.T, name, r.noKubelet)
	}
	if header.Sort != Quiet {
		<-r.alone
		t.Cleanup(func() { r.alone <- struct{}{} })
	}
	ctx, cancel := context.WithTimeout(t.Context(), limits()[header.Sort]) // its turn has come: waiting for it does not count
	t.Cleanup(cancel)
	begin := time.Now()
	l, err := r.labFor(ctx, t.T, header)
	if err != nil {
		return err
	}
	if header.Sort == Quiet {
		begin = time.Now() // the shared lab's start is nobody's
	}
	s := &Scene{ctx: ctx, name: name, lab: l, skip: func(sentence string) { r.skip(t.T, name, sentence) }}
	t.Cleanup(func() { r.finish(t.T, s, time.Since(begin)) })
	return r.furnish(t.T, env, s)
}

// labFor answers the shared lab, or one that is made for this scene and closed after it.
func (r *Runner) labFor(ctx context.Context, t *testing.T, header Header) (*lab.Lab, error) {
	t.Helper()
	if header.Sort == Quiet {
		r.shared.Do(func() {
			// The lab outlives the scene that happens to come first.
			r.quietLab, r.quietError = r.start(context.WithoutCancel(ctx), "quiet", Header{Nodes: quietNodes, Berth: true})
		})
		return r.quietLab, r.quietError
	}
	r.mu.Lock()
	r.labs++
	name := fmt.Sprintf("own%d", r.labs)
	r.mu.Unlock()
	l, err := r.start(ctx, name, header)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
	})
	return l, nil
}

func (r *Runner) start(ctx context.Context, name string, header Header) (*lab.Lab, error) {
	l, err := lab.Start(ctx, lab.Options{
		Name: name, Nodes: header.Nodes, Proxy: header.Proxy, Programs: r.programs, Containers: header.Kubelet, Plain: header.Plain,
	})
	if err != nil || !header.Berth {
		return l, err
	}
	if err := l.StartBerth(ctx); err != nil {
		err = fmt.Errorf("start Berth in lab %s: %w", name, err)
		if failed := l.CopyLogs(filepath.Join(r.failed, name)); failed == nil {
			err = fmt.Errorf("%w\nlogs are in %s", err, filepath.Join(r.failed, name))
		}
		_ = l.Close() // the first error is the one to tell
		return nil, err
	}
	return l, nil
}

func (r *Runner) closeShared(t *testing.T) {
	t.Helper()
	if r.quietLab == nil {
		return
	}
	if err := r.quietLab.Close(); err != nil {
		t.Errorf("close the lab of quiet scenes: %v", err)
	}
}

// furnish makes the scene's namespace and files.
func (r *Runner) furnish(t *testing.T, env *testscript.Env, s *Scene) error {
	t.Helper()
	slot := r.slots.take()
	t.Cleanup(func() { r.slots.giveBack(slot) })
	s.namespace = namespaceFor(s.name)
	if err := s.lab.AddNamespace(s.ctx, s.namespace); err != nil {
		return err
	}
	s.kubeconfig = filepath.Join(env.WorkDir, ".kubeconfig")
	if err := s.lab.WriteKubeconfig(s.kubeconfig, s.namespace); err != nil {
		return err
	}
	values := variables(slot)
	values["NS"] = s.namespace
	values["DURATION"] = duration()
	for name, value := range values {
		env.Setenv(name, value)
	}
	env.Values[sceneKey{}] = s
	if err := showRepository(env.WorkDir); err != nil {
		return err
	}
	return s.substitute(env.WorkDir, values)
}

// showRepository gives a scene's folder what users install from, by the names it has in the repository.
func showRepository(workdir string) error {
	root, err := build.Root()
	if err != nil {
		return err
	}
	for _, name := range []string{"charts", "config"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(workdir, name)); err != nil {
			return fmt.Errorf("show the scene the folder %s: %w", name, err)
		}
	}
	return nil
}

// namespaceFor turns a scene's name, with the number of a repeated one, into that of a namespace. Its end keeps one
// scene's name from being the beginning of another's: what a scene made is removed by that beginning.
func namespaceFor(scene string) string {
	name, number, repeated := strings.Cut(scene, "#")
	if !repeated {
		number = "0"
	}
	return "s-" + name + "-r" + number
}

// finish takes the scene out of a shared lab, saves logs if it failed, and counts it.
func (r *Runner) finish(t *testing.T, s *Scene, took time.Duration) {
	t.Helper()
	if s.prober != nil {
		s.prober.Stop()
	}
	if t.Failed() {
		dir := filepath.Join(r.failed, strings.ReplaceAll(s.name, "#", "-"))
		if err := s.lab.CopyLogs(dir); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(r.out, "FAILED %s: the logs of its lab are in %s\n", s.name, dir)
	}
	if s.lab == r.quietLab {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.lab.RemoveScene(ctx, s.namespace); err != nil {
			t.Errorf("remove what the scene made: %v", err)
		}
	}
	if t.Skipped() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account.ran(s.name, took)
}

// skip ends the scene without a verdict. It does not return.
func (r *Runner) skip(t *testing.T, name, sentence string) {
	t.Helper()
	fmt.Fprintf(r.out, "SKIP %s: %s\n", name, sentence)
	r.mu.Lock()
	r.account.skipped(name, sentence)
	r.mu.Unlock()
	t.Skip(sentence)
}

// Account answers what was run so far.
func (r *Runner) Account() Account {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.account.clone()
}

// slots hands out parts of the segment's free addresses, so that scenes which share a lab never meet.
type slots struct {
	mu   sync.Mutex
	last int
	used [slotCount]bool
}

const (
	slotCount = 7  // 172.30.0.128 to .239
	slotSize  = 16 // addresses
	slotFirst = 128
)

// take answers the free slot that was given back the longest time ago; there are more slots than scenes at a time.
func (s *slots) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range slotCount {
		s.last = (s.last + 1) % slotCount
		if !s.used[s.last] {
			s.used[s.last] = true
			return s.last
		}
	}
	panic("scene: more scenes at a time than slots")
}

func (s *slots) giveBack(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[slot] = false
}

// variables are what a scene knows of its slot: its pools, and its first addresses by number.
func variables(slot int) map[string]string {
	first := slotFirst + slot*slotSize
	values := map[string]string{
		"POOL4":       fmt.Sprintf("172.30.0.%d-172.30.0.%d", first, first+slotSize-1),
		"POOL4_FIRST": fmt.Sprintf("172.30.0.%d", first),
		"POOL6":       fmt.Sprintf("fd00:30::a%02d:0-fd00:30::a%02d:f", slot, slot),
		"POOL6_FIRST": fmt.Sprintf("fd00:30::a%02d:0", slot),
	}
	for i := range 9 {
		values[fmt.Sprintf("ADDR%d", i+1)] = fmt.Sprintf("172.30.0.%d", first+i)
	}
	return values
}

// Allowed reads the list of skips that are no failure: lines "SCENE: part of the sentence"; # begins a comment.
func Allowed(path string) ([]Skip, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the allowed skips: %w", err)
	}
	var allowed []Skip
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		scene, sentence, found := strings.Cut(line, ": ")
		if !found {
			return nil, fmt.Errorf("read the allowed skips: %q is not SCENE: SENTENCE", line)
		}
		allowed = append(allowed, Skip{Scene: scene, Sentence: sentence})
	}
	return allowed, nil
}
