package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netns"
)

// marker is a variable that every process of a test's sandbox carries; its value names the test.
const marker = "BERTH_SANDBOX_TEST"

// TestMain lets this program play the processes of a sandbox: with the marker set it is a program that uses one.
func TestMain(m *testing.M) {
	Dispatch()
	if os.Getenv(marker) == "" {
		os.Exit(m.Run())
	}
	if _, inside := Inside(); inside {
		os.Exit(inner())
	}
	if err := FollowParent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code, err := Run(Config{Rung: Rung(os.Getenv("TEST_RUNG")[0]), Cache: os.Getenv("BERTH_CACHE")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// inner does what a lab does: files, a named network namespace, processes in the background. Then it says so and waits,
// or ends as it is told.
func inner() int {
	if _, err := netns.NewNamed("left"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.WriteFile(filepath.Join(os.TempDir(), "left"), nil, 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := joinNode(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	orphan := exec.Command("sh", "-c", "setsid sleep 1000 & sleep 1000")
	if err := orphan.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready", os.Getpid())
	if line, _ := bufio.NewReader(os.Stdin).ReadString('\n'); line == "end\n" {
		return 7
	}
	return 1
}

// outside is a running program that uses a sandbox.
type outside struct {
	cache string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	name  string
}

func start(t *testing.T, rung Rung) *outside {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startBy(t, rung, exec.Command(self))
}

// startUnderShell puts a shell between the test and the program, as make and go stand there.
func startUnderShell(t *testing.T, rung Rung) *outside {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startBy(t, rung, exec.Command("sh", "-c", self+"; exit $?"))
}

func startBy(t *testing.T, rung Rung, cmd *exec.Cmd) *outside {
	t.Helper()
	if err := probe(rung); err != nil {
		t.Skipf("rung %c does not work here: %v", rung, err)
	}
	o := &outside{cmd: cmd, name: t.Name(), cache: t.TempDir()}
	o.cmd.Env = append(os.Environ(), marker+"="+o.name, "TEST_RUNG="+string(rung), "BERTH_CACHE="+o.cache)
	o.cmd.Stderr = os.Stderr
	stdin, err := o.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.stdin = stdin
	stdout, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("the inner process said %q, %v", line, err)
	}
	return o
}

// marked answers the ids of all processes of the test's sandbox, by a variable of their environment.
func marked(name string) []int {
	var pids []int
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text)+"\x00", marker+"="+name+"\x00") {
			var pid int
			fmt.Sscanf(path, "/proc/%d/environ", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// inSandbox counts the processes of the test that are in another network namespace than this one.
func (o *outside) inSandbox(t *testing.T) int {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, pid := range marked(o.name) {
		if link, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net"); err == nil && link != own {
			count++
		}
	}
	return count
}

func initOf(t *testing.T, o *outside) int {
	t.Helper()
	for _, pid := range marked(o.name) {
		if text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); strings.HasPrefix(string(text), initName+"\x00") {
			return pid
		}
	}
	t.Fatal("no lab-init runs")
	return 0
}

func TestNothingIsLeft(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		rung   Rung
		start  func(t *testing.T, rung Rung) *outside
		end    func(t *testing.T, o *outside)
	}{
		"OuterKilled":     {"a killed test takes its sandbox along", RungB, start, killOuter},
		"ParentKilled":    {"so does a killed go test above it", RungB, startUnderShell, killOuter},
		"InitKilled":      {"a killed lab-init takes its namespace along", RungB, start, killInit},
		"InnerKilled":     {"a killed inner process ends the sandbox", RungB, start, killInner},
		"Ended":           {"an ordinary end leaves no background process", RungB, start, endInner},
		"UserOuterKilled": {"the same holds in a user namespace", RungC, start, killOuter},
	} {
		t.Run(name, func(t *testing.T) {
			mounts := readMounts(t)
			o := test.start(t, test.rung)
			eventually(t, "the test must see what could be left", func() error {
				if n := o.inSandbox(t); n < 5 { // lab-init, the inner process, the shell and its two sleeps
					return fmt.Errorf("%d processes in the sandbox", n)
				}
				return nil
			})
			test.end(t, o)
			_ = o.cmd.Wait()
			eventually(t, test.reason, func() error {
				if left := marked(o.name); len(left) > 0 {
					return fmt.Errorf("processes left: %v", left)
				}
				return nil
			})
			if diff := cmp.Diff(mounts, readMounts(t)); diff != "" {
				t.Errorf("mounts changed:\n%s", diff)
			}
			for _, path := range []string{"/run/netns/left", Dir} {
				if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is seen outside: %v", path, err)
				}
			}
		})
	}
}

func readMounts(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// killOuter kills what the test started: the program itself, or the shell above it.
func killOuter(t *testing.T, o *outside) {
	t.Helper()
	if err := o.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

func killInit(t *testing.T, o *outside) {
	t.Helper()
	if err := syscall.Kill(initOf(t, o), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func killInner(t *testing.T, o *outside) {
	t.Helper()
	pid1 := initOf(t, o)
	for _, pid := range marked(o.name) {
		if parentOf(pid) != pid1 {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("lab-init has no child")
}

func endInner(t *testing.T, o *outside) {
	t.Helper()
	if _, err := fmt.Fprintln(o.stdin, "end"); err != nil {
		t.Fatal(err)
	}
}

func TestExitCodePassesThrough(t *testing.T) {
	o := start(t, RungB)
	fmt.Fprintln(o.stdin, "end")
	var exit *exec.ExitError
	if err := o.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the outer process ended with %v, the inner one with 7", err)
	}
}

func TestOrphanIsEndedByTheNextStart(t *testing.T) {
	orphan := exec.Command("sleep", "1000")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = orphan.Wait(); close(ended) }()
	t.Cleanup(func() { _ = orphan.Process.Kill() })

	groups := filepath.Join(t.TempDir(), "berth-1") // stands for a control group: a folder that is to go
	if err := os.MkdirAll(filepath.Join(groups, "n1", "kubepods"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := recordsIn(t.TempDir())
	if _, err := r.add(orphan.Process.Pid, []string{groups}); err != nil {
		t.Fatal(err)
	}
	if err := r.endOrphans(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Fatal("a sandbox was ended though the process that wanted it lives")
	default:
	}
	forgeGoneWanter(t, r)
	if err := r.endOrphans(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if left, _ := os.ReadDir(r.dir); len(left) != 0 {
		t.Errorf("records left: %v", left)
	}
	if _, err := os.Stat(groups); err == nil {
		t.Error("its control groups are left")
	}
}

// forgeGoneWanter makes the one record say that a process which has gone wanted the sandbox.
func forgeGoneWanter(t *testing.T, r records) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(r.dir, "*.json"))
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.Replace(string(text), `"wanters":[`, `"wanters":[{"pid":1,"start":"never"},`, 1)
	if err := os.WriteFile(paths[0], []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestChoose(t *testing.T) {
	refuse := func(rungs string) func(Rung) error {
		return func(r Rung) error {
			if strings.ContainsRune(rungs, rune(r)) {
				return errors.New("unshare: operation not permitted")
			}
			return nil
		}
	}
	for name, test := range map[string]struct {
		reason, refused, force, least string
		top                           Rung // RungB if zero
		root                          bool
		want                          Rung
		fails                         bool
	}{
		"Kubelets":        {reason: "root takes real kubelets where they are of use", root: true, top: RungA, want: RungA},
		"KubeletsRefused": {reason: "without control groups nodes are bare", root: true, top: RungA, refused: "A", want: RungB},
		"KubeletsUser":    {reason: "a user has no control groups", top: RungA, want: RungC},
		"KubeletsForced":  {reason: "what is forced is not replaced", root: true, top: RungA, refused: "A", force: "A", fails: true},
		"KubeletsAsked":   {reason: "less than kubelets is a failure if asked so", root: true, top: RungA, refused: "A", least: "A", fails: true},
		"KubeletsNoUse":   {reason: "bare scenes are not run on what they make no use of", root: true, force: "A", least: "A", want: RungB},
		"BareForced":      {reason: "bare nodes can be forced", root: true, top: RungA, force: "B", want: RungB},

		"Root":         {reason: "root takes the best", root: true, want: RungB},
		"User":         {reason: "others take a user namespace", want: RungC},
		"RootRefused":  {reason: "a root without rights falls to C", root: true, refused: "B", want: RungC},
		"NoNamespaces": {reason: "a plain container falls to D", refused: "BC", want: RungD},
		"Forced":       {reason: "C can be forced", root: true, force: "C", want: RungC},
		"ForcedFails":  {reason: "a forced rung is not replaced", force: "B", fails: true},
		"TooLittle":    {reason: "less than asked for is a failure", least: "B", fails: true},
		"Enough":       {reason: "the least is enough", least: "C", want: RungC},
		"Nonsense":     {reason: "a wrong value is named", force: "X", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"BERTH_RUNG": test.force, "BERTH_MIN_RUNG": test.least}
			if test.top == 0 {
				test.top = RungB
			}
			got, err := choose(test.top, func(name string) string { return env[name] }, test.root, refuse(test.refused))
			if (err != nil) != test.fails || got.Rung != test.want {
				t.Errorf("%s: got %v, %v", test.reason, got, err)
			}
		})
	}
}

// eventually asks until the condition holds, ten seconds at most.
func eventually(t *testing.T, reason string, condition func() error) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: %v", reason, err)
		case <-tick.C:
		}
	}
}
