// Command testsum runs `go test -json` and prints what a person wants to read of it: what fails, in full; what is
// skipped, with its sentence; one line a package; and how many passed.
//
//	testsum [-v] go test -json [flags] [packages]
//
// With -v it also prints a line for each test when it is done. If BERTH_STEPS names a file, the counts are added to it
// as a line that hack/steps reads.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
)

func main() {
	verbose := flag.Bool("v", false, "print a line for each test when it is done")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "testsum: say what to run: testsum go test -json ./...")
		os.Exit(2)
	}
	code, err := run(flag.Args(), *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
	}
	os.Exit(code)
}

// run runs the command, prints its events, and answers its exit code.
func run(args []string, verbose bool) (int, error) {
	// The interrupt of a terminal reaches go test too. It ends, and what it said until then is still worth printing.
	signal.Ignore(os.Interrupt)

	command := exec.CommandContext(context.Background(), args[0], args[1:]...) //nolint:gosec // what the caller names
	command.Stdin, command.Stderr = os.Stdin, os.Stderr
	events, err := command.StdoutPipe()
	if err != nil {
		return 1, fmt.Errorf("read from %s: %w", args[0], err)
	}
	if err := command.Start(); err != nil {
		return 1, fmt.Errorf("start %s: %w", args[0], err)
	}

	summary := newSummary(os.Stdout, verbose)
	readErr := summary.read(events)
	code, err := exitCode(command.Wait())
	total := summary.finish(code)
	return code, errors.Join(err, readErr, record(os.Getenv("BERTH_STEPS"), total))
}

// exitCode answers the exit code that the error of Wait stands for, 1 if it stands for none.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode(), nil
	default:
		return 1, err
	}
}

// record adds the counts to the file of hack/steps, if there is one.
func record(path string, total counts) error {
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0) //nolint:gosec // a file that hack/steps names
	if err != nil {
		return fmt.Errorf("record the counts: %w", err)
	}
	_, err = fmt.Fprintf(file, "tests\t%d\t%d\t%d\n", total.passed, total.failed, total.skipped)
	return errors.Join(err, file.Close())
}
