// Command pod is what the container images of the lab hold. The name it is called by (argv[0]) selects the program:
// lab-web or lab-pause.
package main

import (
	"fmt"
	"os"

	"github.com/berthlb/berth/e2e/lab/program"
)

func main() {
	program.Dispatch()
	fmt.Fprintf(os.Stderr, "pod: there is no program %q\n", os.Args[0])
	os.Exit(2)
}
