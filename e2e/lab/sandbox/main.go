package sandbox

import (
	"fmt"
	"os"
)

// Main runs a package's tests inside a sandbox of the best rung and answers their exit code: a TestMain is
//
//	func TestMain(m *testing.M) { os.Exit(sandbox.Main(m, cache)) }
//
// Where no namespaces can be had it says so and the tests do not run.
func Main(tests interface{ Run() int }, cache string) int {
	Dispatch()
	if _, inside := Inside(); inside {
		return tests.Run()
	}
	code, err := enter(cache)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func enter(cache string) (int, error) {
	if err := FollowParent(); err != nil {
		return 0, err
	}
	choice, err := Choose(RungB)
	if err != nil {
		return 0, err
	}
	if choice.Rung == RungD {
		fmt.Println("SKIP all tests of this package:", choice)
		return 0, nil
	}
	return Run(Config{Rung: choice.Rung, Cache: cache})
}
