package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// keepPrograms is how many builds of one of Berth's programs the cache keeps: enough for labs that run side by side.
const keepPrograms = 8

// progress tells a person what a long step is doing.
type progress struct {
	out        io.Writer
	what, hint string
}

// watch writes a line every ten seconds until the answered function is called; a step that is quick says nothing.
func (p progress) watch() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	start := time.Now()
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				fmt.Fprintf(p.out, "%s: %.0f s, %s\n", p.what, time.Since(start).Seconds(), p.hint)
			}
		}
	}()
	return func() { close(done); <-ended }
}

// goCommand is a run of the go command.
type goCommand struct {
	dir  string
	args []string
	cgo  bool
}

// goBuild runs the go command. Its temporary files lie in the cache folder: the machine's own temporary folder
// may be small and in memory.
func goBuild(ctx context.Context, command goCommand, cache string, say progress) error {
	tmp := filepath.Join(cache, "tmp")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return fmt.Errorf("make the build's temporary folder: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", command.args...)
	cmd.Dir = command.dir
	// One setting of cgo for everything but what cannot do without: a change of it compiles everything anew.
	cgo := "CGO_ENABLED=0"
	if command.cgo {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), cgo, "GOFLAGS=-buildvcs=false -trimpath", "GOTMPDIR="+tmp, "GOWORK=off")
	// The go command removes its temporary folder when asked to end, not when killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	stop := say.watch()
	text, err := cmd.CombinedOutput()
	stop()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", say.what, err, lastLines(string(text), 30))
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// prune removes all but the newest keep folders of store.
func prune(store string, keep int) error {
	entries, err := os.ReadDir(store)
	if err != nil {
		return fmt.Errorf("look for old builds: %w", err)
	}
	age := map[string]time.Time{}
	var names []string
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			names = append(names, entry.Name())
			age[entry.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(names, func(a, b string) int { return age[b].Compare(age[a]) })
	for _, name := range names[min(keep, len(names)):] {
		if err := os.RemoveAll(filepath.Join(store, name)); err != nil {
			return fmt.Errorf("remove an old build: %w", err)
		}
	}
	return nil
}
