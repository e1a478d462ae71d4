// Package scene runs the lab's scenes: scripts in the language of rogpeppe/go-internal/testscript, with commands for
// nodes, links, the client and Berth's processes.
//
// Scenes are black boxes. They look at Berth only through the API server, the wire and the health of its processes, so
// the same scene judges any version.
package scene

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/holdings"
)

// Scene is one run of a script.
type Scene struct {
	ctx        context.Context //nolint:containedctx // the life of the script; testscript's commands take none
	name       string
	lab        *lab.Lab
	namespace  string
	kubeconfig string
	ts         *testscript.TestScript // of the command that runs
	skip       func(sentence string)
	prober     *lab.Prober
	holdings   *holdings.Watch
}

// command is one of our commands: what it prints, and an error if what it claims is not so.
type command func(s *Scene, args []string) (stdout string, err error)

// commands are all of them. eventually and never run others, each other too.
func commands() map[string]command {
	return map[string]command{
		"kubectl": kubectl, "helm": helm, "apply": apply, "berth": berth, "controller": controller, "speaker": speaker,
		"node": node, "pod": pod, "apiserver": apiserver, "parallel": parallel,
		"restart": restart, "holdings": watchHoldings, "restore": restore, "rename": rename,
		"client": client, "arp": arp, "owner": owner, "silent": silent, "frames": listFrames, "gap": probe,
		"first-answer": firstAnswer, "mark": mark, "writes": writes, "need": need, "log": showLog,
		"eventually": eventually, "never": never,
	}
}

type sceneKey struct{}

// scriptCommands answers the commands as testscript takes them.
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){}
	for name, run := range commands() {
		all[name] = script(name, run)
	}
	return all
}

func script(name string, run command) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, negated bool, args []string) {
		s, ok := ts.Value(sceneKey{}).(*Scene)
		if !ok {
			ts.Fatalf("%s: this script was not set up as a scene", name)
		}
		s.ts = ts
		stdout, err := run(s, args)
		fmt.Fprint(ts.Stdout(), stdout)
		if err != nil {
			fmt.Fprintln(ts.Stderr(), err)
		}
		var wrong usageError
		switch {
		case errors.As(err, &wrong):
			ts.Fatalf("%s: %v", name, err)
		case err != nil && !negated:
			ts.Fatalf("%s: failed", name) // stderr shows why
		case err == nil && negated:
			ts.Fatalf("%s: succeeded, which was not expected", name)
		}
	}
}

// usageError is a command that was called in a wrong way: it fails a scene even where a failure is expected.
type usageError struct{ usage string }

func (e usageError) Error() string { return "usage: " + e.usage }

func isUsage(err error) bool {
	_, wrong := errors.AsType[usageError](err)
	return wrong
}

// substitute puts the scene's own names into the script's manifests.
func (s *Scene) substitute(workdir string, values map[string]string) error {
	root, err := os.OpenRoot(workdir)
	if err != nil {
		return fmt.Errorf("open the scene's folder: %w", err)
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := root.ReadFile(path)
		if err != nil {
			return err
		}
		replaced := string(text)
		for name, value := range values {
			replaced = strings.ReplaceAll(replaced, "${"+name+"}", value)
		}
		return root.WriteFile(path, []byte(replaced), 0o600)
	})
}

// attempt is a command line inside eventually or never.
type attempt struct {
	limit   time.Duration
	match   *regexp.Regexp // its output must match, if not nil
	noMatch *regexp.Regexp // its output must not match, if not nil
	negated bool
	run     command
	args    []string
	line    string
}

const attemptUsage = "eventually|never DURATION [-match RE] [-nomatch RE] [!] COMMAND..."

func parseAttempt(args []string) (a attempt, err error) {
	if len(args) < 2 {
		return a, usageError{attemptUsage}
	}
	if a.limit, err = time.ParseDuration(args[0]); err != nil {
		return a, usageError{attemptUsage + ": " + err.Error()}
	}
	rest := args[1:]
	for len(rest) > 1 && (rest[0] == "-match" || rest[0] == "-nomatch") {
		expression, err := regexp.Compile("(?m)" + rest[1])
		if err != nil {
			return a, usageError{attemptUsage + ": " + err.Error()}
		}
		if rest[0] == "-match" {
			a.match = expression
		} else {
			a.noMatch = expression
		}
		rest = rest[2:]
	}
	if len(rest) > 0 && rest[0] == "!" {
		a.negated, rest = true, rest[1:]
	}
	if len(rest) == 0 {
		return a, usageError{attemptUsage}
	}
	a.line, a.args = strings.Join(rest, " "), rest[1:]
	if a.run = commands()[rest[0]]; a.run == nil {
		return a, usageError{attemptUsage + ": there is no command " + rest[0]}
	}
	return a, nil
}

// try runs the command once and answers an error unless everything that was asked of it holds.
func (a attempt) try(s *Scene) (stdout string, err error) {
	stdout, err = a.run(s, a.args)
	switch {
	case isUsage(err):
		return stdout, err
	case a.negated && err == nil:
		return stdout, fmt.Errorf("%s succeeded", a.line)
	case !a.negated && err != nil:
		return stdout, err
	case a.match != nil && !a.match.MatchString(stdout):
		return stdout, fmt.Errorf("no match for %s in %q", a.match, stdout)
	case a.noMatch != nil && a.noMatch.MatchString(stdout):
		return stdout, fmt.Errorf("a match for %s in %q", a.noMatch, stdout)
	default:
		return stdout, nil
	}
}

const tryEvery = 100 * time.Millisecond

// eventually succeeds as soon as the command does, and fails if it has not when the time is up.
func eventually(s *Scene, args []string) (string, error) {
	a, err := parseAttempt(args)
	if err != nil {
		return "", err
	}
	begin := time.Now()
	for {
		stdout, err := a.try(s)
		if err == nil {
			return stdout, nil
		}
		if isUsage(err) {
			return "", err
		}
		if time.Since(begin) > a.limit {
			return stdout, fmt.Errorf("not within %s: %w", a.limit, err)
		}
		if err := s.pause(tryEvery); err != nil {
			return stdout, err
		}
	}
}

// never fails as soon as the command succeeds, and succeeds if it has not when the time is up.
func never(s *Scene, args []string) (string, error) {
	a, err := parseAttempt(args)
	if err != nil {
		return "", err
	}
	begin := time.Now()
	for time.Since(begin) < a.limit {
		stdout, err := a.try(s)
		if err == nil {
			return stdout, fmt.Errorf("%s after %s", a.line, time.Since(begin).Round(time.Millisecond))
		}
		if isUsage(err) {
			return "", err
		}
		if err := s.pause(tryEvery); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (s *Scene) pause(d time.Duration) error {
	select {
	case <-s.ctx.Done():
		return fmt.Errorf("the scene's time is up: %w", context.Cause(s.ctx))
	case <-time.After(d):
		return nil
	}
}
