package ipam_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain has the random tests draw the same histories in every run, so that a change fails by its own fault and not by
// luck. `make soak` draws new ones: it gives a seed of its own.
func TestMain(m *testing.M) {
	flag.Parse()
	if seed := flag.Lookup("rapid.seed"); seed.Value.String() == "0" {
		if err := seed.Value.Set("1"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
